"""Private mode: while it is on, this device records nothing, and what was said meanwhile is not recorded later either.

Two measures, because each alone leaks. When the mode is turned off, everything in the transcripts by then is skipped unread.
And each private span is remembered, so that a message of that time is dropped wherever it appears later: in a session file that
is copied on resuming, or one that was elsewhere. The state is in the journal and changes in its transactions; a capture pass
that was under way when the mode was turned on cannot commit.

A copy stands beside the journal. If the journal is lost, the next one begins with that copy; without it nobody knows what was
private, so private mode is on, and all that was said so far stays unrecorded when it is turned off.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec

from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.errors import UsageError
from crystal_node.base.home import write_private
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.journal_values import peek

SPANS_MAX = 10_000
"""How many private spans are remembered; beyond that the two oldest are joined, which never hides less."""

_META = "node.private"

Moment = Annotated[int, msgspec.Meta(ge=0)]


class Privacy(msgspec.Struct, frozen=True, array_like=True):
    """``since``: when private mode was turned on, None while it is off; ``spans``: earlier private times, in milliseconds.

    ``caught_up``: what was in transcripts before has been recorded. ``uptime``: the machine's uptime at ``since``.
    """

    since: Moment | None = None
    spans: tuple[tuple[Moment, Moment], ...] = ()
    caught_up: bool = True
    uptime: Moment | None = None

    @property
    def on(self) -> bool:
        return self.since is not None

    def hides(self, moment: int) -> bool:
        """Whether a message of that time (milliseconds, 0 if unknown) was private. Unknown times are not: messages without
        one are read in order only, and skipping covers them."""
        if moment <= 0:
            return False
        if self.since is not None and moment >= self.since:
            return True
        return any(first <= moment <= last for first, last in self.spans)

    def turned_on(self, now: int, uptime: int | None = None) -> "Privacy":
        return self if self.on else Privacy(now, self.spans, caught_up=False, uptime=uptime)

    def hides_if_unsure(self, moment: int) -> bool:
        """``hides`` for a pass that may reach into the private time: messages without a time are hidden, too."""
        return moment <= 0 or self.hides(moment)

    def or_version(self, hides: Callable[[int], bool], path: Path) -> Callable[[int], bool]:
        """``hides`` for a partly skipped file of a tool that rewrites messages under their first time: what was written in a
        private span may be written again after it. A file not touched since the span holds nothing of it.

        Raises OSError: the file cannot be looked at.
        """
        written = path.lstat().st_mtime_ns // 1_000_000
        return lambda moment: hides(moment) or self._met(moment, written)

    def or_since(self, hides: Callable[[int], bool], path: Path) -> Callable[[int], bool]:
        """``hides`` for a file that was found only after a private span had ended, so that it was not skipped. A moment stands
        for all the time from then until the file was last written.

        Raises OSError: the file cannot be looked at.
        """
        written = path.lstat().st_mtime_ns // 1_000_000
        return lambda moment: hides(moment) or (moment > 0 and self._met(moment, written))

    def _met(self, begin: int, end: int) -> bool:
        """Whether a private span overlaps this time."""
        return any(first <= end and begin <= last for first, last in self.spans)

    def turned_off(self, now: int, uptime: int | None = None) -> "Privacy":
        if self.since is None:
            return self
        # A clock that was set back must not make the span empty. The uptime tells how long it was at least; after a restart of
        # the machine, all of the uptime was private.
        lasted = 0
        if uptime is not None and self.uptime is not None:
            lasted = uptime - self.uptime if uptime >= self.uptime else uptime
        spans = sorted([*self.spans, (max(min(self.since, now - lasted), 0), max(self.since, now))])
        if len(spans) > SPANS_MAX:
            (first, one), (_, other), *rest = spans
            spans = [(first, max(one, other)), *rest]
        return Privacy(None, tuple(spans))


class PrivateNow(UsageError):
    """Private mode is on: nothing is recorded."""

    hint = "`crystal private off` ends it."


_decoder = msgspec.msgpack.Decoder(Privacy)
_encoder = msgspec.msgpack.Encoder()


def read_privacy(journal: SqliteJournal) -> Privacy:
    """The current state, inside or outside of a transaction."""
    data = journal.meta_get(_META)
    return Privacy() if data is None else _decoder.decode(data)


def peek_privacy(path: Path) -> Privacy:
    """The state by a journal that is not opened for writing; off if it cannot be read."""
    data = peek(path, _META)
    return Privacy() if data is None else _decoder.decode(data)


def write_privacy(journal: SqliteJournal, privacy: Privacy) -> None:
    """Writes the state, within a transaction of the journal, and before it commits the copy beside it."""
    data = _encoder.encode(privacy)
    if journal.path is not None:
        write_private(_copy_beside(journal.path), data)
    journal.meta_set(_META, data)


def keep_copy(journal: SqliteJournal) -> None:
    """Writes the copy beside a journal that is in use, if there is none: earlier versions wrote none."""
    if journal.path is None or _copy_beside(journal.path).exists():
        return
    with journal.transaction():
        write_privacy(journal, read_privacy(journal))


def begin_after_loss(journal: SqliteJournal) -> bool:
    """Begins a journal in the place of a lost one, within a transaction: with the copy of the state, else with private mode on.
    Returns whether it is on for that."""
    assert journal.path is not None, "a journal of a home"
    try:
        privacy = _decoder.decode(_copy_beside(journal.path).read_bytes())
    except (OSError, *UNDECODABLE):
        write_privacy(journal, Privacy(since=0))
        return True
    write_privacy(journal, privacy)
    return False


def _copy_beside(journal: Path) -> Path:
    return journal.with_name("private")
