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
    pieces = tuple(piece for piece in operation.pieces if not _is_forgotten(device, piece.text))
    if len(pieces) == len(operation.pieces):
        return operation
    return structs.replace(operation, pieces=pieces) if pieces else None


def _is_forgotten(device: Device, text: str) -> bool:
    return device.replica.hides(sha256(text.encode()).digest())
