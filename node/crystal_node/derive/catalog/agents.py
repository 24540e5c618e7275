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

from enum import StrEnum

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import ExitCode


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
