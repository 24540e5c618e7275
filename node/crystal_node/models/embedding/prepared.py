"""Vectors of the next model, made before the vault changes over to it: `embedding.db`, on the Core, during a migration.

::

    nothing ─ migrate ─► made for some texts ─ a kill: goes on where it stopped ─► made for all
                                                                                     │ the vault changes over
    nothing ◄──────────────────────────── no text lacks vectors any more ◄───────────┘

The old vectors answer until all new ones are there, and nothing is paid for twice. Rows are found by the hash of their text;
when a text is forgotten, its row is deleted and overwritten in the same round. The file is no one's only copy: if it is lost or
damaged, it is made again, and so are its vectors.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import apsw

from crystal_core.database import Database
from crystal_core.sqlite_file import open_scratch
from crystal_node.models.embedding.embedder import HeldEmbedder, Sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BUSY_MS = 10_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS model (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    identity TEXT NOT NULL,
    dimensions INTEGER NOT NULL,
    anew INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS made (
    content BLOB PRIMARY KEY CHECK (length(content) = 32),
    chunk INTEGER NOT NULL,
    vectors BLOB NOT NULL
) WITHOUT ROWID;
"""


T = TypeVar("T")


class PreparedVectors:
    """The open file. ``model``: the model of its vectors."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._begun: tuple[str, int, int] | None = None

    @classmethod
    def open(cls, path: Path) -> "PreparedVectors":
        """Opens or makes the file. One that cannot be read is replaced."""
        try:
            return cls(_opened(path), path)
        except (apsw.NotADBError, apsw.CorruptError):
            _remove(path)
            return cls(_opened(path), path)

    @property
    def model(self) -> str:
        """ "" until ``begin``."""
        row = self._row("SELECT identity FROM model")
        return str(row[0]) if row else ""

    @property
    def anew(self) -> bool:
        """Whether they replace vectors of the same model and the vault has not changed over yet. If nothing lacks vectors, only
        this tells that there is something to do."""
        row = self._row("SELECT anew FROM model")
        return bool(row and row[0])

    def begin(self, model: str, dimensions: int, *, anew: bool = False) -> None:
        """Prepares the file for vectors of that model and drops those of another."""
        self._begun = model, dimensions, int(anew)
        if self.model != model:
            self.clear()
        self._change("INSERT OR REPLACE INTO model VALUES (1, ?, ?, ?)", [self._begun])

    def changed_over(self) -> None:
        """Notes that the vault's vectors were dropped for these: only texts without vectors are left to do."""
        self._change("UPDATE model SET anew = 0", [()])

    def clear(self) -> None:
        """Drops all vectors."""
        self._change("DELETE FROM made", [()])

    def add(self, rows: Sequence[tuple[int, str, Sequence[bytes]]]) -> None:
        """Keeps vectors: the chunk's rowid, its text, its windows' vectors. Durable when it returns."""
        self._change(
            "INSERT OR REPLACE INTO made VALUES (?, ?, ?)",
            [(_content(text), chunk, b"".join(windows)) for chunk, text, windows in rows],
        )

    def vectors(self, text: str) -> list[bytes] | None:
        """A text's vectors, or None."""
        row = self._row("SELECT vectors, dimensions FROM made, model WHERE content = ?", (_content(text),))
        if row is None:
            return None
        data, size = row[0], 2 * row[1]
        return [data[at : at + size] for at in range(0, len(data), size)]

    def has(self, content: bytes) -> bool:
        """Whether there are vectors of the text with that hash."""
        return self._row("SELECT 1 FROM made WHERE content = ?", (content,)) is not None

    def count(self) -> int:
        row = self._row("SELECT count(*) FROM made")
        assert row is not None
        return int(row[0])

    def sample(self, database: Database) -> Sample | None:
        """A text of one window and its vector, to compare the model with before going on."""
        rows = self._rows(
            "SELECT chunk, content, vectors FROM made, model WHERE length(vectors) = 2 * dimensions LIMIT 50"
        )
        for chunk, content, vectors in rows:
            text = database.value("SELECT text FROM chunks WHERE rowid = ? AND id = ?", (chunk, content))
            if text is not None:
                return str(text), vectors
        return None

    def prune(self, database: Database) -> int:
        """Drops vectors of texts that the memory no longer has, overwriting them. Returns how many."""
        gone = [
            (content,)
            for content, chunk in self._rows("SELECT content, chunk FROM made")
            if database.value("SELECT 1 FROM chunks WHERE rowid = ? AND id = ?", (chunk, content)) is None
        ]
        self._change("DELETE FROM made WHERE content = ?", gone)
        return len(gone)

    def discard(self) -> None:
        """Overwrites and removes the file."""
        self.clear()
        self.close()
        _remove(self._path)

    def close(self) -> None:
        self._connection.close()

    def _row(self, statement: str, values: tuple[bytes, ...] = ()) -> tuple[Any, ...] | None:
        found = self._rows(statement, values)
        return found[0] if found else None

    def _rows(self, statement: str, values: tuple[bytes, ...] = ()) -> list[tuple[Any, ...]]:
        def read() -> list[tuple[Any, ...]]:
            return cast("list[tuple[Any, ...]]", self._connection.execute(statement, values).fetchall())

        return self._whole(read)

    def _change(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        def write() -> None:
            with self._connection:
                self._connection.executemany(statement, rows)

        self._whole(write)

    def _whole(self, act: Callable[[], T]) -> T:
        """Runs ``act``; if the file proves damaged, replaces it and runs ``act`` again."""
        try:
            return act()
        except (apsw.NotADBError, apsw.CorruptError):
            self._connection.close()
            _remove(self._path)
            self._connection = _opened(self._path)
            if self._begun is not None:
                self._connection.execute("INSERT INTO model VALUES (1, ?, ?, ?)", self._begun)
            return act()


class PreparedEmbedder:
    """An embedder that uses prepared vectors where there are any. It owns the embedder behind it."""

    def __init__(self, embedder: HeldEmbedder, made: PreparedVectors) -> None:
        self._embedder = embedder
        self._made = made

    @property
    def identity(self) -> str:
        return self._embedder.identity

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    @property
    def known(self) -> bool:
        """Whether its identity is known without a request."""
        return bool(getattr(self._embedder, "known", True))

    @property
    def loaded(self) -> bool:
        return self._embedder.loaded

    def expect(self, sample: Sample | None) -> None:
        expect = getattr(self._embedder, "expect", None)
        if expect is not None:
            expect(sample)

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        """See the port. Raises EmbeddingError."""
        if self._made.model != self.identity:
            return self._embedder.embed_windows(texts)
        found = {text: windows for text in texts if (windows := self._made.vectors(text)) is not None}
        missing = [text for text in texts if text not in found]
        new = self._embedder.embed_windows(missing) if missing else []
        found.update(zip(missing, new, strict=True))
        return [found[text] for text in texts]

    def embed_query(self, text: str) -> "NDArray[np.float32]":
        """See the port. Raises EmbeddingError."""
        return self._embedder.embed_query(text)

    def release(self) -> None:
        self._embedder.release()

    def close(self) -> None:
        self._embedder.close()


def _content(text: str) -> bytes:
    """The hash of a text, as in the memory."""
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def _opened(path: Path) -> apsw.Connection:
    return open_scratch(path, _SCHEMA, busy_milliseconds=_BUSY_MS)


def _remove(path: Path) -> None:
    for end in ("", "-journal"):
        path.with_name(path.name + end).unlink(missing_ok=True)
