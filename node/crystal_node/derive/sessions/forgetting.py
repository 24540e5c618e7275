"""Taking forgotten texts out of a copy that is there already.

The memory knows a forgotten text by its hash only. So the copy's lines are read as capture reads them, and the memory is asked
which of their texts it has forgotten. These are blanked wherever they stand in the copy, also in the files beside the
transcript. A device does so in its own copies, and the Core in those of devices that are away.
"""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from msgspec import structs

from crystal_core.cutting.messages import split_message
from crystal_node.capture.context import Context
from crystal_node.capture.line_adapter import LineAdapter, LinePosition
from crystal_node.capture.messages import TranscriptMessage
from crystal_node.capture.private_words import without_private
from crystal_node.capture.redaction import redact
from crystal_node.derive.sessions.copies import SessionCopies
from crystal_node.derive.sessions.facts import short
from crystal_node.derive.sessions.layout import Base, Head, Segment, Stream
from crystal_node.derive.sessions.line_redaction import blank, blank_strings
from crystal_node.derive.sessions.segments import put_segment, tidy, write_head
from crystal_node.derive.sessions.streams import LineDigest

FORGOTTEN = "[forgotten]"

Candidates = dict[bytes, str]
"""What was said in a copy, as the memory has it, by its SHA-256 hash."""


def texts_in(copies: SessionCopies, head: Head, adapter: LineAdapter) -> Candidates:
    """All that was said in a copy, and in the sub-agents' transcripts beside it. Raises CopyIncomplete, CopyDamaged."""
    found: Candidates = {}
    for stream in head.streams:
        if stream.path and not stream.path.endswith(".jsonl"):
            continue
        context = Context()
        for line in _lines(copies.read(head, stream.path, base_blanked=True)):
            found |= _texts(adapter, line, context, stream.path)
    return found


def forget_in(
    copies: SessionCopies, head: Head, adapter: LineAdapter, forgotten: set[bytes], forgets: int
) -> bool:
    """Rewrites a copy without the forgotten texts, and notes which forgets it has followed. Returns whether it had any.

    What it stands on may have been rewritten before it: its sums follow that, also where it has nothing to lose itself.

    Raises OSError, CopyIncomplete, CopyDamaged.
    """
    candidates = texts_in(copies, head, adapter) if forgotten else {}
    lost = {candidates[mark] for mark in forgotten if mark in candidates}
    folder = head.place.folder(copies.root)
    if lost or any(stream.base is not None for stream in head.streams):
        streams = [_rewritten(copies, head, stream, adapter, lost, forgotten) for stream in head.streams]
        head = structs.replace(
            head,
            main=streams[0],
            side=tuple(streams[1:]),
            title=_told(head.title, lost),
            last_words=_told(head.last_words, lost),
        )
    write_head(copies.root, structs.replace(head, forgotten=forgets))
    if lost:
        tidy(folder, head, older_than=float("inf"))
    return bool(lost)


def _rewritten(
    copies: SessionCopies,
    head: Head,
    stream: Stream,
    adapter: LineAdapter,
    lost: set[str],
    forgotten: set[bytes],
) -> Stream:
    """The stream with its own segments rewritten. Its base is rewritten by the device that it belongs to; the base's
    digest here is that of the blanked content already."""
    digest, context = LineDigest(), Context()
    at = stream.base.bytes if stream.base is not None else 0
    base: Base | None = stream.base
    segments: list[Segment] = []
    own = iter(stream.segments)
    pending = b""
    for data in copies.read(head, stream.path, base_blanked=True):
        pending += data
        while digest.bytes < at and pending:
            part, pending = pending[: at - digest.bytes], pending[at - digest.bytes :]
            digest.lines(_blanked(part, stream, adapter, context, lost, forgotten))
        if base is not None and digest.bytes == base.bytes and not segments:
            base = structs.replace(base, digest=digest.hex)
        while digest.bytes >= at and pending:
            segment = next(own)
            part, pending = pending[: segment.end - segment.first], pending[segment.end - segment.first :]
            done = _blanked(part, stream, adapter, context, lost, forgotten)
            digest.lines(done)
            if done == part:
                segments.append(structs.replace(segment, digest=digest.hex))
            else:
                folder = head.place.folder(copies.root)
                segments.append(
                    put_segment(folder, stream.path, segment.first, done, digest.hex, settled=True)
                )
    return structs.replace(stream, segments=tuple(segments), base=base, digest=digest.hex)


def _blanked(
    data: bytes, stream: Stream, adapter: LineAdapter, context: Context, lost: set[str], forgotten: set[bytes]
) -> bytes:
    if stream.whole:
        return blank(data, lost)
    done: list[bytes] = []
    for line in _lines(iter([data])):
        without = blank(line, lost)
        mine = forgotten & _texts(adapter, line, context, stream.path).keys()
        done.append(blank_strings(without) if mine and without == line else without)
    return b"".join(done)


def _texts(adapter: LineAdapter, line: bytes, context: Context, path: str) -> Candidates:
    found: Candidates = {}
    for one in adapter.said(line.rstrip(b"\r\n"), context, LinePosition(Path(path or "session.jsonl"), 0)):
        if isinstance(one, TranscriptMessage):
            for role, text in one.texts.items():
                kept = redact(without_private(text) if role == "user" else text).text
                found.update((sha256(piece.encode()).digest(), piece) for piece in split_message(kept))
    return found


def _told(text: str, lost: set[str]) -> str:
    """A title or last words, which may be shortened from a forgotten text."""
    for each in lost:
        whole = short(each, len(each))
        if whole and (whole in text or (text and text in whole)):
            return FORGOTTEN
    return text


def _lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Lines with their ends; blocks end with one, except the last."""
    for block in blocks:
        *complete, last = block.split(b"\n")
        yield from (line + b"\n" for line in complete)
        if last:
            yield last
