"""Operations: what devices do to the vault's memory, as values and as bytes.

The bytes of an operation never change: they travel in the maker's stream, stand verbatim in the mirror, and are offered
again verbatim if a log was lost. Every device applies the same operations in the same order, so devices have to agree on
the bytes only.

Encoding: MessagePack arrays, tagged by a short string first (``["c", agent, session, …]``). A capture's pieces are written
column by column (all texts, all roles, …; times as differences, message ids that are UUIDs as 16 bytes each), which saves a
tenth of the overhead of a compressed piece. Decoding is strict: unknown tags, missing fields, wrong types, columns of
unequal length and anything over the limits are refused.
"""

from itertools import accumulate, pairwise
from typing import Annotated, Literal

import msgspec

from crystal_crypto.errors import UNDECODABLE, Malformed, TooLarge
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.file_paths import PATH_BYTES_MAX, check_path, conflict_form
from crystal_mirror.types import HASH_BYTES
from crystal_mirror.uuids import UUID_BYTES, packed_uuid, uuid_text

OPERATION_BYTES_MAX = 256 * 1024
"""One encoded operation, but a put of a file. With its vectors it fits one entry of 1 MiB with room to spare."""
PUT_BYTES_MAX = 512 * 1024
"""An encoded put of a file, or several changes of files: they bring no vectors, and the names of their parts take room."""
PIECE_BYTES_MAX = 64 * 1024
"""UTF-8 bytes of one piece of text."""
PIECES_MAX = 256
"""Pieces in one capture."""
TARGETS_MAX = 4096
"""Targets of one forget."""
REPLACED_MAX = 256
"""Texts that one operation replaces."""
NAME_CHARS_MAX = 1024
"""Any name: agent, session, project, message id."""
MODEL_CHARS_MAX = 128
"""The name of a language model."""
FILE_PARTS_MAX = 6144
"""Parts of one file: their references fill an operation."""
CHANGES_MAX = 1024
"""Changes of files in one operation."""
FILE_PART_BYTES_MAX = 4 * 1024 * 1024
FILE_BYTES_MAX = FILE_PARTS_MAX * FILE_PART_BYTES_MAX
TURN_MAX = 255
MILLISECONDS_MAX = 2**53
"""Moments, since 1970."""
CONFIDENCE_MAX = 100
"""Confidence in a memory, from 0 to 100."""
SUPERSEDES_MAX = 16
"""Memories that one new memory supersedes."""
SOURCE_NAME_CHARS_MAX = 128
PATTERNS_MAX = 256
"""Patterns of a source that include documents, and as many that exclude them."""
DOCUMENT_PIECES_MAX = 2**20
"""Pieces of one document over all its operations: a gigabyte of text."""


Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]  # §10.2-7
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=PIECE_BYTES_MAX)]
Model = Annotated[str, msgspec.Meta(max_length=MODEL_CHARS_MAX)]
Part = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MILLISECONDS_MAX)]
KeyedHash = Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
"""The keyed content hash of a text: names the text without revealing it. See ``VaultSecret.forget_hash``."""
Confidence = Annotated[int, msgspec.Meta(ge=0, le=CONFIDENCE_MAX)]
Status = Literal["active", "retired"]
"""Of a memory. A retired memory is kept, but not recalled until it is active again."""


class Piece(msgspec.Struct, frozen=True):
    """One piece of one message: the unit that becomes a chunk.

    ``created_at`` is in milliseconds since 1970, 0 if unknown. ``message`` is the source's own id of the message, or ""
    if it has none; ``part`` numbers the pieces of one message from 0. ``model`` names the language model whose words they
    are, as the source does; "" if nobody says, or a person spoke.
    """

    text: Text
    role: Name
    created_at: Milliseconds
    message: Name
    part: Part
    model: Model = ""


class Capture(msgspec.Struct, frozen=True):
    """Pieces of one session, in order. ``project`` is relative to the maker's home, ``repository`` a normalised remote."""

    agent: Name
    session: Name
    project: Name
    repository: Name
    source: Name
    pieces: tuple[Piece, ...]


class Remember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="r"):
    """A memory that a person or an agent put into words. Lifts an earlier forget of the same text, and makes a memory with
    the same words active again. The memories that it ``supersedes`` are kept as its predecessors.

    ``scope`` is "" for everywhere, else a project: its repository, or its folder if it has none. None does not state it: a
    memory that is there keeps its own, a new one has that of the first that it supersedes, or else is for everywhere."""

    text: Text
    category: Name
    agent: Name
    created_at: Milliseconds
    confidence: Confidence = CONFIDENCE_MAX
    supersedes: Annotated[tuple[KeyedHash, ...], msgspec.Meta(max_length=SUPERSEDES_MAX)] = ()
    scope: Name | None = None


class Amend(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="a"):
    """Changes a memory's properties, not its words; None leaves a property as it is. No effect if there is no such memory."""

    target: KeyedHash
    category: Name | None
    confidence: Confidence | None
    status: Status | None
    agent: Name
    at: Milliseconds
    scope: Name | None = None


class Forget(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="f"):
    """Texts to remove everywhere and for good. They are named by keyed content hash, so the operation does not reveal them."""

    targets: Annotated[tuple[KeyedHash, ...], msgspec.Meta(min_length=1, max_length=TARGETS_MAX)]  # §10.2-7


class Replaced(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A text, named by its keyed content hash, and the text that takes its place."""

    target: KeyedHash
    text: Text


class Replace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="rp"):
    """Texts to remove everywhere and for good, as by a forget, each with the text that takes its place in conversations, as a
    memory and in documents, on whichever device it was recorded. A text that is not there is only forgotten."""

    replaced: Annotated[tuple[Replaced, ...], msgspec.Meta(min_length=1, max_length=REPLACED_MAX)]  # §10.2-7


Named = (
    Annotated[int, msgspec.Meta(ge=0, le=TURN_MAX)]
    | Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
)
"""Which blob of some content is meant: a turn, from which the vault's secret makes the name (generation 1), or the name itself
(32 bytes, made in a later generation). A condemned name is never used again: the same content then has the next turn's."""


def blob_name(secret: VaultSecret, content: bytes, named: int | bytes) -> bytes:
    """The name of a blob; ``content`` is the SHA-256 of what it holds."""
    return named if isinstance(named, bytes) else secret.blob_name(content, named)  # §4.2-7


class FilePart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A part of a file: SHA-256 of its content, its length in bytes, and the blob that holds it."""

    content: Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
    length: Annotated[int, msgspec.Meta(ge=1, le=FILE_PART_BYTES_MAX)]  # §10.2-3
    named: Named = 0


Version = tuple[
    Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)],
    Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)],
    Annotated[int, msgspec.Meta(ge=0, le=2**53)],
]
"""A file's version: the origin of the operation that made the file what it is. See ``types.Origin``."""


class PutFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="p"):
    """A file of the memory home as its maker found it. ``base`` is the version that it replaces as far as its maker knew,
    None for a new file. If another version came first, that one keeps the path and this one is kept beside it."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=PATH_BYTES_MAX)]
    base: Version | None
    executable: bool
    modified_at: Milliseconds
    parts: Annotated[tuple[FilePart, ...], msgspec.Meta(max_length=FILE_PARTS_MAX)]  # §10.2-3


class DropFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="d"):
    """A tombstone: its maker deleted version ``base`` of the file. No effect on any other version."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=PATH_BYTES_MAX)]
    base: Version


class ChangeFiles(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="cf"):
    """Puts and deletions of files, each of another path, in order. The one name that they have is the version of each of these
    files; apart from that they are as many operations."""

    changes: Annotated[
        tuple[PutFile | DropFile, ...], msgspec.Meta(min_length=1, max_length=CHANGES_MAX)
    ]  # §10.2-10


SourceName = Annotated[str, msgspec.Meta(min_length=1, max_length=SOURCE_NAME_CHARS_MAX)]
DocumentPath = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
"""Where a document is in its source. It is only shown, never opened, so it need not be a path that may travel."""
_Patterns = Annotated[tuple[Name, ...], msgspec.Meta(max_length=PATTERNS_MAX)]
_PieceCount = Annotated[int, msgspec.Meta(ge=0, le=DOCUMENT_PIECES_MAX)]


class PutSource(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="ps"):
    """A collection of documents that the maker's device reads in. It belongs to the device that put it last: documents that
    another device puts into it have no effect. ``root`` is for people: a folder relative to the home, an address, or ""."""

    name: SourceName
    root: Name
    include: _Patterns
    exclude: _Patterns
    at: Milliseconds


class DropSource(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="ds"):
    """Removes a source and all its documents, whichever device put it: that device may be gone for good."""

    name: SourceName


class PutDocument(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="pd"):
    """Pieces ``first`` and following of a document of ``total`` pieces. ``version`` is the SHA-256 of what was read. The
    operation with piece 0 (or without pieces, if ``total`` is 0) begins a version; later ones count only after it and in
    order. Each piece replaces the one in its place; the last one also removes all places beyond ``total``."""

    source: SourceName
    path: DocumentPath
    version: Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
    modified_at: Milliseconds
    kind: Name
    first: _PieceCount
    total: _PieceCount
    texts: Annotated[tuple[Text, ...], msgspec.Meta(max_length=PIECES_MAX)]
    titles: Annotated[tuple[Name, ...], msgspec.Meta(max_length=PIECES_MAX)]


class DropDocument(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="dd"):
    """A document that no longer exists in its source."""

    source: SourceName
    path: DocumentPath


ProjectName = tuple[Name, Name]
"""A project: its folder and its repository, one of which may be ""."""


class LinkProjects(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="lp"):
    """Two projects that may see each other's conversations and memories from now on; if not ``linked``, no more. The order
    of the two means nothing."""

    one: ProjectName
    other: ProjectName
    linked: bool
    at: Milliseconds


Operation = (
    Capture
    | Remember
    | Amend
    | Forget
    | Replace
    | PutFile
    | DropFile
    | ChangeFiles
    | PutSource
    | DropSource
    | PutDocument
    | DropDocument
    | LinkProjects
)


class _CaptureColumns(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="c"):
    """A capture as it is encoded. ``times``: the first moment, then differences. ``messages``: 16 bytes each, or strings.
    ``models``: () where no piece has one."""

    agent: Name
    session: Name
    project: Name
    repository: Name
    source: Name
    texts: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1, max_length=PIECES_MAX)]
    roles: tuple[Name, ...]
    times: tuple[Annotated[int, msgspec.Meta(ge=-MILLISECONDS_MAX, le=MILLISECONDS_MAX)], ...]
    messages: bytes | tuple[Name, ...]
    parts: tuple[Part, ...]
    models: tuple[Model, ...] = ()


_TAGS: dict[type, str] = {Remember: "r", Amend: "a", _CaptureColumns: "c"}
_encoder = msgspec.msgpack.Encoder()
_Written = (
    _CaptureColumns
    | Remember
    | Amend
    | Forget
    | Replace
    | PutFile
    | DropFile
    | ChangeFiles
    | PutSource
    | DropSource
    | PutDocument
    | DropDocument
    | LinkProjects
)
_decoder: msgspec.msgpack.Decoder[_Written] = msgspec.msgpack.Decoder(_Written)  # §10.1-1


def encode_operation(operation: Operation) -> bytes:
    """Encodes an operation. The bytes identify it from here on.

    Raises:
        TooLarge: over ``OPERATION_BYTES_MAX``, puts of files over ``PUT_BYTES_MAX``, or a piece over ``PIECE_BYTES_MAX``.
        Malformed: a field is out of its bounds.
    """
    try:
        data = _encoder.encode(_written(operation))
    except (UnicodeEncodeError, OverflowError, *UNDECODABLE) as error:
        raise Malformed(f"an operation could not be encoded: {error}") from error
    if decode_operation(data) != operation:
        raise Malformed("an operation does not survive its encoding")
    return data


def decode_operation(data: bytes) -> Operation:
    """Parses and checks an operation.

    Raises:
        TooLarge: the bytes or a text are over the limit.
        Malformed: not an operation of this version.
    """
    if len(data) > PUT_BYTES_MAX:  # §10.2-7
        raise TooLarge(f"an operation of {len(data)} bytes is over the limit of {PUT_BYTES_MAX}")
    try:
        decoded = _decoder.decode(data)
    except UNDECODABLE as error:
        raise Malformed(f"not an operation of this version: {error}") from error
    if len(data) > OPERATION_BYTES_MAX and not isinstance(decoded, PutFile | ChangeFiles):  # §10.2-7
        raise TooLarge(f"an operation of {len(data)} bytes is over the limit of {OPERATION_BYTES_MAX}")
    match decoded:
        case _CaptureColumns():
            _check_texts(decoded.texts)
            return _capture(decoded)
        case Remember():
            _check_texts((decoded.text,))
            check_words(decoded.scope or "")
            return decoded
        case Amend():
            check_words(decoded.scope or "")
            return decoded
        case Forget():
            return decoded
        case Replace():
            _check_texts(tuple(each.text for each in decoded.replaced))
            return decoded
        case PutFile() | DropFile():
            check_path(decoded.path)  # §10.2-4
            return decoded
        case ChangeFiles():
            for change in decoded.changes:
                check_path(change.path)  # §10.2-4
            if len({change.path for change in decoded.changes}) != len(decoded.changes):  # §10.2-10
                raise Malformed("an operation changes a file twice")
            # Else each of them would try the places of all before it. §10.2-11
            if len({conflict_form(change.path) for change in decoded.changes}) != len(decoded.changes):
                raise Malformed("an operation changes two files whose conflict paths are the same")
            return decoded
        case PutSource() | DropSource():
            check_words(decoded.name)
            return decoded
        case PutDocument():
            check_words(decoded.source, decoded.path)
            _check_pieces(decoded)
            _check_texts(decoded.texts)
            return decoded
        case DropDocument():
            check_words(decoded.source, decoded.path)
            return decoded
        case LinkProjects():
            check_projects(decoded.one, decoded.other)
            return decoded


def check_words(*names: str) -> None:
    """Checks names of sources, paths of documents, names of projects and of models, which are shown in one line each.

    Raises:
        Malformed: one has a control character.
    """
    for name in names:
        if any(character < " " or "\x7f" <= character <= "\x9f" for character in name):  # §10.2-6
            raise Malformed("the name of a source, document, project or model has control characters")


def check_projects(one: ProjectName, other: ProjectName) -> None:
    """Checks the names of two linked projects.

    Raises:
        Malformed: one has no name or a control character, or both are the same.
    """
    check_words(*one, *other)
    if one == other or not (any(one) and any(other)):  # §10.2-9
        raise Malformed("two projects are linked, and each has a folder or a repository")


def _check_pieces(put: PutDocument) -> None:
    if len(put.titles) != len(put.texts):  # §10.2-5
        raise Malformed("the columns of a document have different lengths")
    if put.first + len(put.texts) > put.total or (not put.texts and put.total):  # §10.2-5
        raise Malformed("a document does not have the pieces that it states")


def _check_texts(texts: tuple[str, ...]) -> None:
    for text in texts:
        if len(text) * 4 > PIECE_BYTES_MAX and len(text.encode()) > PIECE_BYTES_MAX:  # §10.2-7
            raise TooLarge(f"a piece of text is over the limit of {PIECE_BYTES_MAX} bytes")


def _written(operation: Operation) -> object:
    """The value to encode. A scope that is not stated, and models that are not known, are left out: the bytes are those of
    before there were any."""
    written = _columns(operation) if isinstance(operation, Capture) else operation
    left_out = (
        not written.models
        if isinstance(written, _CaptureColumns)
        else isinstance(written, Remember | Amend) and written.scope is None
    )
    if left_out:  # §10.1-2, §10.1-3
        return (_TAGS[type(written)], *msgspec.structs.astuple(written)[:-1])
    return written


def _columns(capture: Capture) -> _CaptureColumns:
    pieces = capture.pieces
    moments = [piece.created_at for piece in pieces]
    return _CaptureColumns(
        agent=capture.agent,
        session=capture.session,
        project=capture.project,
        repository=capture.repository,
        source=capture.source,
        texts=tuple(piece.text for piece in pieces),
        roles=tuple(piece.role for piece in pieces),
        times=(*moments[:1], *(after - before for before, after in pairwise(moments))),
        messages=_pack_messages([piece.message for piece in pieces]),
        parts=tuple(piece.part for piece in pieces),
        models=tuple(piece.model for piece in pieces) if any(piece.model for piece in pieces) else (),
    )


def _capture(columns: _CaptureColumns) -> Capture:
    count = len(columns.texts)
    messages = _unpack_messages(columns.messages)
    # §10.2-1
    if not len(columns.roles) == len(columns.times) == len(messages) == len(columns.parts) == count:
        raise Malformed("the columns of a capture have different lengths")
    if columns.models and (len(columns.models) != count or not any(columns.models)):  # §10.2-1
        raise Malformed("the models of a capture are not those of its pieces")
    check_words(*columns.models)
    moments = list(accumulate(columns.times))
    if not all(0 <= moment <= MILLISECONDS_MAX for moment in moments):  # §10.2-1, §10.2-7
        raise Malformed("a moment of a capture is out of range")
    models = columns.models or ("",) * count
    pieces = zip(columns.texts, columns.roles, moments, messages, columns.parts, models, strict=True)
    return Capture(
        columns.agent,
        columns.session,
        columns.project,
        columns.repository,
        columns.source,
        tuple(Piece(*piece) for piece in pieces),
    )


def _pack_messages(messages: list[str]) -> bytes | tuple[str, ...]:
    packed = bytearray()
    for message in messages:
        if (found := packed_uuid(message)) is None:
            return tuple(messages)
        packed += found
    return bytes(packed)


def _unpack_messages(messages: bytes | tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(messages, bytes):
        return messages
    if len(messages) % UUID_BYTES:  # §10.2-2
        raise Malformed("message ids that are UUIDs are 16 bytes each")
    starts = range(0, len(messages), UUID_BYTES)
    return tuple(uuid_text(messages[start : start + UUID_BYTES]) for start in starts)
