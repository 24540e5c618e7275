"""Base of the databases that hold a stream of this device (``state.db``, ``commands.db``): the stream's position, small named
values, transactions.

Every transaction begins ``IMMEDIATE``, and nothing is written outside of one: several processes may open such a file, and
what was read in one transaction is not trusted in the next. Subclasses make the tables ``stream`` and ``meta``.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Self

import apsw

from crystal_core.sqlite_file import immediate
from crystal_mirror.ports import Stream


class StreamDatabase:
    """A database with a stream, over one connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection
        self._inside = False

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def transaction(self) -> Generator[Self]:
        """One transaction, which yields the object itself. Not nested."""
        assert not self._inside, "transactions of one file are not nested"
        with immediate(self._db):
            self._inside = True
            try:
                yield self
            finally:
                self._inside = False

    def stream(self) -> Stream | None:
        row = self._db.execute("SELECT incarnation, sequence, previous FROM stream").fetchone()
        return Stream(*row) if row else None

    def set_stream(self, stream: Stream) -> None:
        self._write(
            "INSERT OR REPLACE INTO stream (one, incarnation, sequence, previous) VALUES (1, ?, ?, ?)",
            (stream.incarnation, stream.sequence, stream.previous),
        )

    def meta_get(self, name: str) -> bytes | None:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def meta_set(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._write("DELETE FROM meta WHERE name = ?", (name,))
        else:
            self._write("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))

    def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        assert self._inside, "it is written in transactions only"
        self._db.execute(statement, values)
