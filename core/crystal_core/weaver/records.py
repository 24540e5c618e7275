"""What the Dream Weaver's book tells of: runs, batches, calls, and what they used. `book` draws how they go on."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from crystal_core.weaver.answers import ExtractedMemory


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
class WeaverBatch:
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


class BatchOutcome(msgspec.Struct, frozen=True):
    """``prose``: the journal's part, checked. ``first``, ``last``: moments of what it tells of, milliseconds.

    ``note``: why there is no prose, for people; ``unread``: answers that could not be used. ``quotations``: exact ones, which
    later pages may repeat; ``cut``: those that were taken out. ``remembered``: of ``memories``, so many were kept.
    """

    model: str
    sessions: int
    pieces: int
    first: int
    last: int
    prose: str = ""
    note: str = ""
    decided: tuple[str, ...] = ()
    promised: tuple[str, ...] = ()
    concerned: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    quotations: tuple[str, ...] = ()
    memories: tuple[ExtractedMemory, ...] = ()
    references: tuple[tuple[str, str], ...] = ()
    remembered: int = 0
    cut: int = 0
    unread: int = 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BatchOutcome)


def encode_outcome(outcome: BatchOutcome) -> bytes:
    return _encoder.encode(outcome)


def decode_outcome(data: bytes) -> BatchOutcome:
    """Raises msgspec.MsgspecError for what is none."""
    return _decoder.decode(data)
