"""Local state of the mirror: the position applied so far, sealed entries, small named values."""

from crystal_core.database import Database, Row
from crystal_mirror.types import START, EntryState, KeptEntry, Position

RESERVED = "core."
"""Prefix of names in `meta` that are reserved to this package."""
MODEL = "model"
"""Name of the mirror's value for the identity of the model that made the vectors."""


def position(database: Database) -> Position:
    row = database.row("SELECT epoch, sequence, previous FROM position")
    return START if row is None else Position(*row)


def set_position(database: Database, new: Position) -> None:
    database.run(
        "INSERT INTO position VALUES (1, ?, ?, ?) ON CONFLICT (one) DO UPDATE"
        " SET epoch = excluded.epoch, sequence = excluded.sequence, previous = excluded.previous",
        new,
    )


def entries(database: Database, epoch: int, first: int, limit: int) -> list[KeptEntry]:
    """Return at most `limit` entries of `epoch` from slot `first` on, by slot."""
    return [
        _entry(row)
        for row in database.rows(
            "SELECT epoch, sequence, data, state FROM mirror_log WHERE epoch = ? AND sequence >= ?"
            " ORDER BY sequence LIMIT ?",
            (epoch, first, limit),
        )
    ]


def last_entry(database: Database, epoch: int) -> KeptEntry | None:
    """Return the entry of `epoch` with the highest slot."""
    row = database.row(
        "SELECT epoch, sequence, data, state FROM mirror_log WHERE epoch = ? ORDER BY sequence DESC LIMIT 1",
        (epoch,),
    )
    return None if row is None else _entry(row)


def kept(database: Database, state: EntryState) -> list[KeptEntry]:
    """Return all entries in that state, by epoch and slot."""
    return [
        _entry(row)
        for row in database.rows(
            "SELECT epoch, sequence, data, state FROM mirror_log WHERE state = ? ORDER BY epoch, sequence",
            (int(state),),
        )
    ]


def oldest_kept(database: Database) -> tuple[int, int] | None:
    """Return epoch and slot of the first entry."""
    row = database.row("SELECT epoch, sequence FROM mirror_log ORDER BY epoch, sequence LIMIT 1")
    return None if row is None else (int(row[0]), int(row[1]))


def kept_bytes(database: Database, epoch: int, first: int) -> int:
    """Return the size in bytes of the entries from that place on, in all epochs."""
    return int(
        database.value(
            "SELECT coalesce(sum(length(data)), 0) FROM mirror_log WHERE (epoch, sequence) >= (?, ?)",
            (epoch, first),
        )
    )


def drop_entries_before(database: Database, epoch: int, sequence: int) -> int:
    return database.changed("DELETE FROM mirror_log WHERE (epoch, sequence) < (?, ?)", (epoch, sequence))


def keep_entry(database: Database, entry: KeptEntry) -> None:
    """Keep an entry, replacing the one kept for its slot."""
    database.run(
        "INSERT INTO mirror_log (epoch, sequence, state, data) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (epoch, sequence) DO UPDATE SET state = excluded.state, data = excluded.data",
        (entry.epoch, entry.sequence, int(entry.state), entry.data),
    )


def drop_entry(database: Database, epoch: int, sequence: int) -> None:
    database.run("DELETE FROM mirror_log WHERE epoch = ? AND sequence = ?", (epoch, sequence))


def set_entry_state(database: Database, epoch: int, sequence: int, state: EntryState) -> None:
    database.run(
        "UPDATE mirror_log SET state = ? WHERE epoch = ? AND sequence = ?", (int(state), epoch, sequence)
    )


def meta_get(database: Database, name: str) -> bytes | None:
    value = database.value("SELECT value FROM meta WHERE name = ?", (name,))
    return None if value is None else bytes(value)


def meta_set(database: Database, name: str, value: bytes | None) -> None:
    """Set the named value, or remove it with None."""
    if value is None:
        database.run("DELETE FROM meta WHERE name = ?", (name,))
        return
    database.run(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def _entry(row: Row) -> KeptEntry:
    epoch, sequence, data, state = row
    return KeptEntry(epoch, sequence, data, EntryState(state))
