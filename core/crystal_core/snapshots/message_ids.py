"""Compact encoding of message ids in a snapshot's part: UUIDs as bytes, others without the prefix shared with the one before.

Each id has a code: 0 if it equals the one before it ("" before the first), 1 for the next of the UUIDs, 2 + n if it shares n
characters with the one before it and continues with the next of the tails.
"""

from collections.abc import Sequence

from crystal_crypto.errors import Malformed
from crystal_mirror.operations import NAME_CHARS_MAX
from crystal_mirror.ports import SNAPSHOT_PART_BYTES_MAX
from crystal_mirror.uuids import UUID_BYTES, packed_uuid, uuid_text

_AS_BEFORE = 0
_NEXT_UUID = 1
_SHARED = 2

CODE_MAX = _SHARED + NAME_CHARS_MAX


def shortened(messages: Sequence[str]) -> tuple[bytes, list[str], list[int]]:
    """Return the UUIDs, the tails of the others, and a code for each id."""
    uuids, tails, codes = bytearray(), list[str](), list[int]()
    before = ""
    for message in messages:
        if message == before:
            codes.append(_AS_BEFORE)
        elif (packed := packed_uuid(message)) is not None:
            uuids += packed
            codes.append(_NEXT_UUID)
        else:
            shared = _shared(before, message)
            tails.append(message[shared:])
            codes.append(_SHARED + shared)
        before = message
    return bytes(uuids), tails, codes


def restored(uuids: bytes, tails: Sequence[str], codes: Sequence[int]) -> list[str]:
    """Return the ids. Raises Malformed."""
    long: list[str] = []
    before = ""
    uuid = tail = chars = 0
    for code in codes:
        if code == _NEXT_UUID:
            before = uuid_text(uuids[uuid : uuid + UUID_BYTES])
            uuid += UUID_BYTES
        elif code != _AS_BEFORE:
            shared = code - _SHARED
            if shared > len(before):  # §13.1-2
                raise Malformed("a message id shares more than there is")
            before = before[:shared] + tails[tail]
            tail += 1
            chars += len(before)
            if len(before) > NAME_CHARS_MAX or chars > SNAPSHOT_PART_BYTES_MAX:  # §13.1-2
                raise Malformed("the message ids of a part are over the limit")
        long.append(before)
    if uuid != len(uuids) or tail != len(tails):  # §13.1-2
        raise Malformed("a part does not have as many message ids as it names")
    return long


def _shared(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))
