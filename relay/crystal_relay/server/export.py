"""The sealed content of a vault, in pieces that fit into a line of the operator's socket.

Objects come in order of their keys, each in one piece or more, and whole: an object that was deleted meanwhile is left
out. Objects that are written behind the listing are not in it; a vault that is read-only does not change.
"""

from collections.abc import AsyncIterator

import msgspec

from crystal_relay.errors import NotFound
from crystal_relay.keys import vault_prefix
from crystal_relay.store import Store

PIECE_BYTES = 32 * 1024
"""In a line as base64: 43 KiB."""


class ExportPiece(msgspec.Struct, frozen=True):
    """A piece of an object. `key`: within the vault. `size`: of the whole object, in bytes. `start`: of the piece in it."""

    key: str
    size: int
    start: int
    data: bytes


async def export_pieces(store: Store, vault: str) -> AsyncIterator[ExportPiece]:
    """All objects of a vault. Raises errors of the store."""
    prefix = vault_prefix(vault)
    after, more = "", True
    while more:
        page = await store.list(prefix, after=after)
        for entry in page.entries:
            async for piece in _pieces(store, prefix, entry.key):
                yield piece
        more = page.more
        after = page.entries[-1].key if page.entries else after


async def _pieces(store: Store, prefix: str, key: str) -> AsyncIterator[ExportPiece]:
    try:
        found = await store.get(key)
    except NotFound:
        return
    name, start = key.removeprefix(prefix), 0
    async with found:
        if not found.size:
            yield ExportPiece(name, 0, 0, b"")
        async for data in found:
            for at in range(0, len(data), PIECE_BYTES):
                part = bytes(data[at : at + PIECE_BYTES])
                yield ExportPiece(name, found.size, start, part)
                start += len(part)
