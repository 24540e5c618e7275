"""How the copies of one session relate, without any disk: equal, one the beginning of the other, or a fork.

A stream is known by its ``LineDigest``: a hash chain over its lines. Unlike a hash of all bytes it can be carried on later, and
it does not depend on how the stream is cut into segments. Since a segment ends with a line, a head tells the digest at many
places, so that most relations are known without reading anything.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from crystal_node.derive.sessions.layout import Base, CopyPlace, Head, Stream

EMPTY = "0" * 64


class LineDigest:
    """``d(0)`` is 32 zero bytes; ``d(n+1) = SHA-256(d(n) ‖ SHA-256(line))``, each line with its newline.

    >>> LineDigest().hex == EMPTY
    True
    """

    def __init__(self, digest: str = EMPTY, count: int = 0) -> None:
        """``digest`` and ``count`` (bytes): where it goes on."""
        self._digest = bytes.fromhex(digest)
        self.bytes = count

    @property
    def hex(self) -> str:
        return self._digest.hex()

    def line(self, line: bytes) -> None:
        """Takes one line with its newline (the last line of a file may have none)."""
        self._digest = sha256(self._digest + sha256(line).digest()).digest()
        self.bytes += len(line)

    def lines(self, data: bytes) -> None:
        """Takes whole lines."""
        *complete, last = data.split(b"\n")
        for line in complete:
            self.line(line + b"\n")
        if last:
            self.line(last)


def digest_of(data: bytes) -> str:
    found = LineDigest()
    found.lines(data)
    return found.hex


class Relation(StrEnum):
    """Of one stream to another."""

    EQUAL = "equal"
    BEGINNING = "beginning"
    """It is a strict beginning of the other, which is the session now."""
    CONTINUES = "continues"
    """The other is a strict beginning of it."""
    FORK = "fork"
    """Each has lines that the other has not."""


DigestAt = Callable[[Head, int], str | None]
"""The digest of a copy's transcript after so many bytes; None if no line ends there, or the copy cannot be read."""


def relation(one: Head, other: Head, digest_at: DigestAt) -> Relation:
    """How the transcript of ``one`` relates to that of ``other``."""
    if one.main.bytes == other.main.bytes:
        return Relation.EQUAL if one.main.digest == other.main.digest else Relation.FORK
    if one.main.bytes > other.main.bytes:
        return Relation.CONTINUES if _begins(other, one, digest_at) else Relation.FORK
    return Relation.BEGINNING if _begins(one, other, digest_at) else Relation.FORK


def known_digest(stream: Stream, count: int) -> str | None:
    """The stream's digest after so many bytes, as far as its head tells it."""
    if count == 0:
        return EMPTY
    if count == stream.bytes:
        return stream.digest
    if stream.base is not None and stream.base.bytes == count:
        return stream.base.digest
    return next((segment.digest for segment in stream.segments if segment.end == count), None)


def _begins(short: Head, long: Head, digest_at: DigestAt) -> bool:
    found = known_digest(long.main, short.main.bytes) or digest_at(long, short.main.bytes)
    return found == short.main.digest


@dataclass(frozen=True, slots=True)
class Branch:
    """Copies that are the same session: ``tip`` holds all that the others hold, which are equal to it or its beginning."""

    tip: Head
    others: tuple[Head, ...] = ()

    @property
    def copies(self) -> tuple[Head, ...]:
        return (self.tip, *self.others)

    @property
    def updated_at(self) -> int:
        """When it last grew, in milliseconds since 1970."""
        return self.tip.updated_at


def branches(copies: Iterable[Head], digest_at: DigestAt) -> list[Branch]:
    """The branches of one session, that which grew last first; several only if it was forked. Copies that were removed by
    retention rules are left out. A copy that begins several branches belongs to the one that grew last."""
    there = [copy for copy in copies if not copy.removed]
    # The longest first; of equal ones that which was there first, then any fixed order.
    there.sort(key=lambda copy: (-copy.main.bytes, copy.updated_at, copy.device, copy.number))
    tips: list[Head] = []
    below: dict[CopyPlace, list[Head]] = {}
    for copy in there:
        above = [
            tip for tip in tips if relation(copy, tip, digest_at) in (Relation.EQUAL, Relation.BEGINNING)
        ]
        if above:
            latest = max(above, key=lambda tip: (tip.updated_at, tip.device, tip.number))
            below[latest.place].append(copy)
        else:
            tips.append(copy)
            below[copy.place] = []
    found = [Branch(tip, tuple(below[tip.place])) for tip in tips]
    return sorted(found, key=lambda each: (-each.updated_at, each.tip.device, each.tip.number))


def best_base(
    digests: Callable[[int], str | None], copies: Sequence[Head], up_to: int
) -> tuple[Head, Base] | None:
    """Of copies of the same session the longest beginning of a file whose digests after so many bytes are given.

    ``up_to``: how many bytes of the file may be compared. Ends of transcripts come before ends of segments of the same length.
    """
    best: tuple[Head, Base] | None = None
    for copy in copies:
        if copy.removed:
            continue
        for count, digest in ends(copy.main):
            if best is not None and count <= best[1].bytes:
                continue
            if count <= up_to and digests(count) == digest:
                best = copy, Base(device=copy.device, number=copy.number, bytes=count, digest=digest)
    return best


def ends(stream: Stream) -> list[tuple[int, str]]:
    """The places of a stream at which its digest is known, 0 left out."""
    found = [(segment.end, segment.digest) for segment in stream.segments]
    if stream.base is not None:
        found.insert(0, (stream.base.bytes, stream.base.digest))
    return found
