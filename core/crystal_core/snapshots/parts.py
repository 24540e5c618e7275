"""Encoding of a snapshot's part: rows of the replicated state in columns, without rowids.

A part is one MessagePack array (`_Wire`). Repeated names (agents, sessions, roles, projects) are stored once and referred to by
number, and so are devices and the places that occurrences share. A zstd frame never has the texts of two sessions, so that its
size reveals nothing about the content of another. Vectors are stored as they are, because they do not compress.

An occurrence names its chunk by number: that of a chunk of this part, or, counted on, of `known`, the content hashes of
chunks in parts before this one. Message ids that are UUIDs are 16 bytes; what an id shares with the one before it is left out.

Reading is strict: counts, lengths and sums are checked before anything is decompressed or allocated, or Malformed is raised.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from crystal_core.snapshots.message_ids import CODE_MAX, restored, shortened
from crystal_core.snapshots.rows import (
    VECTOR_BYTES_MAX,
    WINDOWS_MAX,
    Column,
    Device,
    Difference,
    DocumentPartRow,
    DocumentRow,
    FileVersionRow,
    Hash,
    HashOrNone,
    Index,
    Length,
    LinkRow,
    MemoryChangeRow,
    MemoryRow,
    Name,
    Number,
    PartRows,
    Pieces,
    PlaceRow,
    SourceRow,
    Stream,
    WrittenChangeRow,
)
from crystal_core.state.files import unpack_parts
from crystal_crypto.compression import compress, decompress
from crystal_crypto.errors import UNDECODABLE, Malformed
from crystal_mirror.file_paths import check_path
from crystal_mirror.operations import (
    CONFIDENCE_MAX,
    FILE_PART_BYTES_MAX,
    FILE_PARTS_MAX,
    MILLISECONDS_MAX,
    MODEL_CHARS_MAX,
    PIECE_BYTES_MAX,
    Confidence,
    Status,
    check_projects,
    check_words,
)
from crystal_mirror.ports import SNAPSHOT_PART_BYTES_MAX
from crystal_mirror.types import HASH_BYTES

_FLOAT16_BYTES = 2
_EXPONENT = 0x7C00
"""Mask of a float16's exponent; all bits set mean infinity or NaN."""

_FIRST_STATE: tuple[int, Status, bytes] = (CONFIDENCE_MAX, "active", b"")


class _Wire(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: Literal[1]
    names: Annotated[list[Name], Column]
    devices: Annotated[list[Device], Column]
    frames: Annotated[list[bytes], Column]
    frame_lengths: Annotated[list[Length], Column]
    frame_of: Annotated[list[Index], Column]
    text_lengths: Annotated[list[Annotated[int, Meta(ge=1, le=PIECE_BYTES_MAX)]], Column]
    windows: Annotated[list[Annotated[int, Meta(ge=0, le=WINDOWS_MAX)]], Column]
    vector_bytes: Annotated[int, Meta(ge=0, le=VECTOR_BYTES_MAX)]
    vectors: bytes
    known: Annotated[list[Hash], Column]
    places: Annotated[list[tuple[Index, Index, Index, Index, Index, Index]], Column]
    chunk_of: Annotated[list[Index], Column]
    place_of: Annotated[list[Index], Column]
    uuids: bytes
    tails: Annotated[list[Name], Column]
    messages: Annotated[list[Annotated[int, Meta(ge=0, le=CODE_MAX)]], Column]
    pieces: Annotated[list[Annotated[int, Meta(ge=0, le=2**31)]], Column]
    roles: Annotated[list[Index], Column]
    moments: Annotated[list[Difference], Column]
    memories: Annotated[list[tuple[Index, Index, Index, Number, Index]], Column]
    suppressed: Annotated[list[Hash], Column]
    acks: Annotated[list[Stream], Column]
    sparse: Annotated[list[Stream], Column]
    files: Annotated[list[FileVersionRow], Column]
    condemned: Annotated[list[Hash], Column]
    memory_states: Annotated[list[tuple[Index, Confidence, Status, HashOrNone, Number]], Column] = []
    memory_changes: Annotated[list[WrittenChangeRow], Column] = []
    sources: Annotated[list[SourceRow], Column] = []
    documents: Annotated[list[DocumentRow], Column] = []
    document_parts: Annotated[list[tuple[Index, Index, Pieces, Index, Index]], Column] = []
    memory_scopes: Annotated[list[tuple[Index, Index]], Column] = []
    change_scopes: Annotated[list[tuple[Index, Index]], Column] = []
    project_links: Annotated[list[LinkRow], Column] = []
    models: Annotated[list[Index], Column] = []


_WITHOUT_SCOPES = 31
"""Elements of a part from before there were scopes, linked projects and models; the later ones are left out where they are
empty."""


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[_Wire] = msgspec.msgpack.Decoder(_Wire)


def encode_part(rows: PartRows) -> bytes:
    """Encode a part. Equal rows give equal bytes.

    Raises ValueError for rows that do not fit one part.
    """
    names: dict[str, int] = {}
    devices: dict[bytes, int] = {}

    def name(text: str) -> int:
        return names.setdefault(text, len(names))

    def device(value: bytes) -> int:
        return devices.setdefault(value, len(devices))

    frame_of, plain = _frames(rows)
    frames = [compress(data) or data for data in plain]
    uuids, tails, messages = shortened(rows.messages)
    wire = _Wire(
        version=1,
        names=[],
        devices=[],
        frames=frames,
        frame_lengths=[len(data) for data in plain],
        frame_of=frame_of,
        text_lengths=[len(text) for text in rows.texts],
        windows=rows.windows,
        vector_bytes=rows.vector_bytes,
        vectors=rows.vectors,
        known=rows.known,
        places=[
            (name(agent), name(session), name(project), name(repository), name(source), device(where))
            for agent, session, project, repository, source, where in rows.places
        ],
        chunk_of=rows.chunk_of,
        place_of=rows.place_of,
        uuids=uuids,
        tails=tails,
        messages=messages,
        pieces=rows.pieces,
        roles=[name(role) for role in rows.roles],
        moments=_differences(rows.moments),
        memories=[
            (
                memory.chunk,
                name(memory.category),
                name(memory.agent),
                memory.created_at,
                device(memory.device),
            )
            for memory in rows.memories
        ],
        suppressed=rows.suppressed,
        acks=rows.acks,
        sparse=rows.sparse,
        files=rows.files,
        condemned=rows.condemned,
        memory_states=[
            (number, memory.confidence, memory.status, memory.superseded_by, memory.changed_at)
            for number, memory in enumerate(rows.memories)
            if _is_changed(memory)
        ],
        memory_changes=[WrittenChangeRow(*change[:-1]) for change in rows.memory_changes],
        sources=rows.sources,
        documents=rows.documents,
        document_parts=[
            (name(source), name(path), part, name(title), chunk)
            for source, path, part, title, chunk in rows.document_parts
        ],
        memory_scopes=[(n, name(row.scope)) for n, row in enumerate(rows.memories) if row.scope],
        change_scopes=[(n, name(row.scope)) for n, row in enumerate(rows.memory_changes) if row.scope],
        project_links=rows.project_links,
        models=[name(model) for model in rows.models] if any(rows.models) else [],
    )
    elements = list(
        msgspec.structs.astuple(msgspec.structs.replace(wire, names=list(names), devices=list(devices)))
    )
    while len(elements) > _WITHOUT_SCOPES and not elements[-1]:  # §13.1-3
        elements.pop()
    data = _encoder.encode(elements)
    if len(data) > SNAPSHOT_PART_BYTES_MAX:
        raise ValueError(f"a part of {len(data)} bytes is over the limit of {SNAPSHOT_PART_BYTES_MAX}")
    return data


def decode_part(data: bytes) -> PartRows:
    """Decode a part. Raises Malformed."""
    if len(data) > SNAPSHOT_PART_BYTES_MAX:
        raise Malformed("a part of a snapshot is over the limit")  # §13.2-1
    try:
        wire = _decoder.decode(data)  # §13.1-1
        texts = _texts(wire)
        _check_counts(wire, len(texts))
        names, devices = wire.names, wire.devices
        return PartRows(
            texts=texts,
            strings=[text.decode() for text in texts],
            windows=wire.windows,
            vector_bytes=wire.vector_bytes,
            vectors=wire.vectors,
            known=wire.known,
            places=[
                PlaceRow(
                    names[agent],
                    names[session],
                    names[project],
                    names[repository],
                    names[source],
                    devices[where],
                )
                for agent, session, project, repository, source, where in wire.places
            ],
            chunk_of=wire.chunk_of,
            place_of=wire.place_of,
            messages=restored(wire.uuids, wire.tails, wire.messages),
            pieces=wire.pieces,
            roles=[names[role] for role in wire.roles],
            moments=_sums(wire.moments),
            models=_models(wire),
            memories=_memories(wire),
            suppressed=wire.suppressed,
            acks=wire.acks,
            sparse=wire.sparse,
            files=[_checked_file(row) for row in wire.files],
            condemned=wire.condemned,
            memory_changes=_changes(wire),
            sources=[_checked_source(row) for row in wire.sources],
            documents=[_checked_document(row) for row in wire.documents],
            document_parts=[
                DocumentPartRow(names[source], names[path], part, names[title], chunk)
                for source, path, part, title, chunk in wire.document_parts
            ],
            project_links=[_checked_link(row) for row in wire.project_links],
        )
    except (UnicodeError, IndexError, *UNDECODABLE) as error:
        raise Malformed(f"not a part of a snapshot: {type(error).__name__}") from error


def _frames(rows: PartRows) -> tuple[list[int], list[bytes]]:
    """Return each chunk's frame number, and the frames: one per session, one per document, one per other chunk."""
    session_of: dict[int, tuple[str, str]] = {}
    count = len(rows.texts)
    for chunk, place in zip(rows.chunk_of, rows.place_of, strict=True):
        if chunk < count and chunk not in session_of:
            session_of[chunk] = rows.places[place][:2]
    numbers: dict[tuple[object, ...], int] = {}
    frame_of: list[int] = []
    for chunk in range(count):
        document = rows.document_of.get(chunk)
        key = session_of.get(chunk, (chunk,) if document is None else (None, document))  # §13.3-1
        frame_of.append(numbers.setdefault(key, len(numbers)))
    frames: list[list[bytes]] = [[] for _ in numbers]
    for number, text in zip(frame_of, rows.texts, strict=True):
        frames[number].append(text)
    return frame_of, [b"".join(frame) for frame in frames]


def _texts(wire: _Wire) -> list[bytes]:
    """Return the chunks' texts."""
    if not len(wire.frames) == len(wire.frame_lengths) or not len(wire.frame_of) == len(wire.text_lengths):
        raise Malformed("the columns of a part have different lengths")
    if sum(wire.frame_lengths) > SNAPSHOT_PART_BYTES_MAX:  # §13.2-1
        raise Malformed("the texts of a part are over the limit")
    used = [0] * len(wire.frames)
    for number, length in zip(wire.frame_of, wire.text_lengths, strict=True):
        used[number] += length
    if used != wire.frame_lengths:  # §13.2-2
        raise Malformed("a frame of a part does not have the length of its texts")
    frames = [
        frame if len(frame) == length else decompress(frame, length)
        for frame, length in zip(wire.frames, wire.frame_lengths, strict=True)
    ]
    at = [0] * len(frames)
    texts: list[bytes] = []
    for number, length in zip(wire.frame_of, wire.text_lengths, strict=True):
        start = at[number]
        at[number] = start + length
        texts.append(frames[number][start : start + length])
    return texts


def _check_counts(wire: _Wire, chunks: int) -> None:
    if len(wire.windows) != chunks or sum(wire.windows) * wire.vector_bytes != len(wire.vectors):
        raise Malformed("the vectors of a part do not have the size that it states")
    if wire.vectors:
        _check_vectors(wire)
    elif any(wire.windows):
        raise Malformed("a part has vectors without numbers")
    columns = (wire.place_of, wire.messages, wire.pieces, wire.roles, wire.moments)
    if any(len(column) != len(wire.chunk_of) for column in columns):
        raise Malformed("the columns of a part have different lengths")
    if max(wire.chunk_of, default=-1) >= chunks + len(wire.known):  # §13.2-2
        raise Malformed("a part names a chunk that it does not have")
    if max(wire.place_of, default=-1) >= len(wire.places):  # §13.2-2
        raise Malformed("a part names a place that it does not have")
    named: Iterable[int] = (
        *(change.chunk for change in wire.memory_changes),
        *(row[-1] for row in wire.document_parts),
    )
    if max(named, default=-1) >= chunks + len(wire.known):
        raise Malformed("a part names a chunk that it does not have")
    if max((memory[0] for memory in wire.memories), default=-1) >= chunks:
        raise Malformed("a part names a chunk that it does not have")


def _check_vectors(wire: _Wire) -> None:
    import numpy as np

    if wire.vector_bytes % _FLOAT16_BYTES:
        raise Malformed("a part has vectors that are not of float16 numbers")
    if (np.frombuffer(wire.vectors, "<u2") & _EXPONENT == _EXPONENT).any():  # §13.2-2
        raise Malformed("a part has a vector with a value that is not a finite number")


def _models(wire: _Wire) -> list[str]:
    """The model of each occurrence."""
    models = [wire.names[number] for number in wire.models] or [""] * len(wire.chunk_of)
    if len(models) != len(wire.chunk_of):
        raise Malformed("the columns of a part have different lengths")
    named = set(models)
    check_words(*named)
    if max(map(len, named), default=0) > MODEL_CHARS_MAX:
        raise Malformed("the name of a model is over the limit")
    return models


def _memories(wire: _Wire) -> list[MemoryRow]:
    names, devices = wire.names, wire.devices
    memories = [
        MemoryRow(chunk, names[category], names[agent], created_at, devices[where], *_FIRST_STATE, created_at)
        for chunk, category, agent, created_at, where in wire.memories
    ]
    for number, confidence, status, superseded_by, changed_at in wire.memory_states:
        _check_successor(superseded_by)
        memories[number] = MemoryRow(*memories[number][:5], confidence, status, superseded_by, changed_at)
    for number, scope in wire.memory_scopes:
        check_words(names[scope])
        memories[number] = memories[number]._replace(scope=names[scope])
    return memories


def _is_changed(memory: MemoryRow) -> bool:
    return memory[5:9] != (*_FIRST_STATE, memory.created_at)


def _changes(wire: _Wire) -> list[MemoryChangeRow]:
    changes = [MemoryChangeRow(*row) for row in wire.memory_changes]
    for change in changes:
        _check_successor(change.superseded_by)
    for number, scope in wire.change_scopes:
        check_words(wire.names[scope])
        changes[number] = changes[number]._replace(scope=wire.names[scope])
    return changes


def _check_successor(superseded_by: bytes) -> None:
    if len(superseded_by) not in (0, HASH_BYTES):
        raise Malformed("what took a memory's place is named by a keyed hash")


def _checked_link(row: LinkRow) -> LinkRow:
    check_projects(row[:2], row[2:4])
    if row[:2] > row[2:4]:  # §13.2-3
        raise Malformed("linked projects of a snapshot are not in order")
    return row


def _checked_source(row: SourceRow) -> SourceRow:
    check_words(row.name)
    return row


def _checked_document(row: DocumentRow) -> DocumentRow:
    check_words(row.source, row.path)
    if row.came > row.total:  # §13.2-3
        raise Malformed("a document of a snapshot has more pieces than it states")
    return row


def _checked_file(row: FileVersionRow) -> FileVersionRow:
    check_path(row.path)
    try:
        parts = unpack_parts(row.parts)
    except struct.error:
        raise Malformed("a file of a snapshot has parts that are none") from None
    if (row.gone and parts) or len(parts) > FILE_PARTS_MAX:  # §13.2-3
        raise Malformed("a file of a snapshot has parts that are none, or too many")
    if any(not 1 <= part.length <= FILE_PART_BYTES_MAX for part in parts):
        raise Malformed("a part of a file is empty or over the limit")
    return row


def _differences(moments: Sequence[int]) -> list[int]:
    return [after - before for before, after in zip((0, *moments), moments, strict=False)]


def _sums(differences: Sequence[int]) -> list[int]:
    moments = list(accumulate(differences))
    if moments and not (min(moments) >= 0 and max(moments) <= MILLISECONDS_MAX):
        raise Malformed("a moment of a part is out of range")
    return moments
