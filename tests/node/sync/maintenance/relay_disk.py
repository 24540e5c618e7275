"""A relay's disk under a test's hands: it is stopped, something is lost or changed, and it goes on."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from tests.support.relay_process import RelayProcess


def lose(relay: RelayProcess, vault: str, goes: Callable[[str], bool]) -> list[str]:
    """Loses all objects of the vault whose key is so. Returns the keys."""
    return _edit(relay, vault, goes, None)


def change(relay: RelayProcess, vault: str, goes: Callable[[str], bool]) -> list[str]:
    """Flips a bit in the last bytes of all objects of the vault whose key is so. Returns the keys."""
    return _edit(relay, vault, goes, lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])


def lose_files(relay: RelayProcess, vault: str, goes: Callable[[str], bool]) -> list[str]:
    """Loses the files of the objects whose key is so, not the rows that tell of them. Returns those keys."""
    with sqlite3.connect(relay.directory / "objects.db") as connection:
        rows = connection.execute(
            "SELECT key, file FROM object WHERE file IS NOT NULL ORDER BY key"
        ).fetchall()
    lost: list[str] = []
    for key, file in rows:
        if key.startswith(f"v/{vault}/") and goes(key):
            (path,) = relay.directory.rglob(f"{Path(file).name}.*")
            path.unlink()
            lost.append(key)
    return lost


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
