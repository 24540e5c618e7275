"""Documents as operations: a file's passages in as few as hold them."""

from collections.abc import Iterator
from hashlib import sha256

from crystal_core.cutting import Kind, Passage
from crystal_mirror.operations import MILLISECONDS_MAX, PutDocument
from crystal_node.device.device import Device

TEXT_BYTES_MAX = 192 * 1024
"""Of texts and titles in one operation: with its other fields it stays under ``OPERATION_BYTES_MAX``."""
PIECES_AT_ONCE = 64
"""Of one operation, which travels with their vectors in one entry: a remote model's may take 12 KiB each."""
_EACH = 16
"""Bytes that a text takes beyond itself."""


def put_operations(
    source: str, path: str, version: bytes, modified_ns: int, kind: Kind, passages: list[Passage]
) -> Iterator[PutDocument]:
    """The operations of one document, in their order."""
    first = 0
    modified_at = min(max(modified_ns // 1_000_000, 0), MILLISECONDS_MAX)
    for group in _groups(passages):
        yield PutDocument(
            source,
            path,
            version,
            modified_at,
            kind.value,
            first,
            len(passages),
            tuple(passage.text for passage in group),
            tuple(passage.title for passage in group),
        )
        first += len(group)


def without_forgotten(device: Device, passages: tuple[Passage, ...]) -> list[Passage]:
    """Passages whose text is forgotten never leave this device again, whatever the file still says."""
    hides = device.replica.hides
    return [passage for passage in passages if not hides(sha256(passage.text.encode()).digest())]


def _groups(passages: list[Passage]) -> Iterator[list[Passage]]:
    group: list[Passage] = []
    size = 0
    for passage in passages:
        length = len(passage.text.encode()) + len(passage.title.encode()) + _EACH
        if group and (len(group) == PIECES_AT_ONCE or size + length > TEXT_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append(passage)
        size += length
    if group:
        yield group
