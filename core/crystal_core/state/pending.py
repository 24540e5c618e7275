"""Provisional rows: this device's pending operations, findable before the Core has ordered them.

They are separate from the replicated state and never affect how an operation is applied. A text that only they need is a chunk
with `provisional = 1`; it has no vectors, so it is found by keyword.

Pending changes of memories, sources, documents and linked projects are in tables of their own (see `schema`). They count in
what is shown, never in what is applied.

The operation itself is kept beside them until it is durable: if the outbox is lost, it is offered again from there.

Marks record whether pending operations hide a text: a forget hides it, a remember shows it. The latest mark decides and takes
precedence over the replicated state.
"""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from crystal_core.database import Database
from crystal_core.projects import LINK_COLUMNS, link_of
from crystal_core.schema import WHOLE
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.operations import (
    Amend,
    Capture,
    ChangeFiles,
    DropDocument,
    DropFile,
    DropSource,
    Forget,
    LinkProjects,
    Operation,
    PutDocument,
    PutFile,
    PutSource,
    Remember,
    Replace,
    Replaced,
    decode_operation,
)
from crystal_mirror.types import Origin


def origins(database: Database) -> set[Origin]:
    return {Origin(*row) for row in database.rows("SELECT device, incarnation, sequence FROM provisional")}


def index(
    database: Database, secret: VaultSecret, origin: Origin, operation: Operation, encoded: bytes
) -> None:
    """Make one operation findable. Belongs in a transaction; does nothing if the origin is already indexed."""
    number = _number(database, origin)
    if number is not None:
        return
    number = int(
        database.rows(
            "INSERT INTO provisional (device, incarnation, sequence, operation) VALUES (?, ?, ?, ?) RETURNING number",
            (*origin, encoded),
        )[0][0]
    )
    match operation:
        case Capture():
            places = [
                (piece.text, (piece.message, piece.part, piece.role, piece.created_at), piece.model)
                for piece in operation.pieces
            ]
            shared = (operation.agent, operation.session, operation.project, operation.repository)
            _place(
                database,
                secret,
                [
                    (text, _Place(number, *shared, operation.source, *said, model=model))
                    for text, said, model in places
                ],
            )
        case Remember():
            _remember(database, secret, number, operation)
        case Amend():
            change = (operation.category, operation.confidence, operation.status, None, operation.scope)
            _change(database, number, operation.target, "amended", change, operation.agent, operation.at)
        case Forget():
            _mark(database, number, operation.targets, hides=True)
        case Replace():
            for each in operation.replaced:
                _replace(database, secret, number, each)
        case PutSource():
            include, exclude = json.dumps(operation.include), json.dumps(operation.exclude)
            _source(database, number, operation.name, False, operation.root, include, exclude, operation.at)
        case DropSource():
            _source(database, number, operation.name, True, "", "[]", "[]", 0)
            _gone(database, number, operation.name, "")
        case PutDocument():
            _put_document(database, secret, number, operation)
        case DropDocument():
            _gone(database, number, operation.source, operation.path)
        case LinkProjects():
            database.run(
                f"INSERT INTO provisional_links (number, linked, {LINK_COLUMNS}, at) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                (number, operation.linked, *link_of(operation.one, operation.other), operation.at),
            )
        case PutFile() | DropFile() | ChangeFiles():
            pass  # no text


def drop(database: Database, origin: Origin) -> list[str]:
    """Remove the rows that `index` made for this origin, and texts that nothing else needs. Belongs in a transaction.

    Returns the suppressed texts among them, which must leave no traces.
    """
    number = _number(database, origin)
    if number is None:
        return []
    chunks = database.rows("SELECT DISTINCT chunk FROM provisional_places WHERE number = ?", (number,))
    shown = database.rows(
        "SELECT m.forget_hash, c.text FROM provisional_marks m JOIN chunks c ON c.forget_hash = m.forget_hash"
        " WHERE m.number = ? AND m.hides = 0",
        (number,),
    )
    database.run("DELETE FROM provisional WHERE number = ?", (number,))
    remove_unneeded(database, (chunk for (chunk,) in chunks))
    suppressed: list[str] = []
    for forget_hash, text in shown:
        # The mark that overrode a replicated forget is gone, so other pending captures of that text must not show it.
        if is_suppressed(database, forget_hash):
            forget(database, forget_hash)
            suppressed.append(text)
    return suppressed


def operation(database: Database, origin: Origin) -> Operation | None:
    """Return the operation that `index` made findable, as it was; None without it, or where one of its texts was forgotten
    since."""
    data = database.value(
        "SELECT operation FROM provisional WHERE device = ? AND incarnation = ? AND sequence = ?", origin
    )
    return None if data is None else decode_operation(bytes(data))


def forget(database: Database, forget_hash: bytes) -> None:
    """Remove a text's provisional rows because it is suppressed, unless a pending remember will bring it back."""
    if _latest_mark(database, forget_hash) == 0:
        return
    chunks = database.rows("SELECT rowid FROM chunks WHERE forget_hash = ?", (forget_hash,))
    for (chunk,) in chunks:
        database.run(
            "UPDATE provisional SET operation = NULL"
            " WHERE number IN (SELECT number FROM provisional_places WHERE chunk = ?)",
            (chunk,),
        )
        database.run("DELETE FROM provisional_places WHERE chunk = ?", (chunk,))
        remove_unneeded(database, [chunk])


def remove_unneeded(database: Database, chunks: Iterable[int]) -> None:
    """Delete those chunks that are provisional and have no provisional place."""
    database.run_many(
        "DELETE FROM chunks WHERE rowid = ?1 AND provisional = 1"
        " AND NOT EXISTS (SELECT 1 FROM provisional_places WHERE chunk = ?1)",
        [(chunk,) for chunk in chunks],
    )


class _Place(NamedTuple):
    """A row of `provisional_places`, without its chunk."""

    number: int
    agent: str = ""
    session: str = ""
    project: str = ""
    repository: str = ""
    source: str = ""
    message: str = ""
    part: int = 0
    role: str = ""
    created_at: int = 0
    category: str | None = None
    confidence: int | None = None
    path: str | None = None
    title: str = ""
    scope: str = ""
    model: str = ""


_INSERT_PLACE = (
    f"INSERT INTO provisional_places (chunk, {', '.join(_Place._fields)})"  # noqa: S608 - names of ours
    f" VALUES (?{', ?' * len(_Place._fields)})"
)


_INSERT_CHUNK = "INSERT INTO chunks (id, forget_hash, provisional, text) VALUES (?, ?, 1, ?) RETURNING rowid"
_CHUNK_OF = "SELECT forget_hash, rowid FROM chunks WHERE forget_hash = ?"


def _place(database: Database, secret: VaultSecret, places: Sequence[tuple[str, _Place]]) -> None:
    """Add texts at their places, except suppressed ones."""
    contents = [sha256(text.encode()).digest() for text, _ in places]
    hashes = secret.forget_hashes(contents)
    hidden = suppressed_among(database, hashes)
    chunks = dict[bytes, int](database.rows_of_many(_CHUNK_OF, [(each,) for each in dict.fromkeys(hashes)]))
    added: dict[bytes, tuple[bytes, bytes, str]] = {}
    for (text, _), content, forget_hash in zip(places, contents, hashes, strict=True):
        if forget_hash not in hidden and forget_hash not in chunks:
            added.setdefault(forget_hash, (content, forget_hash, text))
    database.run("UPDATE index_state SET deferred = 1")  # see `schema.CHUNK_TRIGGERS`
    numbers = [int(rowid) for (rowid,) in database.rows_of_many(_INSERT_CHUNK, added.values())]
    chunks |= dict(zip(added, numbers, strict=True))
    rows = [
        (chunks[forget_hash], *where)
        for (_, where), forget_hash in zip(places, hashes, strict=True)
        if forget_hash not in hidden
    ]
    database.run_many(_INSERT_PLACE, rows)
    texts = [(number, text) for number, (_, _, text) in zip(numbers, added.values(), strict=True)]
    database.run_many("INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)", texts)
    database.run("UPDATE index_state SET deferred = 0")


def _remember(database: Database, secret: VaultSecret, number: int, operation: Remember) -> None:
    content = sha256(operation.text.encode()).digest()
    forget_hash = secret.forget_hash(content)
    chunk = _find(database, forget_hash)
    if chunk is None:
        chunk = _add(database, content, forget_hash, operation.text)
    agent, at = operation.agent, operation.created_at
    category, confidence = operation.category, operation.confidence
    supersedes = [target for target in operation.supersedes if target != forget_hash]
    scope = _scope(database, operation.scope, forget_hash, supersedes)
    where = _Place(number, agent, created_at=at, category=category, confidence=confidence, scope=scope)
    database.run(_INSERT_PLACE, (chunk, *where))
    _mark(database, number, [forget_hash], hides=False)
    change = (category, confidence, "active", b"", operation.scope)
    _change(database, number, forget_hash, "remembered", change, agent, at)
    for target in dict.fromkeys(supersedes):
        _change(database, number, target, "superseded", (None, None, None, forget_hash, None), agent, at)


_REPLACED_PLACES = f"""
SELECT agent, session, project, repository, source, message, part, role, created_at, NULL, NULL, NULL, '', '', model
FROM occurrences WHERE chunk = ?1
UNION ALL SELECT agent, '', '', '', '', '', 0, '', created_at, category, confidence, NULL, '', scope, ''
FROM memory_places WHERE chunk = ?1
UNION ALL SELECT {", ".join(_Place._fields[1:])} FROM provisional_places
WHERE chunk = ?1 AND category IS NULL AND path IS NULL
"""  # noqa: S608 - names of ours


def _replace(database: Database, secret: VaultSecret, number: int, replaced: Replaced) -> None:
    """Hide a text, and make the other one findable in its messages and as the current memory.

    In documents and in a memory's history it appears once the Core has ordered the operation."""
    chunk = _find(database, replaced.target)
    if chunk is not None and not is_suppressed(database, replaced.target):
        places = [_Place(number, *row) for row in database.rows(_REPLACED_PLACES, (chunk,))]
        _place(database, secret, [(replaced.text, where) for where in places])
    _mark(database, number, [replaced.target], hides=True)


def _scope(database: Database, stated: str | None, forget_hash: bytes, supersedes: Sequence[bytes]) -> str:
    """Return the scope that a memory has after a Remember, as far as this device knows what comes before it."""
    if stated is not None:
        return stated
    for each in (forget_hash, *supersedes):
        found = database.value("SELECT scope FROM memory_states WHERE forget_hash = ?", (each,))
        if found is not None:
            return str(found)
    return ""


def _change(
    database: Database,
    number: int,
    forget_hash: bytes,
    kind: str,
    change: tuple[str | None, int | None, str | None, bytes | None, str | None],
    agent: str,
    at: int,
) -> None:
    database.run(
        "INSERT INTO provisional_memories (number, forget_hash, kind, category, confidence, status, superseded_by, scope,"
        " agent, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (number, forget_hash, kind, *change, agent, at),
    )


def _source(database: Database, number: int, name: str, gone: bool, *fields: str | int) -> None:
    database.run(
        "INSERT INTO provisional_sources (number, name, gone, root, include, exclude, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (number, name, gone, *fields),
    )


def _put_document(database: Database, secret: VaultSecret, number: int, operation: PutDocument) -> None:
    end = operation.first + len(operation.texts)
    _document(
        database,
        number,
        (operation.source, operation.path, 0, operation.version, operation.kind, operation.modified_at),
        (operation.total, operation.first, WHOLE if end == operation.total else end),
    )
    source, path, moment = operation.source, operation.path, operation.modified_at
    pieces = enumerate(zip(operation.texts, operation.titles, strict=True), start=operation.first)
    _place(
        database,
        secret,
        [
            (text, _Place(number, source=source, part=part, created_at=moment, path=path, title=title))
            for part, (text, title) in pieces
        ],
    )


def _gone(database: Database, number: int, source: str, path: str) -> None:
    _document(database, number, (source, path, 1, b"", "", 0), (0, 0, WHOLE))


def _document(
    database: Database,
    number: int,
    what: tuple[str, str, int, bytes, str, int],
    extent: tuple[int, int, int],
) -> None:
    database.run(
        "INSERT INTO provisional_documents (number, source, path, gone, version, kind, modified_at, total, first, beyond)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (number, *what, *extent),
    )


def _number(database: Database, origin: Origin) -> int | None:
    found = database.value(
        "SELECT number FROM provisional WHERE device = ? AND incarnation = ? AND sequence = ?", origin
    )
    return None if found is None else int(found)


def _find(database: Database, forget_hash: bytes) -> int | None:
    """Return the rowid of a text's chunk, replicated or provisional."""
    found = database.value("SELECT rowid FROM chunks WHERE forget_hash = ?", (forget_hash,))
    return None if found is None else int(found)


def _add(database: Database, content: bytes, forget_hash: bytes, text: str) -> int:
    return int(database.rows(_INSERT_CHUNK, (content, forget_hash, text))[0][0])


def _mark(database: Database, number: int, forget_hashes: Sequence[bytes], *, hides: bool) -> None:
    database.run_many(
        "INSERT INTO provisional_marks (number, forget_hash, hides) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        [(number, forget_hash, int(hides)) for forget_hash in forget_hashes],
    )


def _latest_mark(database: Database, forget_hash: bytes) -> int | None:
    """Return 1 if the latest pending operation on this text hides it, 0 if it shows it, None without one."""
    found = database.value(
        "SELECT hides FROM provisional_marks WHERE forget_hash = ? ORDER BY number DESC LIMIT 1",
        (forget_hash,),
    )
    return None if found is None else int(found)


def is_suppressed(database: Database, forget_hash: bytes) -> bool:
    """Whether a capture of this text would be left out now; pending operations count."""
    return bool(suppressed_among(database, [forget_hash]))


_SUPPRESSED = """
SELECT ?1 WHERE coalesce(
    (SELECT hides FROM provisional_marks WHERE forget_hash = ?1 ORDER BY number DESC LIMIT 1),
    EXISTS (SELECT 1 FROM suppressed WHERE forget_hash = ?1))
"""


def anything_suppressed(database: Database) -> bool:
    """Whether `is_suppressed` may be true of any text. Most memories have forgotten nothing."""
    return bool(
        database.value("SELECT EXISTS (SELECT 1 FROM suppressed) OR EXISTS (SELECT 1 FROM provisional_marks)")
    )


def suppressed_among(database: Database, forget_hashes: Iterable[bytes]) -> set[bytes]:
    """Those of the hashes for which `is_suppressed` is true."""
    if not anything_suppressed(database):
        return set()
    found = database.rows_of_many(_SUPPRESSED, [(each,) for each in forget_hashes])
    return {bytes(forget_hash) for (forget_hash,) in found}
