"""Keys, ids and channels of the compatibility layer.

    w/<space>/<channel>/<id>                                a sealed blob; the id says when and by whom it was dropped
    w/<space>/done/<channel>/<id>/<reader>                  that reader has confirmed it
    w/<space>/seen/<day>/<channel>-<dropper>-<digest>       the id that those bytes of that dropper got
    w/<space>/seen/<day>/<channel>-<dropper>-<digest>.gone  all readers have confirmed it; it must not come back

An id is `<milliseconds, 13 digits>-<number, 6 digits>-<dropper, 12 hex>-<digest, 32 hex>`: in the order of the drops, also
within one millisecond, and never the same for different bytes. The digest is the beginning of the SHA-256 of the sealed bytes,
so two processes can only make the same id for the same bytes of the same device.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

from crystal_relay.errors import BadRequest
from crystal_relay.limits import MIB

BLOB_BYTES_MAX = 100 * MIB
HOLDER_DIGITS = 12
DIGEST_DIGITS = 32
SEQUENCE_MAX = 999_999
"""Within one millisecond."""
SPACE = r"[a-z0-9][a-z0-9._-]{0,31}"
AGENT = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""The prototype puts it into paths and command lines, so it has no characters that are special there."""
DAY_MS = 86_400_000
ID = rf"[0-9]{{13}}-[0-9]{{6}}-[0-9a-f]{{{HOLDER_DIGITS}}}-[0-9a-f]{{{DIGEST_DIGITS}}}"

_MS_MAX = 10**13 - 1
_ID = re.compile(rf"([0-9]{{13}})-([0-9]{{6}})-([0-9a-f]{{{HOLDER_DIGITS}}})-([0-9a-f]{{{DIGEST_DIGITS}}})\Z")
_SPACE = re.compile(SPACE + r"\Z")
_AGENT = re.compile(AGENT + r"\Z")


class Role(StrEnum):
    """The role of a device of the prototype."""

    CORE = "core"
    NODE = "node"
    SENDER = "sender"
    """It only drops: no channel is kept for it."""


class V1Channel(StrEnum):
    """The prototype's four channels."""

    CONVERSATIONS = "conversations"
    MIRROR = "mirror"
    COMMANDS = "commands"
    FILES = "files"

    @property
    def reader(self) -> Role:
        """The role whose devices read it."""
        return Role.CORE if self in (V1Channel.CONVERSATIONS, V1Channel.COMMANDS) else Role.NODE


@dataclass(frozen=True, slots=True, order=True)
class DropId:
    """A parsed id. Ids sort in the order of the drops."""

    milliseconds: int
    """Since 1970, by the relay's clock, but never less than an earlier drop's."""
    sequence: int
    dropper: str
    digest: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadRequest; the message does not repeat the text."""
        match = _ID.match(text)
        if match is None:
            raise BadRequest("that is not an id of this relay")
        return cls(int(match[1]), int(match[2]), match[3], match[4])

    def __str__(self) -> str:
        return f"{self.milliseconds:013d}-{self.sequence:06d}-{self.dropper}-{self.digest}"

    @property
    def day(self) -> int:
        """Days since 1970."""
        return self.milliseconds // DAY_MS

    @property
    def dropped_at(self) -> str:
        """ISO 8601, UTC, milliseconds."""
        moment = datetime.fromtimestamp(self.milliseconds // 1000, UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{self.milliseconds % 1000:03d}Z"


def later(last: tuple[int, int] | None, now: int) -> tuple[int, int]:
    """The next drop's milliseconds and number: now, but after `last` even if the clock went back."""
    if last is None or now > last[0]:
        return min(now, _MS_MAX), 0
    milliseconds, sequence = last
    return (milliseconds + 1, 0) if sequence >= SEQUENCE_MAX else (milliseconds, sequence + 1)


def parse_channel(text: str) -> V1Channel:
    """Raises BadRequest."""
    try:
        return V1Channel(text)
    except ValueError:
        raise BadRequest(f"there are the channels {', '.join(V1Channel)}") from None


def check_space(text: str) -> str:
    """Return `text` if it can be a space's name. Raises BadRequest."""
    if _SPACE.match(text) is None:
        raise BadRequest(
            "not a name for a space", hint="1 to 32 of a-z 0-9 . _ - beginning with a letter or digit."
        )
    return text


def check_agent(text: str) -> str:
    """Return `text` if it can be an agent's id. Raises BadRequest."""
    if _AGENT.match(text) is None:
        raise BadRequest(
            "not an id for an agent", hint="1 to 64 of A-Z a-z 0-9 . _ - beginning with a letter or digit."
        )
    return text


# --- keys -------------------------------------------------------------------------------------------------------------


SPACES_PREFIX = "w/"


def space_prefix(space: str) -> str:
    """The prefix of all keys of a space."""
    return f"{SPACES_PREFIX}{space}/"


def channel_prefix(space: str, channel: V1Channel) -> str:
    """The prefix of a channel's blobs."""
    return f"{space_prefix(space)}{channel}/"


def blob_key(space: str, channel: V1Channel, drop: DropId) -> str:
    """The key of the sealed bytes."""
    return f"w/{space}/{channel}/{drop}"


def done_prefix(space: str, channel: V1Channel, drop: DropId | None = None) -> str:
    """The prefix of the confirmations of a channel, or of one drop."""
    return f"w/{space}/done/{channel}/" + ("" if drop is None else f"{drop}/")


def done_key(space: str, channel: V1Channel, drop: DropId, reader: str) -> str:
    """The key of a reader's confirmation of a drop."""
    return f"{done_prefix(space, channel, drop)}{reader}"


def seen_prefix(space: str) -> str:
    """The prefix of the records of earlier drops, in the order of days."""
    return f"w/{space}/seen/"


def seen_key(space: str, channel: V1Channel, drop: DropId, *, days_before: int = 0) -> str:
    """The key of the record of the id that a drop's bytes got, on the drop's day or some days before."""
    return f"w/{space}/seen/{drop.day - days_before:06d}/{channel}-{drop.dropper}-{drop.digest}"


def gone_key(space: str, channel: V1Channel, drop: DropId) -> str:
    """The key of the mark that all readers have confirmed a drop."""
    return f"{seen_key(space, channel, drop)}.gone"


def day_of_seen(space: str, key: str) -> int:
    """The day in the key of such a record."""
    return int(key.removeprefix(seen_prefix(space)).partition("/")[0])
