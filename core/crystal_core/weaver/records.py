"""Records of the Dream Weaver's database: runs, batches, calls, usage and outcomes. `database` shows their states."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from crystal_core.weaver.answers import ExtractedMemory


class Method(StrEnum):
    """How text is written: by a language model, or by copying sentences."""

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
    """A run. ``identity_new``: the agent had no IDENTITY when it began."""

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
    """Pieces of one day that are read together, by their ``keys``."""

    run: str
    number: int
    day: str
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens used by a run or leg. ``unsure``: part of ``total`` that may not have been used; ``lost``: calls it is from."""

    tokens_in: int
    tokens_out: int
    unsure: int
    lost: int

    @property
    def total(self) -> int:
        return self.tokens_in + self.tokens_out + self.unsure


class BatchOutcome(msgspec.Struct, frozen=True):
    """The outcome of one batch, from which all files are written, now or again.

    ``prose``: the checked part of the journal. ``first``, ``last``: times of its messages, milliseconds. ``note``: why there
    is no prose, for people; ``unread``: answers that could not be used. ``quotations``: exact ones, which later pages may
    repeat; ``cut``: number of those removed. ``remembered``: number of ``memories`` stored. ``scope``: the project that all
    of it was said in, "" for none; None if it is not known, or there were several.
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
    scope: str | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BatchOutcome)


def encode_outcome(outcome: BatchOutcome) -> bytes:
    return _encoder.encode(outcome)


def decode_outcome(data: bytes) -> BatchOutcome:
    """Decode an outcome. Raises msgspec.MsgspecError for invalid data."""
    return _decoder.decode(data)
