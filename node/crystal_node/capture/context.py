"""What was learned of a file that its offset does not say, kept with its state."""

import msgspec

from crystal_node.capture.messages import TranscriptMessage, said_mark

MARK_BYTES = 8
MARKS_MAX = 8192
"""Versions of messages that are known to have been recorded from one file; the oldest are dropped."""


class Context(msgspec.Struct, array_like=True, omit_defaults=True):
    """What earlier lines of a file say of later ones, and what was recorded of one that is written anew.

    ``mode`` is the adapter's own; ``moment`` (milliseconds) stands for messages without a time; ``said`` holds marks of
    ``MARK_BYTES`` each. ``hidden``: so many messages without a time of a document were stepped over, the last of which had
    ``hidden_chars`` characters with the hash ``hidden_hash``. ``pending``: texts, with their moments, of which later lines
    tell whether somebody said them.
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

    def encoded(self) -> bytes:
        return b"" if self == Context() else msgspec.msgpack.encode(self)


def decoded(memo: bytes) -> Context:
    """The context as it was kept; an empty one if another version wrote it."""
    try:
        return msgspec.msgpack.decode(memo, type=Context) if memo else Context()
    except msgspec.MsgspecError:
        return Context()


class Marks:
    """Which versions of messages were recorded from a file, as far as is remembered."""

    def __init__(self, said: bytes = b"") -> None:
        self._known = dict.fromkeys(said[at : at + MARK_BYTES] for at in range(0, len(said), MARK_BYTES))

    def new(self, spoken: TranscriptMessage) -> bool:
        """Whether this version was not known; from here on it is."""
        mark = said_mark(spoken, MARK_BYTES)
        if mark in self._known:
            return False
        self._known[mark] = None
        return True

    def encoded(self) -> bytes:
        return b"".join(self._known)[-MARK_BYTES * MARKS_MAX :]
