"""Knowledge about a file that goes beyond its offset, kept with its state."""

import msgspec

from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.decoding import from_msgpack
from crystal_node.capture.actions import OpenCall
from crystal_node.capture.messages import TranscriptMessage, said_mark

MARK_BYTES = 8
MARKS_MAX = 8192
"""How many recorded versions of messages are remembered per file; the oldest are dropped."""


class Context(msgspec.Struct, array_like=True, omit_defaults=True):
    """What earlier lines of a file say about later ones, and what was recorded from a file that is rewritten.

    ``mode`` is the adapter's own; ``moment`` (milliseconds) is the time of messages without one; ``said`` holds marks of
    ``MARK_BYTES`` each. ``hidden``: how many messages without a time of a document were skipped, the last of which had
    ``hidden_chars`` characters with the hash ``hidden_hash``. ``pending``: texts with their times, of which later lines tell
    whether somebody said them; ``unsettled``: the same of the model's. ``confirmed``: marks of its newest texts that were said
    for sure. ``calls``: tool calls whose results have not come. ``model``: which one answers.
    """

    session: str = ""
    cwd: str = ""
    repository: str = ""
    subagent: bool = False
    mode: str = ""
    moment: int = 0
    said: bytes = b""
    hidden: int = 0
    hidden_chars: int = 0
    hidden_hash: bytes = b""
    pending: tuple[tuple[int, str], ...] = ()
    unsettled: tuple[tuple[int, str], ...] = ()
    confirmed: tuple[str, ...] = ()
    calls: tuple[OpenCall, ...] = ()
    model: str = ""

    def encoded(self) -> bytes:
        return b"" if self == Context() else msgspec.msgpack.encode(self)


def decoded(memo: bytes) -> Context:
    """The context from its bytes; an empty one if another version wrote them."""
    try:
        return from_msgpack(memo, Context) if memo else Context()
    except UNDECODABLE:
        return Context()


class Marks:
    """The remembered versions of messages that were recorded from a file."""

    def __init__(self, said: bytes = b"") -> None:
        self._known = dict.fromkeys(said[at : at + MARK_BYTES] for at in range(0, len(said), MARK_BYTES))

    def new(self, spoken: TranscriptMessage) -> bool:
        """Whether this version is new. Remembers it."""
        mark = said_mark(spoken, MARK_BYTES)
        if mark in self._known:
            return False
        self._known[mark] = None
        return True

    def encoded(self) -> bytes:
        return b"".join(self._known)[-MARK_BYTES * MARKS_MAX :]
