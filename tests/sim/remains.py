"""What the relay still holds, opened with every key of the vault: a forgotten text must not be in it when its week is over.

Entries, packs of entries, parts of snapshots and parts of files are opened as far as that goes; what does not open as any of
these is searched as it is.
"""

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from crystal_core.snapshots.parts import decode_part
from crystal_crypto.blob import parse_blob_header
from crystal_crypto.entry import parse
from crystal_crypto.errors import CryptoError
from tests.sim.thief import member_of
from tests.sim.world import World
from tests.support.blobs import whatever_it_holds


def holders(world: World, text: str) -> list[str]:
    """The keys of the objects in which the text stands."""
    wanted = text.encode()
    return [
        key
        for key, data in sorted(world.store.objects.items())
        if any(wanted in clear for clear in (data, *_clear(world, key, data)))
    ]


def _clear(world: World, key: str, data: bytes) -> Iterator[bytes]:
    if "/blob/" in key:
        content = _blob(world, bytes.fromhex(key.rpartition("/")[2]), data)
        yield content
        with suppress(CryptoError):
            yield from decode_part(content).texts
        with suppress(msgspec.MsgspecError):
            for entry in msgspec.msgpack.decode(content, type=list[bytes]):
                yield from _frames(world, entry)
    else:
        yield from _frames(world, data)


def _frames(world: World, data: bytes) -> Iterator[bytes]:
    with suppress(CryptoError):
        entry = parse(data)
        yield from entry.open(world.generations.of(entry))


def _blob(world: World, name: bytes, data: bytes) -> bytes:
    member = member_of(world.core)
    key = member.key_for(parse_blob_header(data).generation)
    assert key is not None, "the Core has every key"
    try:
        return whatever_it_holds(data, name=name, vault=world.vault, key=key)
    except CryptoError:
        return b""
