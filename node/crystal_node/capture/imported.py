"""Leaves out of captures what an import has already brought from the database of another program that read the same transcript.

Such a database gives a message's session, role and time, but no id, so the imported message cannot get the same place.
"""

from collections.abc import Sequence

from msgspec import structs

from crystal_mirror.operations import Capture, Operation
from crystal_node.device.device import Device

IMPORTED_SOURCE = "memory-crystal"
"""The source of messages that were imported from such a database."""


def without_imported(device: Device, operations: Sequence[Operation]) -> list[Operation]:
    """The operations without what was imported; empty captures are dropped."""
    kept = (_without_imported(device, each) if isinstance(each, Capture) else each for each in operations)
    return [operation for operation in kept if operation is not None]


def in_memory(device: Device, capture: Capture) -> list[bool]:
    """For each piece of a capture, whether the memory has it: at its place, or imported, or (of an import) by a capture or an
    earlier import, which may have had it from elsewhere: a database, a drop, a staged file."""
    found = [device.replica.recorded(capture), device.replica.said_alike(capture, IMPORTED_SOURCE)]
    if capture.source == IMPORTED_SOURCE:
        captured = structs.replace(capture, source="")
        found.append(device.replica.said_alike(captured, IMPORTED_SOURCE, timed=True))
    return [any(each) for each in zip(*found, strict=True)]


def _without_imported(device: Device, capture: Capture) -> Capture | None:
    said = device.replica.said_alike(capture, IMPORTED_SOURCE)
    if not any(said):
        return capture
    pieces = tuple(piece for piece, known in zip(capture.pieces, said, strict=True) if not known)
    return structs.replace(capture, pieces=pieces) if pieces else None
