"""Under which name this device records an agent that has two: one message under both would stand in the memory twice, for good.

A conversation that the memory has under one name goes on under it, whoever reads its transcript. That needs the memory. So
where a home joins a vault, is restored, or lost its databases, transcripts that were there before wait for the first round that
takes in all that the relay shows; then the device also takes the name that this memory has for its agent.

::

    joined --transcripts were there--> WAITS --caught up--> takes the vault's name, records
           --none were-------------------------caught up--> takes the vault's name
"""

from collections.abc import Sequence

from msgspec import structs

from crystal_core.database import Database
from crystal_mirror.operations import Capture
from crystal_node.base.agent_names import CLAUDE_CODE, FORMER_DEFAULT, agent_alias
from crystal_node.base.settings import Settings
from crystal_node.device.journal import SqliteJournal

META_JOINED = "capture.joined"
"""There until the memory came; ``WAITS`` if transcripts wait for it."""
WAITS = b"waits"
_NONE_THERE = b"none"

_STANDS = """
SELECT EXISTS (SELECT 1 FROM occurrences INDEXED BY occurrences_by_session WHERE session = ?1 AND agent = ?2)
    OR EXISTS (SELECT 1 FROM provisional_places WHERE session = ?1 AND agent = ?2 AND category IS NULL AND path IS NULL)
"""


def waiting_mark(settings: Settings) -> bytes:
    """The value of ``META_JOINED`` for a home that joins now."""
    there = next((settings.claude_folder / "projects").rglob("*.jsonl"), None) is not None
    drop = settings.capture.drop_folder
    there = there or next(drop.rglob("*"), None) is not None
    return WAITS if there else _NONE_THERE


def waits(journal: SqliteJournal, agent: str) -> bool:
    """Whether what this agent said must not be recorded before the vault's memory came."""
    return agent_alias(agent) is not None and journal.meta_get(META_JOINED) == WAITS


def memory_came(settings: Settings, journal: SqliteJournal, database: Database) -> None:
    """Notes that all that the relay shows was taken in. Of a newcomer, takes the memory's name for its agent, and wakes its
    service: what waited is recorded now. Raises BadConfig, and what writing ``config.json`` raises."""
    if journal.meta_get(META_JOINED) is None:
        return
    settings = settings.reread()
    former = _speaks(database, FORMER_DEFAULT) and not _speaks(database, CLAUDE_CODE)
    if former and settings.config.agent == CLAUDE_CODE:
        settings.save(structs.replace(settings.config, agent=FORMER_DEFAULT))
    with journal.transaction() as transaction:
        transaction.meta_set(META_JOINED, None)
    settings.home.ask_to_look()


def named_as_before(database: Database, captures: Sequence[Capture]) -> list[Capture]:
    """The captures, each under the other name of its agent if the memory has its session under that name alone."""
    names: dict[tuple[str, str], str] = {}
    found: list[Capture] = []
    for capture in captures:
        key = capture.agent, capture.session
        if key not in names:
            names[key] = _name(database, *key)
        name = names[key]
        found.append(capture if name == capture.agent else structs.replace(capture, agent=name))
    return found


def _name(database: Database, agent: str, session: str) -> str:
    other = agent_alias(agent)
    if other is None or not session or database.value(_STANDS, (session, agent)):
        return agent
    return other if database.value(_STANDS, (session, other)) else agent


def _speaks(database: Database, agent: str) -> bool:
    return bool(database.value("SELECT EXISTS (SELECT 1 FROM occurrences WHERE agent = ?)", (agent,)))
