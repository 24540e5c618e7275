"""The states of an agent at the Core, and which files it has in each of them.

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

A failure is no state of its own: the agent stays where it is, with the reason, and moves no further until somebody runs it.
``staging/<agent>/`` goes away behind ``live`` and ``rejected``, never before. Agents that are known are live from the start.
"""

from dataclasses import dataclass
from enum import StrEnum

from crystal_crypto.errors import CrystalError
from crystal_node.base.agent_names import folder_name
from crystal_node.base.errors import ExitCode, NoSuchEntry
from crystal_node.base.home import Home
from crystal_node.base.wording import one_line
from crystal_node.derive.catalog.database import Works


class State(StrEnum):
    """Where an agent is."""

    GATHERING = "gathering"
    READY = "ready"
    BACKFILL = "backfill"
    ASKING = "asking"
    WEAVING = "weaving"
    LIVE = "live"
    REJECTED = "rejected"


class Event(StrEnum):
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
    """An agent is not where it could do that."""

    exit_code = ExitCode.USAGE
    hint = "`crystal staging list` shows where every new agent is."


WAITING = frozenset({State.GATHERING, State.READY, State.BACKFILL, State.ASKING, State.WEAVING})
"""In these an agent is staged."""
_MOVES = {
    (State.GATHERING, Event.WRITTEN): State.READY,
    (State.READY, Event.BEGIN): State.BACKFILL,
    (State.BACKFILL, Event.MADE): State.ASKING,
    (State.BACKFILL, Event.MADE_WEAVE): State.WEAVING,
    (State.BACKFILL, Event.MADE_NEVER): State.LIVE,
    (State.ASKING, Event.WEAVE): State.WEAVING,
    (State.ASKING, Event.NEVER): State.LIVE,
    (State.WEAVING, Event.WOVEN): State.LIVE,
    (State.WEAVING, Event.NEVER): State.LIVE,
    (State.REJECTED, Event.RUN): State.GATHERING,
    **{(state, Event.REJECT): State.REJECTED for state in WAITING},
    **{(state, Event.RECORDED_HERE): State.LIVE for state in WAITING},
}


def moved(state: State, event: Event) -> State:
    """The state behind an event. Raises CannotStage where it has no meaning."""
    after = _MOVES.get((state, event))
    if after is None:
        raise CannotStage(f"an agent that is {state} cannot take this step: {event}")
    return after


def has_staged_files(state: State) -> bool:
    """Whether its transcripts stand in ``staging/``."""
    return state in WAITING


def has_files(state: State) -> bool:
    """Whether its files stand in ``agents/``."""
    return state in (State.BACKFILL, State.ASKING, State.WEAVING, State.LIVE)


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
