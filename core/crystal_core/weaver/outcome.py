"""What was made of one batch: all that files are written from. Kept in the book, so that files can be written again."""

import msgspec

from crystal_core.weaver.answers import Memory


class Outcome(msgspec.Struct, frozen=True):
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
    memories: tuple[Memory, ...] = ()
    references: tuple[tuple[str, str], ...] = ()
    remembered: int = 0
    cut: int = 0
    unread: int = 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Outcome)


def encode_outcome(outcome: Outcome) -> bytes:
    return _encoder.encode(outcome)


def decode_outcome(data: bytes) -> Outcome:
    """Raises msgspec.MsgspecError for what is none."""
    return _decoder.decode(data)
