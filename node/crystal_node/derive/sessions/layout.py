"""Where the copies of sessions lie in the memory home, and what their heads say.

::

    sessions/<tool>/<session>/<device>/<number>/head.json                      what there is, written last
                                               /<first>-<end>-<sum>.zst        a segment: whole lines, zstd
                                               /side/<name>/<first>-<end>-<sum>.zst

Only the device that a directory is named after writes into it (and the Core, to take out what was forgotten), so that no two
writers meet at one file. ``number`` counts the device's own streams of the session, from 1: another one begins when the tool
rewrote its file, or when the device went on from another device's copy (``Base``). A stream only grows. A session's transcript
is the stream ``""``; the files beside it have their path as name.
"""

import re
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Annotated, NamedTuple

import msgspec

from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.agent_names import session_name
from crystal_node.base.decoding import from_json

FOLDER = "sessions"
HEAD_NAME = "head.json"
SIDE = "side"
SCHEMA = 1
TOOLS = ("claude-code", "codex", "gemini-cli", "openclaw", "qwen-code")
"""Whose sessions are copied."""
MAIN = ""
"""The name of the transcript's own stream."""
HEAD_BYTES_MAX = 4 * 1024 * 1024
SEGMENT_BYTES_MAX = 64 * 1024 * 1024
"""Of a segment's content."""
STREAM_BYTES_MAX = 2**40
SIDE_FILES_MAX = 2000
CHANGED_FILES_MAX = 100
SIDE_PATH_CHARS_MAX = 500
_SUM_CHARS = 8
_SIDE_CHARS = 16

Length = Annotated[int, msgspec.Meta(ge=0, le=STREAM_BYTES_MAX)]
Hex = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Device = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{8,64}$")]
Number = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Also a time in milliseconds."""

_SEGMENT = re.compile(r"\d{1,13}-\d{1,13}-[0-9a-f]{8}\.zst", re.ASCII)


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes ``first`` to ``end`` of a stream. ``sha256``: of these bytes; ``digest``: ``streams.LineDigest`` of the whole
    stream up to ``end``; ``packed``: size of the file. Hashes in hex."""

    first: Length
    end: Length
    sha256: Hex
    digest: Hex
    packed: Length = 0

    @property
    def file_name(self) -> str:
        return f"{self.first}-{self.end}-{self.sha256[:_SUM_CHARS]}.zst"


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """The stream that another one continues: its first ``bytes``, whose ``LineDigest`` is ``digest``."""

    device: Device
    number: Number
    bytes: Length
    digest: Hex


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a session. ``bytes`` and ``digest`` are of the whole of it, the base's part included. ``whole``: it is a
    file that is not appended to, and is replaced when it changed."""

    path: str = MAIN
    bytes: Length = 0
    digest: Hex = "0" * 64
    base: Base | None = None
    segments: tuple[Segment, ...] = ()
    whole: bool = False


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What one device says of its copy of a session. Times in milliseconds since 1970, 0 if unknown.

    ``tool_session``: the tool's own id where ``session`` is a file's name (Gemini CLI), else the same.
    ``native``: where the tool had the transcript, ``~`` for the person's home. ``cwd`` likewise. ``repository``: as projects
    are identified (``base.project``), "" if unknown. ``changed``: names of files with uncommitted changes; None: not known.
    ``exact``: nothing was redacted. ``rules``: version of the redaction rules for each part of the transcript, as
    (first byte, version). ``forgotten``: names the set of forgotten texts that it was rewritten without, 0 if it never was.
    ``removed``: its content was removed by the retention rules at that time.
    """

    schema: int = SCHEMA
    tool: str
    session: str
    device: Device
    number: Number
    tool_session: str = ""
    native: str = ""
    cwd: str = ""
    repository: str = ""
    branch: str = ""
    commit: str = ""
    changed: tuple[str, ...] | None = None
    tool_version: str = ""
    model: str = ""
    title: str = ""
    last_words: str = ""
    lines: Count = 0
    started_at: Count = 0
    updated_at: Count = 0
    exact: bool = False
    rules: tuple[tuple[int, int], ...] = ()
    forgotten: Count = 0
    left_out: Count = 0
    removed: Count = 0
    main: Stream = Stream()
    side: tuple[Stream, ...] = ()

    @property
    def place(self) -> "CopyPlace":
        return CopyPlace(self.tool, self.session, self.device, self.number)

    @property
    def streams(self) -> tuple[Stream, ...]:
        return (self.main, *self.side)

    @property
    def packed(self) -> int:
        """Bytes of all segment files."""
        return sum(segment.packed for stream in self.streams for segment in stream.segments)


class CopyPlace(NamedTuple):
    """Which copy: ``device`` in hex, ``number`` of the device's stream of that session."""

    tool: str
    session: str
    device: str
    number: int

    def folder(self, root: Path) -> Path:
        """Its directory below the memory home ``root``."""
        return session_folder(root, self.tool, self.session) / self.device / str(self.number)


def session_folder(root: Path, tool: str, session: str) -> Path:
    """The directory of all copies of a session."""
    return root / FOLDER / tool / session_name(session)


def segment_path(folder: Path, stream: Stream, segment: Segment) -> Path:
    """A segment's file in the directory of its copy."""
    return stream_folder(folder, stream.path) / segment.file_name


def stream_folder(folder: Path, path: str) -> Path:
    """Where a stream's segments lie. The names of side files are not used: programs obey some of them."""
    return folder / SIDE / sha256(path.encode()).hexdigest()[:_SIDE_CHARS] if path else folder


def is_segment_name(name: str) -> bool:
    return _SEGMENT.fullmatch(name) is not None


def side_path_fault(path: str) -> str | None:
    """Why a side file's path cannot be used on this or another machine; None if it can."""
    parts = PurePosixPath(path).parts
    if not path or len(path) > SIDE_PATH_CHARS_MAX or any(ord(char) < 32 for char in path):
        return "it is empty, too long, or has control characters"
    if path.startswith("/") or "\\" in path or ":" in path or ".." in parts or "/".join(parts) != path:
        return "it leaves its folder"
    return None


def encode_head(head: Head) -> bytes:
    return msgspec.json.encode(head) + b"\n"


def decode_head(data: bytes) -> Head:
    """Raises ValueError: it is none, of a later version, or does not hold together."""
    try:
        head = from_json(data, Head)
    except UNDECODABLE as error:
        raise ValueError("it is no head of a session's copy") from error
    if head.schema > SCHEMA:
        raise ValueError("a later version of Crystal wrote it")
    if (
        head.tool not in TOOLS
        or not head.session
        or head.main.path != MAIN
        or len(head.side) > SIDE_FILES_MAX
        or len(head.changed or ()) > CHANGED_FILES_MAX
    ):
        raise ValueError("it is no head of a session's copy")
    for stream in head.streams:
        _check_stream(stream)
    if any(side_path_fault(stream.path) for stream in head.side):
        raise ValueError("it names a file outside the session")
    if len({stream.path for stream in head.streams}) != 1 + len(head.side):
        raise ValueError("it names a file twice")
    return head


def _check_stream(stream: Stream) -> None:
    at = stream.base.bytes if stream.base is not None else 0
    for segment in stream.segments:
        if segment.first != at or not 0 < segment.end - segment.first <= SEGMENT_BYTES_MAX:
            raise ValueError("its segments do not follow each other")
        at = segment.end
    if at != stream.bytes:
        raise ValueError("its segments do not add up")
    last = stream.segments[-1].digest if stream.segments else stream.base.digest if stream.base else "0" * 64
    if last != stream.digest:
        raise ValueError("its sums contradict each other")
