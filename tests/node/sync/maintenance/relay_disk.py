"""A relay's disk under a test's hands: it is stopped, something is lost or changed, and it goes on."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

from crystal_relay.local.store import LocalStore
from tests.support.relay_process import RelayProcess


def lose(relay: RelayProcess, vault: str, goes: Callable[[str], bool]) -> list[str]:
    """Loses all objects of the vault whose key is so. Returns the keys."""
    return _edit(relay, vault, goes, None)


def change(relay: RelayProcess, vault: str, goes: Callable[[str], bool]) -> list[str]:
    """Flips a bit in the last bytes of all objects of the vault whose key is so. Returns the keys."""
    return _edit(relay, vault, goes, lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])


def lose_files(relay: RelayProcess, vault: str, goes: Callable[[str], bool]) -> list[str]:
    """Loses the files of the objects whose key is so, not the rows that tell of them. Returns those keys.

    Few objects are large enough for a file of their own, so all are first written to files.
    """
    relay.stop()
    try:
        keys = [key for key in asyncio.run(_kept_in_files(relay.directory, f"v/{vault}/")) if goes(key)]
        with sqlite3.connect(relay.directory / "objects.db") as connection:
            files = dict(connection.execute("SELECT key, file FROM object WHERE file IS NOT NULL").fetchall())
        for key in keys:
            (path,) = relay.directory.rglob(f"{Path(files[key]).name}.*")
            path.unlink()
    finally:
        relay.start()
    return keys


async def _kept_in_files(directory: Path, prefix: str) -> list[str]:
    """Writes objects once more, each to a file. Returns their keys."""
    store = LocalStore(directory, inline_bytes_max=0)
    try:
        keys = [entry.key for entry in (await store.list(prefix)).entries]
        for key in keys:
            await store.put(key, await (await store.get(key)).read())
    finally:
        await store.aclose()
    return keys


def _edit(
    relay: RelayProcess, vault: str, goes: Callable[[str], bool], changed: Callable[[bytes], bytes] | None
) -> list[str]:
    relay.stop()
    edited: list[str] = []
    try:
        with sqlite3.connect(relay.directory / "objects.db") as connection:
            rows = connection.execute("SELECT key, body, file FROM object ORDER BY key").fetchall()
            for key, body, file in rows:
                if not key.startswith(f"v/{vault}/") or not goes(key):
                    continue
                edited.append(key)
                if changed is None:
                    connection.execute("DELETE FROM object WHERE key = ?", (key,))
                elif body is not None:
                    connection.execute("UPDATE object SET body = ? WHERE key = ?", (changed(body), key))
                else:
                    (path,) = relay.directory.rglob(f"{Path(file).name}.*")
                    path.write_bytes(changed(path.read_bytes()))
    finally:
        relay.start()
    return edited
