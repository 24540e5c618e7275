"""What was noticed about the commands' channel, counted in the book for a person to see.

Apart from the notices of the rounds (``notices.py``): each of those begins anew with its round, and commands are looked at in
between. Nothing of what is noted here was run.
"""

from enum import StrEnum

import msgspec

from crystal_mirror.commands.ports import CommandTransaction, CommandView

_META = "troubles"
DETAIL_CHARS_MAX = 200


class CommandNotice(StrEnum):
    """The names."""

    TAMPERED = "tampered"
    """An object is not what its sender can have put there."""
    UNREADABLE = "unreadable"
    """Authentic, and not to be opened or understood here."""
    MISSING = "missing"
    """Entries that a stream must have are not shown."""
    PEER_AHEAD = "peer-log-unknown"
    """Its sender names a device log that is not shown here."""
    COPIED = "copied"
    """Another copy of this device writes commands, or this home was restored from a backup."""
    OVERFULL = "overfull"
    """A device sends more than is taken."""


class NoticeCount(msgspec.Struct, frozen=True, array_like=True):
    """How often, and the last of them in words."""

    count: int
    detail: str


_decoder = msgspec.msgpack.Decoder(dict[str, NoticeCount])
_encoder = msgspec.msgpack.Encoder()


def note_command(transaction: CommandTransaction, trouble: CommandNotice, detail: str) -> None:
    noted = command_notices(transaction)
    before = noted.get(trouble.value)
    count = before.count + 1 if before is not None else 1
    noted[trouble.value] = NoticeCount(count, detail[:DETAIL_CHARS_MAX])
    transaction.meta_set(_META, _encoder.encode(noted))


def command_notices(book: CommandView) -> dict[str, NoticeCount]:
    """By name."""
    kept = book.meta_get(_META)
    return _decoder.decode(kept) if kept else {}
