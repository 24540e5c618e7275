"""Reading the copies of sessions in a memory home: which there are, and their bytes, verified.

Copies arrive file by file. A head that names what is not here yet says so (``CopyIncomplete``), which passes; content whose sum
differs is damaged (``CopyDamaged``). What is read is bounded by what the head says, and a head's word by the limits of
``layout``.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from crystal_crypto import compression
from crystal_crypto.errors import CrystalError, Malformed
from crystal_node.base.errors import ExitCode
from crystal_node.capture.line_reader import open_regular
from crystal_node.derive.sessions.layout import (
    FOLDER,
    HEAD_BYTES_MAX,
    HEAD_NAME,
    MAIN,
    SEGMENT_BYTES_MAX,
    TOOLS,
    Base,
    CopyPlace,
    Head,
    Segment,
    Stream,
    decode_head,
    segment_path,
    session_folder,
)
from crystal_node.derive.sessions.streams import EMPTY, Branch, LineDigest, branches, known_digest

BASES_MAX = 10_000
"""How many streams one may stand on, each continuing the next."""
_PACKED_EXTRA_BYTES_MAX = 512 * 1024
"""By which a frame of incompressible bytes can be larger than they are (zstd's own bound: a 256th)."""


class CopyIncomplete(CrystalError):
    """Files of a session's copy have not arrived here yet."""

    exit_code = ExitCode.STORAGE
    hint = "Run `crystal sync` while the other machine is on, then try again."


class CopyDamaged(CrystalError):
    """A file of a session's copy is not what its head says."""

    exit_code = ExitCode.STORAGE
    hint = "`crystal sessions list` shows whether another machine has a copy of the session."


@dataclass(frozen=True, slots=True)
class UnreadableHead:
    """A head that cannot be used, and why."""

    path: Path
    reason: str


class SessionCopies:
    """The copies in one memory home. ``root``: the home's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> Iterator[Path]:
        """The directories of all sessions that have copies, in order."""
        for tool in TOOLS:
            yield from _folders(self.root / FOLDER / tool)

    def heads(self, unreadable: list[UnreadableHead] | None = None) -> Iterator[Head]:
        """All heads here. Those that cannot be used are left out, and added to ``unreadable``."""
        for folder in self.names():
            yield from heads_in(folder, unreadable)

    def of(self, tool: str, session: str) -> list[Head]:
        """The heads of one session."""
        return list(heads_in(session_folder(self.root, tool, session)))

    def head(self, place: CopyPlace) -> Head | None:
        """One head; None if there is none. Raises CopyDamaged."""
        path = place.folder(self.root) / HEAD_NAME
        try:
            return read_head(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise CopyDamaged(f"{path} cannot be used: {error}") from error

    def branches(self, tool: str, session: str) -> list[Branch]:
        """The session's branches, that which grew last first; more than one: it was forked."""
        return branches(self.of(tool, session), self.digest_at)

    def digest_at(self, head: Head, count: int) -> str | None:
        """The digest of a transcript after so many bytes (``streams.DigestAt``), read only as far as needed."""
        stood_on = {head.place}
        try:
            while True:
                known = known_digest(head.main, count)
                if known is not None or count > head.main.bytes:
                    return known
                if head.main.base is None or count >= head.main.base.bytes:
                    break
                head = self._base(head, head.main.base)
                if head.place in stood_on or len(stood_on) >= BASES_MAX:
                    return None
                stood_on.add(head.place)
            within = next(segment for segment in head.main.segments if segment.first < count < segment.end)
            found = LineDigest(known_digest(head.main, within.first) or EMPTY, within.first)
            data = self._segment(head, head.main, within)[: count - within.first]
            if not data.endswith(b"\n"):
                return None
            found.lines(data)
            return found.hex
        except (CopyIncomplete, CopyDamaged):
            return None

    def read(self, head: Head, path: str = MAIN, *, base_blanked: bool = False) -> Iterator[bytes]:
        """The bytes of one stream from its beginning, its bases' part included, in pieces of at most ``SEGMENT_BYTES_MAX``.

        ``base_blanked``: forgotten texts may have been taken out of a base already, so that the whole need not have the sum
        that this head names. Each segment is verified all the same.

        Raises:
            CopyIncomplete: something has not arrived; pieces that were yielded are right.
            CopyDamaged: something is not what it should be. KeyError: there is no such stream.
        """
        stream = next((one for one in head.streams if one.path == path), None)
        if stream is None:
            raise KeyError(path)
        digest = LineDigest()
        for data in self._bytes(head, stream, stream.bytes):
            digest.lines(data)
            yield data
        if digest.hex != stream.digest and not (base_blanked and stream.base is not None):
            raise CopyDamaged(f"the copy of {head.session} of device {head.device} does not add up")

    def check(self, head: Head) -> None:
        """Whether all files that a copy needs are here, without reading them. Raises CopyIncomplete."""
        for stream in head.streams:
            for owner, part, segment, _ in self._parts(head, stream, stream.bytes):
                place = segment_path(owner.place.folder(self.root), part, segment)
                if not place.is_file():
                    raise _incomplete(owner, segment)

    def _bytes(self, head: Head, stream: Stream, count: int) -> Iterator[bytes]:
        for owner, part, segment, end in self._parts(head, stream, count):
            yield self._segment(owner, part, segment)[: end - segment.first]

    def _parts(self, head: Head, stream: Stream, count: int) -> list[tuple[Head, Stream, Segment, int]]:
        """The segments that make up the first ``count`` bytes, in order: whose they are, and up to which byte each is used."""
        found: list[tuple[Head, Stream, Segment, int]] = []
        owner, part = head, stream
        stood_on = {head.place}
        while len(stood_on) <= BASES_MAX:
            used = [segment for segment in part.segments if segment.first < count]
            found += [(owner, part, segment, min(segment.end, count)) for segment in reversed(used)]
            if part.base is None or not count:
                return found[::-1]
            count = min(count, part.base.bytes)
            owner, base = self._base(owner, part.base), part.base
            if owner.place in stood_on:
                break
            stood_on.add(owner.place)
            part = next((one for one in owner.streams if one.path == stream.path), Stream())
            if part.bytes < base.bytes:
                raise _incomplete(owner, None)
        raise CopyDamaged(f"the copy of {head.session} of device {head.device} stands on itself")

    def _base(self, head: Head, base: Base) -> Head:
        found = self.head(CopyPlace(head.tool, head.session, base.device, base.number))
        if found is None:
            raise _incomplete(head, None)
        return found

    def _segment(self, head: Head, stream: Stream, segment: Segment) -> bytes:
        path = segment_path(head.place.folder(self.root), stream, segment)
        try:
            data = read_segment(path, segment)
        except FileNotFoundError as error:
            raise _incomplete(head, segment) from error
        except (OSError, ValueError) as error:
            raise CopyDamaged(f"{path} cannot be read: {error}") from error
        return data


def read_segment(path: Path, segment: Segment) -> bytes:
    """A segment's content, verified. Raises OSError, and ValueError if it is not what the head says."""
    size = segment.end - segment.first
    if not 0 < size <= SEGMENT_BYTES_MAX:
        raise ValueError("its size is out of range")
    with open_regular(path) as file:
        packed = file.read(size + _PACKED_EXTRA_BYTES_MAX + 1)
    if len(packed) > size + _PACKED_EXTRA_BYTES_MAX:
        raise ValueError("it is too large")
    try:
        data = compression.decompress_at_most(packed, size)
    except Malformed as error:
        raise ValueError("it is not compressed as it should be") from error
    if len(data) != size or sha256(data).hexdigest() != segment.sha256:
        raise ValueError("its content is another one")
    return data


def read_head(path: Path) -> Head:
    """Raises OSError, ValueError."""
    with open_regular(path) as file:
        data = file.read(HEAD_BYTES_MAX + 1)
    if len(data) > HEAD_BYTES_MAX:
        raise ValueError("it is too large")
    return decode_head(data)


def heads_in(folder: Path, unreadable: list[UnreadableHead] | None = None) -> Iterator[Head]:
    """The heads of one session's directory that stand where they say."""
    for device in _folders(folder):
        for number in _folders(device):
            path = number / HEAD_NAME
            try:
                head = read_head(path)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                if unreadable is not None:
                    unreadable.append(UnreadableHead(path, str(error)))
                continue
            if head.place.folder(folder.parent.parent.parent) == number:
                yield head
            elif unreadable is not None:
                unreadable.append(UnreadableHead(path, "it stands in another's place"))


def _folders(folder: Path) -> list[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
    return []


def _incomplete(head: Head, segment: Segment | None) -> CopyIncomplete:
    what = "a part" if segment is None else f"bytes {segment.first} to {segment.end}"
    return CopyIncomplete(
        f"{what} of the copy of {head.session} of device {head.device} has not arrived here yet"
    )
