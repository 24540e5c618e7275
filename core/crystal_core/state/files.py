"""The replicated tree of files: effect of a put and a deletion, the same on every device.

    PutFile    names a condemned blob: no effect
               the path is free, or its living row is the version that the put replaces: the put becomes the row
               the living row has the same content: no effect
               else it is a conflict, and becomes the row at the first of its conflict paths that is free
    DropFile   the living row is the version that it deletes: it becomes a tombstone
               else no effect: an edit beats a deletion

A path is free if there is no living row at it, at the same path in another case, at a folder above it or at a file below it.
Living rows therefore never collide, and a version is replaced only by one that was made from it.

The name of a condemned blob is never used again. Parts of a file are packed: content hash (32), length (u32), turn (u8); or,
where a part says its blob's name, content hash, length plus 2^31, name (32).
"""

import struct
from collections.abc import Iterator, Sequence

from crystal_core.database import Database, Row
from crystal_core.state.digests import CONDEMNED, FILES, Digests, condemned_row, file_row
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.file_paths import conflict_paths, folded
from crystal_mirror.operations import DropFile, FilePart, PutFile, blob_name
from crystal_mirror.ports import FileRow
from crystal_mirror.types import HASH_BYTES, Origin

_PART = struct.Struct(">32sIB")
_NAMED_PART = struct.Struct(">32sI32s")
_NAMED = 2**31
"""Set in the length of a part that says its blob's name."""
_LENGTH_AT, _LENGTH_END = HASH_BYTES, HASH_BYTES + 4
PACKED_PART_BYTES_MAX = _NAMED_PART.size

_COLUMNS = "path, device, incarnation, sequence, executable, modified_at, gone, parts"


def pack_parts(parts: Sequence[FilePart]) -> bytes:
    return b"".join(
        _PART.pack(part.content, part.length, part.named)
        if isinstance(part.named, int)
        else _NAMED_PART.pack(part.content, part.length | _NAMED, part.named)
        for part in parts
    )


def unpack_parts(packed: bytes) -> tuple[FilePart, ...]:
    """Raises struct.error where the last part is cut short."""
    found: list[FilePart] = []
    at = 0
    while at < len(packed):
        length = int.from_bytes(packed[at + _LENGTH_AT : at + _LENGTH_END], "big")
        layout = _NAMED_PART if length & _NAMED else _PART
        content, length, named = layout.unpack_from(packed, at)
        found.append(FilePart(content, length & ~_NAMED, named))
        at += layout.size
    return tuple(found)


def files(database: Database) -> Iterator[FileRow]:
    """Iterate over all rows by path, tombstones included."""
    for row in database.each(f"SELECT {_COLUMNS} FROM files ORDER BY path"):  # noqa: S608 - a constant of ours
        yield _file(row)


def file(database: Database, path: str) -> FileRow | None:
    row = database.row(f"SELECT {_COLUMNS} FROM files WHERE path = ?", (path,))  # noqa: S608 - the same
    return None if row is None else _file(row)


def is_condemned(database: Database, name: bytes) -> bool:
    return bool(database.rows("SELECT 1 FROM condemned WHERE name = ?", (name,)))


def condemn(database: Database, digests: Digests, names: Sequence[bytes]) -> None:
    for name in names:
        # §11.4-13
        if database.changed("INSERT INTO condemned (name) VALUES (?) ON CONFLICT DO NOTHING", (name,)):
            digests[CONDEMNED].add(condemned_row(name))


def change(
    database: Database, secret: VaultSecret, digests: Digests, origin: Origin, operation: PutFile | DropFile
) -> None:
    if isinstance(operation, PutFile):
        put(database, secret, digests, origin, operation)
    else:
        drop(database, digests, origin, operation)


def put(
    database: Database, secret: VaultSecret, digests: Digests, origin: Origin, operation: PutFile
) -> None:
    # §11.4-11
    if any(is_condemned(database, blob_name(secret, part.content, part.named)) for part in operation.parts):
        return
    current = file(database, operation.path)
    if current is None or current.gone:
        path = operation.path if _is_free(database, operation.path) else None
    elif operation.base == current.version:  # §11.4-11
        path = operation.path
    # §11.4-11
    elif _content(current.executable, current.parts) == _content(operation.executable, operation.parts):
        return
    else:
        path = None
    if path is None:
        path = next(
            candidate
            for candidate in conflict_paths(operation.path, origin)
            if _is_free(database, candidate)  # §11.4-11
        )
    parts = operation.parts
    _write(
        database, digests, FileRow(path, origin, operation.executable, operation.modified_at, parts, False)
    )


def drop(database: Database, digests: Digests, origin: Origin, operation: DropFile) -> None:
    current = file(database, operation.path)
    if current is not None and not current.gone and current.version == operation.base:  # §11.4-12
        _write(database, digests, FileRow(operation.path, origin, False, 0, (), True))


def _is_free(database: Database, path: str) -> bool:
    """Whether this path collides with no living row."""
    form = folded(path)  # §11.5-1
    components = form.split("/")
    for depth in range(1, len(components) + 1):
        if database.rows(
            "SELECT 1 FROM files WHERE folded = ? AND gone = 0", ("/".join(components[:depth]),)
        ):
            return False
    return not database.rows(  # "0" is the character behind "/"
        "SELECT 1 FROM files WHERE folded > ? AND folded < ? AND gone = 0 LIMIT 1", (form + "/", form + "0")
    )


def _content(executable: bool, parts: Sequence[FilePart]) -> tuple[bool, list[bytes]]:
    return executable, [part.content for part in parts]


def _write(database: Database, digests: Digests, row: FileRow) -> None:
    before = file(database, row.path)
    if before is not None:
        digests[FILES].remove(_digest_row(before))
    digests[FILES].add(_digest_row(row))
    database.run(
        "INSERT INTO files (path, folded, device, incarnation, sequence, executable, modified_at, gone, parts)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO UPDATE SET device = excluded.device,"
        " incarnation = excluded.incarnation, sequence = excluded.sequence, executable = excluded.executable,"
        " modified_at = excluded.modified_at, gone = excluded.gone, parts = excluded.parts",
        (
            row.path,
            folded(row.path),
            *row.version,
            row.executable,
            row.modified_at,
            row.gone,
            pack_parts(row.parts),
        ),
    )


def _digest_row(row: FileRow) -> bytes:
    return file_row(row.path, row.version, row.executable, row.modified_at, row.gone, pack_parts(row.parts))


def _file(row: Row) -> FileRow:
    path, device, incarnation, sequence, executable, modified_at, gone, parts = row
    version = Origin(device, incarnation, sequence)
    return FileRow(path, version, bool(executable), modified_at, unpack_parts(parts), bool(gone))
