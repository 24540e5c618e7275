"""Many small objects in one request: what relay and device say to each other (docs/relay-api.md, R3.9 and R3.10), and the port.

    write:  for each object  u16 length of the key | u32 length | key, ASCII | bytes
    reply:  for each key     u8 state              | u32 length | bytes, if the state is THERE

Integers are big-endian. A store that cannot do it takes objects one at a time: all of them are then to be asked for ALONE.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol, runtime_checkable

from crystal_relay.errors import BadReply, BadRequest
from crystal_relay.limits import BATCH_BYTES_MAX, BATCH_OBJECT_BYTES_MAX, BATCH_OBJECTS_MAX, KEY_CHARS_MAX

_WRITE = struct.Struct(">HI")
_READ = struct.Struct(">BI")
WRITE_BODY_BYTES_MAX = BATCH_BYTES_MAX + BATCH_OBJECTS_MAX * (_WRITE.size + KEY_CHARS_MAX)
READ_REPLY_BYTES_MAX = BATCH_BYTES_MAX + BATCH_OBJECTS_MAX * _READ.size


class Lacking(IntEnum):
    """Why a reply brings no bytes for a key. ALONE: it is to be asked for, or sent, by itself."""

    ABSENT = 0
    ALONE = 2
    DAMAGED = 3


_THERE = 1

Found = bytes | Lacking
Written = bool | Lacking
"""Whether the object was created; False: the key is taken. ALONE: nothing was tried."""


@runtime_checkable
class BatchStore(Protocol):
    """A store that takes many small objects at once. Keys are full ones, as in `Store`."""

    async def read_many(self, keys: Sequence[str], bytes_max: int) -> Sequence[Found]:
        """The objects of at most `bytes_max` bytes at up to `BATCH_OBJECTS_MAX` keys, in this order."""
        ...

    async def write_many(self, objects: Sequence[tuple[str, bytes]]) -> Sequence[Written]:
        """Create objects within the limits of a batch. What was created is durable. An error leaves open which were."""
        ...


async def read_many(store: object, keys: Sequence[str], bytes_max: int) -> Sequence[Found]:
    """As `BatchStore`, of any store."""
    if isinstance(store, BatchStore):
        return await store.read_many(keys, bytes_max)
    return [Lacking.ALONE] * len(keys)


async def write_many(store: object, objects: Sequence[tuple[str, bytes]]) -> Sequence[Written]:
    """As `BatchStore`, of any store."""
    if isinstance(store, BatchStore):
        return await store.write_many(objects)
    return [Lacking.ALONE] * len(objects)


def encode_writes(objects: Sequence[tuple[str, bytes]]) -> bytes:
    """The body of a request that writes."""
    pieces: list[bytes] = []
    for key, body in objects:
        name = key.encode("ascii")
        pieces += [_WRITE.pack(len(name), len(body)), name, body]
    return b"".join(pieces)


def parse_writes(body: bytes) -> list[tuple[str, bytes]]:
    """Raises BadRequest."""
    objects: list[tuple[str, bytes]] = []
    at, held = 0, 0
    while at < len(body):
        if len(objects) == BATCH_OBJECTS_MAX:  # §R3.10-1
            raise BadRequest(f"a request writes at most {BATCH_OBJECTS_MAX} objects")
        if at + _WRITE.size > len(body):
            raise BadRequest("the body ends within an object")
        key_size, size = _WRITE.unpack_from(body, at)
        at += _WRITE.size
        held += size
        if (
            not 0 < key_size <= KEY_CHARS_MAX or size > BATCH_OBJECT_BYTES_MAX or held > BATCH_BYTES_MAX
        ):  # §R3.10-1
            raise BadRequest("a key or an object is larger than a request for many takes")
        end = at + key_size + size
        if end > len(body):
            raise BadRequest("the body ends within an object")
        try:
            key = body[at : at + key_size].decode("ascii")
        except UnicodeDecodeError:
            raise BadRequest("a key is not ASCII") from None
        objects.append((key, body[at + key_size : end]))
        at = end
    if not objects:
        raise BadRequest("there is nothing to write")
    if len({key for key, _ in objects}) != len(objects):
        raise BadRequest("a key comes twice")
    return objects


def encode_reads(found: Sequence[Found]) -> bytes:
    """The body of a reply to a request that reads."""
    pieces: list[bytes] = []
    for each in found:
        if isinstance(each, Lacking):
            pieces.append(_READ.pack(each, 0))
        else:
            pieces += [_READ.pack(_THERE, len(each)), each]
    return b"".join(pieces)


def parse_reads(body: bytes, count: int, bytes_max: int) -> list[Found]:
    """What a relay says of `count` keys. Raises BadReply."""
    found: list[Found] = []
    at = 0
    while at < len(body) and len(found) < count:
        if at + _READ.size > len(body):
            break
        state, size = _READ.unpack_from(body, at)
        at += _READ.size
        if state == _THERE:
            if size > bytes_max or at + size > len(body):
                raise BadReply("the relay sent an object that is larger than asked for, or a part of one")
            found.append(body[at : at + size])
            at += size
        elif size or state not in tuple(Lacking):
            raise BadReply("the relay's reply for many objects is not understood")
        else:
            found.append(Lacking(state))
    if at != len(body) or len(found) != count:
        raise BadReply("the relay's reply has another number of objects than asked for")
    return found
