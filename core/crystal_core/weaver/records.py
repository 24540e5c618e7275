"""What the Dream Weaver's book tells of: runs, batches, calls, and what they used. `book` draws how they go on."""

from dataclasses import dataclass
from enum import StrEnum


class Method(StrEnum):
    """Who writes: a language model, or nobody (sentences are taken over as they stand)."""

    MODEL = "model"
    EXTRACTIVE = "extractive"


class RunState(StrEnum):
    OPEN = "open"
    STOPPED = "stopped"
    DONE = "done"
    ABANDONED = "abandoned"


class CallState(StrEnum):
    ASKED = "asked"
    ANSWERED = "answered"
    LOST = "lost"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Run:
    """``identity_new``: the agent had no identity when it began."""

    id: str
    agent: str
    method: Method
    mode: str
    since: int
    state: RunState
    leg: int
    identity_new: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """Some pieces of one day that are read together. ``keys``: theirs."""

    run: str
    number: int
    day: str
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens of a run or of a leg. ``unsure``: how much of ``total`` may not have been used; ``lost``: in how many calls."""

    tokens_in: int
    tokens_out: int
    unsure: int
    lost: int

    @property
    def total(self) -> int:
        return self.tokens_in + self.tokens_out + self.unsure
