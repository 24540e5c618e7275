"""Acknowledgements: per stream, the highest sequence of the unbroken run of operations done, and those done beyond gaps.

Both depend only on the set of operations done, not on the order in which they were marked.
"""

from crystal_core.database import Database
from crystal_core.state.digests import ACKS, Digests, ack_row
from crystal_mirror.types import Origin


def ack(database: Database, device: bytes, incarnation: bytes) -> int:
    """Return the highest sequence up to which all of the stream is done; -1 if the first is not."""
    found = database.value(
        "SELECT sequence FROM acks WHERE device = ? AND incarnation = ?", (device, incarnation)
    )
    return -1 if found is None else int(found)


def done(database: Database, origin: Origin) -> bool:
    if origin.sequence <= ack(database, origin.device, origin.incarnation):
        return True
    return _is_sparse(database, origin)


def acks(database: Database) -> list[tuple[bytes, bytes, int]]:
    """Return all streams with an unbroken run, by device and incarnation."""
    return [
        (device, incarnation, int(sequence))
        for device, incarnation, sequence in database.rows(
            "SELECT device, incarnation, sequence FROM acks ORDER BY device, incarnation"
        )
    ]


def mark_done(database: Database, digests: Digests, origin: Origin) -> None:
    """Mark this operation as done. Idempotent.

    Raises ValueError for a sequence below 0.
    """
    device, incarnation, sequence = origin
    if sequence < 0:
        raise ValueError("a sequence cannot be negative")
    before = ack(database, device, incarnation)
    table = digests[ACKS]
    if sequence <= before:
        return
    if sequence > before + 1:  # §11.4-14
        if not _is_sparse(database, origin):
            database.run("INSERT INTO acks_sparse VALUES (?, ?, ?)", origin)
            table.add(ack_row(device, incarnation, sequence, sparse=True))
        return
    after = sequence
    while _is_sparse(database, Origin(device, incarnation, after + 1)):
        after += 1
        database.run(
            "DELETE FROM acks_sparse WHERE device = ? AND incarnation = ? AND sequence = ?",
            (device, incarnation, after),
        )
        table.remove(ack_row(device, incarnation, after, sparse=True))
    if before >= 0:
        table.remove(ack_row(device, incarnation, before, sparse=False))
    database.run(
        "INSERT INTO acks VALUES (?, ?, ?) ON CONFLICT (device, incarnation) DO UPDATE SET sequence = excluded.sequence",
        (device, incarnation, after),
    )
    table.add(ack_row(device, incarnation, after, sparse=False))


def _is_sparse(database: Database, origin: Origin) -> bool:
    return bool(
        database.rows(
            "SELECT 1 FROM acks_sparse WHERE device = ? AND incarnation = ? AND sequence = ?", origin
        )
    )
