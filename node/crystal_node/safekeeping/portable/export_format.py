"""The lines of an export: JSON that any program can read. docs/export.md describes it.

    manifest.json         what is there, and the SHA-256 of each of these files
    conversations.jsonl   one message, or piece of a long one, per line, in the memory's order
    memories.jsonl        one memory per line
    sources.jsonl         one source of documents per line
    documents.jsonl       one document per line, with its pieces
    files/…               the files of the memory home

Times are milliseconds since 1970, 0 if unknown. Readers ignore unknown fields.
"""

from typing import Annotated

from msgspec import Meta, Struct

from crystal_mirror.operations import CONFIDENCE_MAX, MODEL_CHARS_MAX, NAME_CHARS_MAX

FORMAT = "crystal-export"
VERSION = 1
MANIFEST = "manifest.json"
CONVERSATIONS = "conversations.jsonl"
MEMORIES = "memories.jsonl"
SOURCES = "sources.jsonl"
DOCUMENTS = "documents.jsonl"
FILES = "files"

MANIFEST_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 64 * 1024 * 1024
"""The longest line is a document with all its pieces."""

_Name = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
_Moment = Annotated[int, Meta(ge=0, le=2**53)]


class PieceRecord(Struct, frozen=True, kw_only=True):
    """A message, or a piece of one. ``text`` may have any length: the import splits it. ``model``: the language model that
    said it, "" if unknown."""

    text: Annotated[str, Meta(min_length=1)]
    agent: _Name
    session: _Name
    role: _Name
    message: _Name = ""
    part: Annotated[int, Meta(ge=0, le=2**31)] = 0
    created_at: _Moment = 0
    project: _Name = ""
    repository: _Name = ""
    source: _Name = ""
    model: Annotated[str, Meta(max_length=MODEL_CHARS_MAX)] = ""


class MemoryRecord(Struct, frozen=True, kw_only=True):
    """A memory. ``superseded_by``: the id of its successor (SHA-256 of its text, hex), "" for none. ``scope``: the project that
    it is for, by its repository or else its folder, "" for everywhere."""

    text: Annotated[str, Meta(min_length=1)]
    category: _Name = "fact"
    confidence: Annotated[int, Meta(ge=0, le=CONFIDENCE_MAX)] = CONFIDENCE_MAX
    status: str = "active"
    superseded_by: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?$")] = ""
    agent: _Name = ""
    created_at: _Moment = 0
    scope: _Name | None = None


class SourceRecord(Struct, frozen=True, kw_only=True):
    """A source of documents."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    root: _Name = ""
    include: tuple[_Name, ...] = ()
    exclude: tuple[_Name, ...] = ()


class DocumentPieceRecord(Struct, frozen=True, kw_only=True):
    """A piece of a document under its title."""

    text: Annotated[str, Meta(min_length=1)]
    title: _Name = ""


class DocumentRecord(Struct, frozen=True, kw_only=True):
    """A document of a source. ``version``: the SHA-256 of what was read, hex."""

    source: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    path: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    version: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
    kind: _Name = ""
    modified_at: _Moment = 0
    pieces: tuple[DocumentPieceRecord, ...] = ()


class FileRecord(Struct, frozen=True, kw_only=True):
    """A file of the home below ``files/``. ``sha256``: "" if the exporting device did not have it; then it is not here."""

    path: str
    size: Annotated[int, Meta(ge=0)]
    sha256: str


class PartRecord(Struct, frozen=True, kw_only=True):
    """One of the line files."""

    lines: Annotated[int, Meta(ge=0)]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]


class ExportManifest(Struct, frozen=True, kw_only=True):
    """``manifest.json``."""

    format: str
    version: int
    made_at: str
    device: str
    parts: dict[str, PartRecord]
    files: list[FileRecord]
