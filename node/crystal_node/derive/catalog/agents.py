"""Agents in the Core's catalog: their staging states, and which files they have in each.

    gathering --its conversations are written---> ready
    ready     --begin---------------------------> backfill
    backfill  --all its files are made----------> asking      nobody has said how to weave
    backfill  --all its files are made, weave---> weaving
    backfill  --all its files are made, never---> live
    asking    --weave---------------------------> weaving
    asking    --never---------------------------> live
    weaving   --woven---------------------------> live
    weaving   --never---------------------------> live        it failed, and somebody gave it up
    any of them --reject------------------------> rejected
    any of them --recorded here-----------------> live        the Core itself captures it
    rejected  --run-----------------------------> gathering

A failure is not a state: the agent stays where it is, with the reason, until somebody runs it again. ``staging/<agent>/`` is
removed after ``live`` or ``rejected``, never before. Agents that are known are live from the start.
"""

from dataclasses import dataclass
from enum import StrEnum

from crystal_crypto.errors import CrystalError
from crystal_node.base.agent_names import folder_name
from crystal_node.base.errors import ExitCode, NoSuchEntry
from crystal_node.base.home import Home
from crystal_node.base.wording import one_line
from crystal_node.derive.catalog.database import Catalog


class StagingState(StrEnum):
    """Where an agent is in staging."""

    GATHERING = "gathering"
    READY = "ready"
    BACKFILL = "backfill"
    ASKING = "asking"
    WEAVING = "weaving"
    LIVE = "live"
    REJECTED = "rejected"


class StagingEvent(StrEnum):
    """What moves an agent."""

    WRITTEN = "its conversations are written"
    BEGIN = "begin"
    MADE = "all its files are made"
    MADE_WEAVE = "all its files are made, weave"
    MADE_NEVER = "all its files are made, never"
    WEAVE = "weave"
    NEVER = "never"
    WOVEN = "woven"
    REJECT = "reject"
    RECORDED_HERE = "recorded here"
    RUN = "run"


class Weave(StrEnum):
    """How a new agent's past is woven."""

    ASK = "ask"
    EXTRACTIVE = "extractive"
    LLM = "llm"
    NEVER = "never"


class CannotStage(CrystalError):
    """The agent's state does not allow that."""

    exit_code = ExitCode.USAGE
    hint = "`crystal staging list` shows where every new agent is."


WAITING = frozenset(
    {
        StagingState.GATHERING,
        StagingState.READY,
        StagingState.BACKFILL,
        StagingState.ASKING,
        StagingState.WEAVING,
    }
)
"""States in which an agent is staged."""
_MOVES = {
    (StagingState.GATHERING, StagingEvent.WRITTEN): StagingState.READY,
    (StagingState.READY, StagingEvent.BEGIN): StagingState.BACKFILL,
    (StagingState.BACKFILL, StagingEvent.MADE): StagingState.ASKING,
    (StagingState.BACKFILL, StagingEvent.MADE_WEAVE): StagingState.WEAVING,
    (StagingState.BACKFILL, StagingEvent.MADE_NEVER): StagingState.LIVE,
    (StagingState.ASKING, StagingEvent.WEAVE): StagingState.WEAVING,
    (StagingState.ASKING, StagingEvent.NEVER): StagingState.LIVE,
    (StagingState.WEAVING, StagingEvent.WOVEN): StagingState.LIVE,
    (StagingState.WEAVING, StagingEvent.NEVER): StagingState.LIVE,
    (StagingState.REJECTED, StagingEvent.RUN): StagingState.GATHERING,
    **{(state, StagingEvent.REJECT): StagingState.REJECTED for state in WAITING},
    **{(state, StagingEvent.RECORDED_HERE): StagingState.LIVE for state in WAITING},
}


def next_state(state: StagingState, event: StagingEvent) -> StagingState:
    """The state after an event. Raises CannotStage if the event is not possible in ``state``."""
    after = _MOVES.get((state, event))
    if after is None:
        raise CannotStage(f"an agent that is {state} cannot take this step: {event}")
    return after


def has_staged_files(state: StagingState) -> bool:
    """Whether its transcripts are in ``staging/``."""
    return state in WAITING


def has_files(state: StagingState) -> bool:
    """Whether its files are in ``agents/``."""
    return state in (StagingState.BACKFILL, StagingState.ASKING, StagingState.WEAVING, StagingState.LIVE)


_AGENTS = """
SELECT a.agent, a.state, a.since, a.weave, a.failure, count(c.id), coalesce(sum(c.dirty_since > 0), 0),
       coalesce(sum(c.staged), 0), coalesce(sum(c.made), 0)
FROM agent a LEFT JOIN conversation c ON c.agent = a.agent GROUP BY a.agent ORDER BY a.since, a.agent
"""


@dataclass(frozen=True, slots=True)
class Staged:
    """An agent of the catalog. ``failure``: why it moves no further, "" if none. ``open``: conversations with changes that no
    file shows yet; ``staged`` and ``made``: those with a transcript in staging, and with files of their own."""

    agent: str
    state: StagingState
    since: int
    weave: str
    failure: str
    conversations: int
    open: int
    staged: int
    made: int

    @property
    def folder(self) -> str:
        return folder_name(self.agent)

    @property
    def waits_for_a_person(self) -> bool:
        return self.state in WAITING and (self.state is StagingState.ASKING or bool(self.failure))

    @property
    def words(self) -> str:
        """The state, for people."""
        if self.failure:
            return f"failed while {self.state}: {one_line(self.failure, 200)}"
        match self.state:
            case StagingState.GATHERING:
                return "its conversations are gathered"
            case StagingState.READY:
                return "its conversations are complete"
            case StagingState.BACKFILL:
                return "its files are made"
            case StagingState.ASKING:
                return "waits for you to say how its past is woven"
            case StagingState.WEAVING:
                return "its past is woven"
            case StagingState.LIVE:
                return "live"
            case StagingState.REJECTED:
                return "rejected: no files are made of it"


def staged_agents(home: Home) -> list[Staged]:
    """All agents that the Core of this home knows, oldest first; empty on other devices. Raises CatalogDamaged."""
    catalog = Catalog.open_readonly(home.works_database)
    if catalog is None:
        return []
    with catalog:
        return agents_in(catalog)


def agents_in(catalog: Catalog) -> list[Staged]:
    return [
        Staged(agent, StagingState(state), since, weave, failure, *counts)
        for agent, state, since, weave, failure, *counts in catalog.rows(_AGENTS)
    ]


def find_staged(agents: list[Staged], given: str) -> Staged:
    """The agent of that name, or else with a folder of that name. Raises NoSuchEntry."""
    exact = [one for one in agents if one.agent == given]
    found = exact or [one for one in agents if one.folder == given]
    if not found:
        raise NoSuchEntry(
            f"no agent here is called {one_line(given, 60)!r}",
            hint="`crystal staging list --all` shows all agents.",
        )
    return found[0]
