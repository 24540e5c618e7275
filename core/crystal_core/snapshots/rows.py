"""The rows of a snapshot's part, with limits of numbers and names. `parts` encodes and decodes them."""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, NamedTuple

from msgspec import Meta

from crystal_core.schema import DIMENSIONS_MAX
from crystal_core.state.files import PACKED_PART_BYTES_MAX
from crystal_mirror.file_paths import PATH_BYTES_MAX
from crystal_mirror.operations import (
    DOCUMENT_PIECES_MAX,
    FILE_PARTS_MAX,
    MILLISECONDS_MAX,
    NAME_CHARS_MAX,
    PATTERNS_MAX,
    Confidence,
    DocumentPath,
    SourceName,
    Status,
)
from crystal_mirror.ports import SNAPSHOT_PART_BYTES_MAX
from crystal_mirror.types import DEVICE_ID_BYTES, HASH_BYTES, INCARNATION_BYTES

ROWS_MAX = 131_072
"""Rows of one kind in a part."""
WINDOWS_MAX = 65_535
"""Vectors of one chunk."""
VECTOR_BYTES_MAX = 2 * DIMENSIONS_MAX

Device = Annotated[bytes, Meta(min_length=DEVICE_ID_BYTES, max_length=DEVICE_ID_BYTES)]
Incarnation = Annotated[bytes, Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]
Hash = Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
Name = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
Index = Annotated[int, Meta(ge=0, le=2 * ROWS_MAX)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
Difference = Annotated[int, Meta(ge=-MILLISECONDS_MAX, le=MILLISECONDS_MAX)]
Length = Annotated[int, Meta(ge=0, le=SNAPSHOT_PART_BYTES_MAX)]
HashOrNone = Annotated[bytes, Meta(max_length=HASH_BYTES)]
Patterns = Annotated[list[Name], Meta(max_length=PATTERNS_MAX)]
Pieces = Annotated[int, Meta(ge=0, le=DOCUMENT_PIECES_MAX)]
Column = Meta(max_length=ROWS_MAX)

Stream = tuple[Device, Incarnation, Number]


class PlaceRow(NamedTuple):
    """The fields that the occurrences of one capture share."""

    agent: str
    session: str
    project: str
    repository: str
    source: str
    device: bytes


class MemoryRow(NamedTuple):
    """A memory of the chunk of that number."""

    chunk: int
    category: str
    agent: str
    created_at: int
    device: bytes
    confidence: int
    status: Status
    superseded_by: bytes
    changed_at: int
    scope: str = ""


class WrittenChangeRow(NamedTuple):
    """A memory before a change, without its scope, as it is written; its chunk is named as by an occurrence."""

    chunk: Index
    number: Number
    kind: Name
    category: Name
    confidence: Confidence
    status: Status
    superseded_by: HashOrNone
    agent: Name
    at: Number
    device: Device


class MemoryChangeRow(NamedTuple):
    """A memory before a change."""

    chunk: int
    number: int
    kind: str
    category: str
    confidence: int
    status: Status
    superseded_by: bytes
    agent: str
    at: int
    device: bytes
    scope: str = ""


class LinkRow(NamedTuple):
    """Two linked projects, the lesser of the two first."""

    folder: Name
    repository: Name
    other_folder: Name
    other_repository: Name
    device: Device
    at: Number


class SourceRow(NamedTuple):
    """A source of documents."""

    name: SourceName
    device: Device
    root: Name
    include: Patterns
    exclude: Patterns
    at: Number


class DocumentRow(NamedTuple):
    """A document; it comes before its places."""

    source: SourceName
    path: DocumentPath
    version: Hash
    kind: Name
    modified_at: Number
    total: Pieces
    came: Pieces


class DocumentPartRow(NamedTuple):
    """The chunk in one place of a document. ``source``, ``path`` and ``title`` are whole here, numbers on the wire."""

    source: str
    path: str
    part: int
    title: str
    chunk: int


class FileVersionRow(NamedTuple):
    """A row of the tree; `parts` are packed."""

    path: Annotated[str, Meta(min_length=1, max_length=PATH_BYTES_MAX)]
    device: Device
    incarnation: Incarnation
    sequence: Number
    executable: bool
    modified_at: Number
    gone: bool
    parts: Annotated[bytes, Meta(max_length=FILE_PARTS_MAX * PACKED_PART_BYTES_MAX)]


@dataclass(slots=True)
class PartRows:
    """The rows of a part. Chunks and occurrences are columns: the n-th items of the lists belong together."""

    texts: list[bytes] = field(default_factory=list[bytes])
    """UTF-8."""
    strings: list[str] = field(default_factory=list[str])
    """The same texts, in a decoded part."""
    windows: list[int] = field(default_factory=list[int])
    vector_bytes: int = 0
    vectors: bytes = b""
    known: list[bytes] = field(default_factory=list[bytes])
    places: list[PlaceRow] = field(default_factory=list[PlaceRow])
    chunk_of: list[int] = field(default_factory=list[int])
    place_of: list[int] = field(default_factory=list[int])
    messages: list[str] = field(default_factory=list[str])
    pieces: list[int] = field(default_factory=list[int])
    roles: list[str] = field(default_factory=list[str])
    moments: list[int] = field(default_factory=list[int])
    models: list[str] = field(default_factory=list[str])
    memories: list[MemoryRow] = field(default_factory=list[MemoryRow])
    suppressed: list[bytes] = field(default_factory=list[bytes])
    acks: list[Stream] = field(default_factory=list[Stream])
    sparse: list[Stream] = field(default_factory=list[Stream])
    files: list[FileVersionRow] = field(default_factory=list[FileVersionRow])
    condemned: list[bytes] = field(default_factory=list[bytes])

    memory_changes: list[MemoryChangeRow] = field(default_factory=list[MemoryChangeRow])
    sources: list[SourceRow] = field(default_factory=list[SourceRow])
    documents: list[DocumentRow] = field(default_factory=list[DocumentRow])
    document_parts: list[DocumentPartRow] = field(default_factory=list[DocumentPartRow])
    project_links: list[LinkRow] = field(default_factory=list[LinkRow])
    document_of: dict[int, int] = field(default_factory=dict[int, int])
    """For a chunk without a session, a number that the chunks of one document share. Only for writing."""

    def contents(self) -> list[bytes]:
        """Return the content hashes of its chunks."""
        return [sha256(text).digest() for text in self.texts]
