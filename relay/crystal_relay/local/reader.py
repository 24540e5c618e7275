"""Reading rows and opening files, in reader threads, each with its own connection.

A reader sees all that was committed when its statement began and never waits for the writer.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from threading import local as thread_local
from typing import Any, BinaryIO, TypeAlias, cast

import apsw
import msgspec

from crystal_relay.errors import StoreDamaged
from crystal_relay.keys import AFTER_ANY_KEY, BEFORE_ANY_KEY
from crystal_relay.local.database import open_for_reading
from crystal_relay.local.files import ObjectFiles
from crystal_relay.store import Listed

_LIST = """
    SELECT json_group_array(json_array(key, size)) FROM (
      SELECT key, size FROM object WHERE key >= ? AND key < ? ORDER BY key LIMIT ?
    )"""
_LIST_JSON = """
    SELECT count(*), CAST(group_concat(substr(key, ?) || '","size":' || size, '},{"key":"') AS BLOB) FROM (
      SELECT key, size FROM object WHERE key >= ? AND key < ? ORDER BY key LIMIT ?
    )"""
"""The count, and the text from the first key to the end of the last object. Keys have no character that JSON escapes."""
_BETWEEN = b'},{"key":"'
_LISTED = msgspec.json.Decoder(list[Listed])
REREADS_MAX = 5
"""Retries if an object is replaced between reading its row and opening its file."""


Row: TypeAlias = tuple[int, str | None, bytes]
"""Size; then the name of a file, or None and the bytes."""
Rows: TypeAlias = dict[str, Row]


class RowReader:
    """All calls block; any thread may make them."""

    def __init__(self, database: Path, files: ObjectFiles) -> None:
        self._database = database
        self._files = files
        self._of_thread = thread_local()
        self._opened: list[apsw.Connection] = []

    def select_rows(self, keys: Sequence[str]) -> Rows:
        """The rows of those objects that are there, by key. Raises apsw.Error."""
        marks = ", ".join("?" * len(keys))
        found = self._connection().execute(
            f"SELECT key, size, file, body FROM object WHERE key IN ({marks})",  # noqa: S608  (no values in it)
            keys,
        )
        return {key: (size, file, body) for key, size, file, body in cast(list[Any], found.fetchall())}

    def look_up(self, key: str, rows: Rows | None) -> tuple[int, bytes | BinaryIO] | None:
        """Size, and the bytes or an open file; None if there is no such object. Raises StoreDamaged, apsw.Error, OSError.

        `rows`: what was just selected for this key, perhaps with others; None: nothing yet."""
        for _ in range(REREADS_MAX):
            row = (self.select_rows((key,)) if rows is None else rows).get(key)
            if row is None:
                return None
            size, name, body = row
            if name is None:
                return size, body
            try:
                file = self._files.open(name)
            except FileNotFoundError:
                rows = None  # replaced or deleted between the two steps: the row tells
                continue
            if os.fstat(file.fileno()).st_size != size:
                file.close()
                raise StoreDamaged("a file of the relay's directory has another size than recorded")
            return size, file
        raise StoreDamaged("a file of the relay's directory is missing")

    def exists(self, key: str) -> bool:
        """Whether the object is there."""
        return self._connection().execute("SELECT 1 FROM object WHERE key = ?", (key,)).fetchone() is not None

    def select(self, prefix: str, after: str, limit: int) -> list[Listed]:
        """Keys and sizes in the order of keys.

        SQLite puts them into one JSON text: a row less to fetch is a turn less at the interpreter's lock.
        """
        text = self._connection().execute(_LIST, (*_range(prefix, after), limit)).get
        return _LISTED.decode(text)

    def select_json(self, prefix: str, after: str, limit: int, cut: int) -> tuple[bytes, bool]:
        """At most `limit` as a JSON array of objects, without the first `cut` characters of keys; whether there are more."""
        values = (cut + 1, *_range(prefix, after), limit + 1)
        count, inner = cast(tuple[int, bytes], self._connection().execute(_LIST_JSON, values).fetchone())
        if not count:
            return b"[]", False
        if count > limit:
            inner = inner[: inner.rindex(_BETWEEN)]
        return b'[{"key":"%b}]' % inner, count > limit

    def close(self) -> None:
        """Close the connections, after the threads that used them have ended."""
        for connection in self._opened:
            connection.close()

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = open_for_reading(self._database)
            self._of_thread.connection = connection
            self._opened.append(connection)
        return connection


def _range(prefix: str, after: str) -> tuple[str, str]:
    """Bounds of the keys with a prefix that come after a key. There is one lower bound: with two, SQLite would read from
    the one and compare each key with the other."""
    return max(prefix, after + BEFORE_ANY_KEY), prefix + AFTER_ANY_KEY
