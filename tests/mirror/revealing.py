"""Everything on a relay, opened with every key that a device holds: where a text still is."""

from collections.abc import Iterator, Mapping

import msgspec

from crystal_core.snapshots.parts import decode_part
from crystal_crypto.blob import parse_blob_header
from crystal_crypto.entry import parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.membership.member import Member
from crystal_mirror.snapshots.packs import unpacked
from tests.mirror.household import Household
from tests.support.blobs import whatever_it_holds


def holders(home: Household, text: str) -> list[str]:
    """The kinds of object (mirror, conversations, blob) of which some hold the text."""
    return sorted({key.split("/")[2] for key, _ in revealing(home.core, home.store, text)})


def revealing(member: Member, store: Mapping[str, bytes], text: str) -> Iterator[tuple[str, bytes]]:
    """The objects that hold it."""
    wanted = text.encode()
    for key, data in store.items():
        if any(wanted in content for content in contents(member, key, data)):
            yield key, data


def contents(member: Member, key: str, data: bytes) -> Iterator[bytes]:
    """All that an object says, sealed or not, as far as it opens; decompressed."""
    yield data
    if "/blob/" in key:
        content = _blob(member, bytes.fromhex(key.rpartition("/")[2]), data)
        if content is not None:
            yield content
            yield from _part(content)
            for entry in _pack(content):
                yield from entries(member, entry)
        return
    yield from entries(member, data)


def entries(member: Member, data: bytes) -> Iterator[bytes]:
    """The frames of a sealed entry; nothing if it is none, or does not open."""
    try:
        entry = parse(data)
        generation = member.key_for(entry.header.generation)
        if generation is not None:
            yield from entry.open(generation)
    except CryptoError:
        return


def _blob(member: Member, name: bytes, data: bytes) -> bytes | None:
    try:
        generation = member.key_for(parse_blob_header(data).generation)
    except CryptoError:
        return None
    if generation is None:
        return None
    try:
        return whatever_it_holds(data, name=name, vault=member.vault, key=generation)
    except CryptoError:
        return None


def _part(content: bytes) -> Iterator[bytes]:
    try:
        yield from decode_part(content).texts
    except CryptoError:
        return


def _pack(content: bytes) -> list[bytes]:
    try:
        return unpacked(content)
    except msgspec.MsgspecError:
        return []
