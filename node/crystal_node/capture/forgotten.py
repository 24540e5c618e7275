"""Leaves out of captures what was forgotten, so that it never leaves this device again."""

from collections.abc import Sequence
from hashlib import sha256

from msgspec import structs

from crystal_mirror.operations import Capture, Operation
from crystal_node.device.device import Device


def without_forgotten(device: Device, operations: Sequence[Operation]) -> list[Operation]:
    """The operations without forgotten texts; empty captures are dropped."""
    kept = (_without_forgotten(device, operation) for operation in operations)
    return [operation for operation in kept if operation is not None]


def _without_forgotten(device: Device, operation: Operation) -> Operation | None:
    if not isinstance(operation, Capture):
        return operation
    contents = [sha256(piece.text.encode()).digest() for piece in operation.pieces]
    hidden = device.replica.hidden(contents)
    if not hidden:
        return operation
    pieces = tuple(
        piece for piece, content in zip(operation.pieces, contents, strict=True) if content not in hidden
    )
    return structs.replace(operation, pieces=pieces) if pieces else None
