"""Files that the Core makes from the memory: their places below the home, and the seal by which they are recognised.

The seal is the last line of every such file: a hash of all that stands before it. It tells on any machine whether a file is
as Crystal made it or was changed by a person. It is no protection: anybody who edits a file can write the hash as well. Names
come from ``base.agent_names`` alone.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from crystal_node.base.agent_names import folder_name, session_name

BLOCK_BYTES = 256 * 1024
SEAL_BYTES_MAX = 200
"""Longer than any seal with its line end."""


class ArtefactForm(StrEnum):
    """How the last line is written, so that the file stays one of its kind."""

    JSON_LINES = "json-lines"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True)
class ArtefactPlace:
    """A file below the home, and how its last line is written."""

    path: str
    form: ArtefactForm


class ArtefactState(StrEnum):
    """What stands in an artefact's place."""

    ABSENT = "absent"
    OURS = "ours"
    CHANGED = "changed"
    """Not as it was made, or not made by Crystal."""


@dataclass(frozen=True, slots=True)
class ArtefactLook:
    """``digest``: SHA-256 of the content of a file that is ours, in hex."""

    state: ArtefactState
    digest: str = ""


ABSENT = ArtefactLook(ArtefactState.ABSENT)
CHANGED = ArtefactLook(ArtefactState.CHANGED)

_SEAL = re.compile(
    rb'(?:\{"type":"end","sha256":"(?P<json>[0-9a-f]{64})"\}'
    rb"|<!-- Made by Crystal from the memory; sha256 (?P<markdown>[0-9a-f]{64}) -->)\n"
)


def seal_line(form: ArtefactForm, digest: str) -> bytes:
    if form is ArtefactForm.JSON_LINES:
        return b'{"type":"end","sha256":"%s"}\n' % digest.encode()
    return b"<!-- Made by Crystal from the memory; sha256 %s -->\n" % digest.encode()


def sealed(content: Iterable[bytes], form: ArtefactForm) -> Iterator[bytes]:
    """Yields the content, which ends with a line end, and its seal."""
    digest = sha256()
    for block in content:
        digest.update(block)
        yield block
    yield seal_line(form, digest.hexdigest())


def look_at(descriptor: int) -> ArtefactLook:
    """Checks the seal of an open file. Raises OSError."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, SEAL_BYTES_MAX, max(size - SEAL_BYTES_MAX, 0))
    start = tail.rfind(b"\n", 0, len(tail) - 1) + 1
    found = _SEAL.fullmatch(tail[start:])
    if found is None:
        return CHANGED
    left = size - (len(tail) - start)
    digest, at = sha256(), 0
    while at < left:
        block = os.pread(descriptor, min(BLOCK_BYTES, left - at), at)
        if not block:
            return CHANGED
        digest.update(block)
        at += len(block)
    said = (found["json"] or found["markdown"]).decode()
    return ArtefactLook(ArtefactState.OURS, said) if digest.hexdigest() == said else CHANGED


def is_as_made(path: Path) -> bool:
    """Whether a file has an intact seal. False for links and for what cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return look_at(descriptor).state is ArtefactState.OURS
    except OSError:
        return False
    finally:
        os.close(descriptor)


_NAME = "[a-z0-9][a-z0-9._-]*"
_MADE = re.compile(
    rf"agents/{_NAME}/memory/(?:transcripts/{_NAME}\.jsonl|sessions/(?:\d{{4}}-\d\d-\d\d|undated)-{_NAME}\.md"
    r"|daily/\d{4}-\d\d-\d\d\.md)"
)


_SEGMENT = re.compile(
    r"(?P<folder>sessions/[a-z-]{1,40}/[^/]{1,100}/[0-9a-f]{8,64}/\d{1,9})(?:/side/[0-9a-f]{16})?"
    r"/(?P<first>\d{1,13})-(?P<end>\d{1,13})-(?P<sum>[0-9a-f]{8})\.zst"
)
"""A part of the copy of a session, as ``derive.sessions.layout`` names them."""
_HEAD_BYTES_MAX = 4 * 1024 * 1024


def staged_transcript(agent: str, session: str) -> ArtefactPlace:
    return ArtefactPlace(
        f"{staging_folder(agent)}/transcripts/{session_name(session)}.jsonl", ArtefactForm.JSON_LINES
    )


def transcript_place(agent: str, session: str) -> ArtefactPlace:
    return ArtefactPlace(
        f"{_memory(agent)}/transcripts/{session_name(session)}.jsonl", ArtefactForm.JSON_LINES
    )


def summary_place(agent: str, session: str, day: str) -> ArtefactPlace:
    return ArtefactPlace(f"{_memory(agent)}/sessions/{summary_name(session, day)}", ArtefactForm.MARKDOWN)


def summary_name(session: str, day: str) -> str:
    return f"{day}-{session_name(session)}.md"


def daily_place(agent: str, day: str) -> ArtefactPlace:
    return ArtefactPlace(f"{_memory(agent)}/daily/{day}.md", ArtefactForm.MARKDOWN)


def staging_folder(agent: str) -> str:
    return f"staging/{folder_name(agent)}"


def is_made_here(path: str) -> bool:
    """Whether a path of the home is one that the Core makes; such a file is made again when a text in it is forgotten."""
    return _MADE.fullmatch(path) is not None


def is_superseded_segment(root: Path, path: str) -> bool:
    """Whether a path is a segment of a session's copy that the head beside it, which is there, names no more: its content
    stands in another segment, or was forgotten."""
    found = _SEGMENT.fullmatch(path)
    if found is None:
        return False
    first, end, digest = found["first"], found["end"], found["sum"]
    try:
        descriptor = os.open(
            root / found["folder"] / "head.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
        with os.fdopen(descriptor, "rb") as file:
            head = file.read(_HEAD_BYTES_MAX + 1)
    except OSError:
        return False
    whole = head.startswith(b"{") and head.endswith(b"}\n") and len(head) <= _HEAD_BYTES_MAX
    return whole and f'"first":{first},"end":{end},"sha256":"{digest}'.encode() not in head


def _memory(agent: str) -> str:
    return f"agents/{folder_name(agent)}/memory"
