"""Provisional rows: this device's own operations made findable before the Core has put them in order.

They stand apart from the replicated state and never change what applying an operation does. A text that only they need is
a chunk with `provisional = 1`; it has no vectors, so it is found by keyword.

Marks say what the pending operations do to a text's being hidden: a forget hides it, a remember shows it, and the latest
mark decides, before anything that is replicated.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from crystal_core.database import Database
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.operations import Capture, DropFile, Forget, Operation, PutFile, Remember
from crystal_mirror.types import Origin


def origins(database: Database) -> set[Origin]:
    return {Origin(*row) for row in database.rows("SELECT device, incarnation, sequence FROM provisional")}


def index(database: Database, secret: VaultSecret, origin: Origin, operation: Operation) -> None:
    """Make one operation findable. Belongs in a transaction; does nothing if the origin is indexed already."""
    number = _number(database, origin)
    if number is not None:
        return
    number = int(
        database.rows(
            "INSERT INTO provisional (device, incarnation, sequence) VALUES (?, ?, ?) RETURNING number",
            origin,
        )[0][0]
    )
    match operation:
        case Capture():
            texts: list[tuple[int, str]] = []
            database.run("UPDATE index_state SET deferred = 1")  # see `schema.CHUNK_TRIGGERS`
            for piece in operation.pieces:
                content = sha256(piece.text.encode()).digest()
                forget_hash = secret.forget_hash(content)
                if is_suppressed(database, forget_hash):
                    continue
                chunk = _find(database, forget_hash)
                if chunk is None:
                    chunk = _add(database, content, forget_hash, piece.text)
                    texts.append((chunk, piece.text))
                database.run(
                    "INSERT INTO provisional_places (number, chunk, agent, session, message, part, role, created_at,"
                    " project, repository, source) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        number,
                        chunk,
                        operation.agent,
                        operation.session,
                        piece.message,
                        piece.part,
                        piece.role,
                        piece.created_at,
                        operation.project,
                        operation.repository,
                        operation.source,
                    ),
                )
            database.run_many("INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)", texts)
            database.run("UPDATE index_state SET deferred = 0")
        case Remember():
            content = sha256(operation.text.encode()).digest()
            forget_hash = secret.forget_hash(content)
            chunk = _find(database, forget_hash)
            if chunk is None:
                chunk = _add(database, content, forget_hash, operation.text)
            database.run(
                "INSERT INTO provisional_places (number, chunk, agent, session, message, part, role, created_at,"
                " project, repository, source, category) VALUES (?, ?, ?, '', '', 0, '', ?, '', '', '', ?)",
                (number, chunk, operation.agent, operation.created_at, operation.category),
            )
            _mark(database, number, [forget_hash], hides=False)
        case Forget():
            _mark(database, number, operation.targets, hides=True)
        case PutFile() | DropFile():
            pass  # no text


def drop(database: Database, origin: Origin) -> list[str]:
    """Remove what `index` made for this origin, texts included that nothing else needs. Belongs in a transaction.

    Returns the suppressed texts among them, which have to leave no traces.
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
        # The mark that lifted a replicated forget is gone: other pending captures of that text must not show it.
        if is_suppressed(database, forget_hash):
            forget(database, forget_hash)
            suppressed.append(text)
    return suppressed


def forget(database: Database, forget_hash: bytes) -> None:
    """Remove a text's provisional rows because it is suppressed, unless a pending remember will bring it back."""
    if _latest_mark(database, forget_hash) == 0:
        return
    chunks = database.rows("SELECT rowid FROM chunks WHERE forget_hash = ?", (forget_hash,))
    for (chunk,) in chunks:
        database.run("DELETE FROM provisional_places WHERE chunk = ?", (chunk,))
        remove_unneeded(database, [chunk])


def remove_unneeded(database: Database, chunks: Iterable[int]) -> None:
    """Delete those of the chunks that are provisional and stand in no provisional place."""
    database.run_many(
        "DELETE FROM chunks WHERE rowid = ?1 AND provisional = 1"
        " AND NOT EXISTS (SELECT 1 FROM provisional_places WHERE chunk = ?1)",
        [(chunk,) for chunk in chunks],
    )


def _number(database: Database, origin: Origin) -> int | None:
    found = database.value(
        "SELECT number FROM provisional WHERE device = ? AND incarnation = ? AND sequence = ?", origin
    )
    return None if found is None else int(found)


def _find(database: Database, forget_hash: bytes) -> int | None:
    """The rowid of a text's chunk, replicated or provisional."""
    found = database.value("SELECT rowid FROM chunks WHERE forget_hash = ?", (forget_hash,))
    return None if found is None else int(found)


def _add(database: Database, content: bytes, forget_hash: bytes, text: str) -> int:
    rows = database.rows(
        "INSERT INTO chunks (id, forget_hash, provisional, text) VALUES (?, ?, 1, ?) RETURNING rowid",
        (content, forget_hash, text),
    )
    return int(rows[0][0])


def _mark(database: Database, number: int, forget_hashes: Sequence[bytes], *, hides: bool) -> None:
    database.run_many(
        "INSERT INTO provisional_marks (number, forget_hash, hides) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        [(number, forget_hash, int(hides)) for forget_hash in forget_hashes],
    )


def _latest_mark(database: Database, forget_hash: bytes) -> int | None:
    """1 if the latest pending operation on this text hides it, 0 if it shows it, None if there is none."""
    found = database.value(
        "SELECT hides FROM provisional_marks WHERE forget_hash = ? ORDER BY number DESC LIMIT 1",
        (forget_hash,),
    )
    return None if found is None else int(found)


def is_suppressed(database: Database, forget_hash: bytes) -> bool:
    """Whether a capture of this text would be left out now, pending operations counted."""
    mark = _latest_mark(database, forget_hash)
    if mark is not None:
        return mark == 1
    return bool(database.rows("SELECT 1 FROM suppressed WHERE forget_hash = ?", (forget_hash,)))
