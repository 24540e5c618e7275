"""How the Core's agents stand in staging, read without disturbing anybody: for `crystal staging list`, status and doctor."""

from dataclasses import dataclass

from crystal_node.base.agent_names import folder_name
from crystal_node.base.errors import NoSuchEntry
from crystal_node.base.home import Home
from crystal_node.base.wording import one_line
from crystal_node.derive.catalog.agents import WAITING, State
from crystal_node.derive.catalog.database import Works

_AGENTS = """
SELECT a.agent, a.state, a.since, a.weave, a.failure, count(c.id), coalesce(sum(c.dirty_since > 0), 0),
       coalesce(sum(c.staged), 0), coalesce(sum(c.made), 0)
FROM agent a LEFT JOIN conversation c ON c.agent = a.agent GROUP BY a.agent ORDER BY a.since, a.agent
"""


@dataclass(frozen=True, slots=True)
class Staged:
    """One agent. ``failure``: why it moves no further, "" if nothing keeps it. ``open``: conversations with changes that no
    file shows yet; ``staged`` and ``made``: those with a transcript in staging, and with files of their own."""

    agent: str
    state: State
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
        return self.state in WAITING and (self.state is State.ASKING or bool(self.failure))

    @property
    def words(self) -> str:
        """How it stands, for people."""
        if self.failure:
            return f"failed while {self.state}: {one_line(self.failure, 200)}"
        match self.state:
            case State.GATHERING:
                return "its conversations are gathered"
            case State.READY:
                return "its conversations are complete"
            case State.BACKFILL:
                return "its files are made"
            case State.ASKING:
                return "waits for you to say how its past is woven"
            case State.WEAVING:
                return "its past is woven"
            case State.LIVE:
                return "live"
            case State.REJECTED:
                return "rejected: no files are made of it"


def staged(home: Home) -> list[Staged]:
    """All agents that the Core of this home knows, oldest first; none on other devices. Raises WorksDamaged."""
    works = Works.look_into(home.works_database)
    if works is None:
        return []
    with works:
        return staged_in(works)


def staged_in(works: Works) -> list[Staged]:
    return [
        Staged(agent, State(state), since, weave, failure, *counts)
        for agent, state, since, weave, failure, *counts in works.rows(_AGENTS)
    ]


def named(agents: list[Staged], given: str) -> Staged:
    """The agent that is called, or whose folder is called, so. Raises NoSuchEntry."""
    exact = [one for one in agents if one.agent == given]
    found = exact or [one for one in agents if one.folder == given]
    if not found:
        raise NoSuchEntry(
            f"no agent here is called {one_line(given, 60)!r}",
            hint="`crystal staging list --all` shows all agents.",
        )
    return found[0]
