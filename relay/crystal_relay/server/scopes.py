"""Channels of a vault, and what a token may do in them.

    scope    may                                                          device   lead
    read     get and list everything in the vault, wait                     x        x
    own      write conversations/<device>.*, commands/<device>.*,           x        x
             cursor/<device>, blob/*
    devlog   write devlog/*                                                          x
    mirror   write mirror/*; delete anything in the vault                            x
    tokens   let tokens in and shut them out; write invite/*                         x

Keys are written once, whoever writes; only `cursor/` is overwritten. A key's form is fixed for each channel, so that
nobody can fill a vault with what no device would ever look at.
"""

import re
from dataclasses import dataclass
from enum import Enum

from crystal_relay.errors import BadRequest, Forbidden
from crystal_relay.keys import check_key
from crystal_relay.limits import (
    BLOB_BYTES_MAX,
    ENTRY_BYTES_MAX,
    INVITE_BYTES_MAX,
    INVITE_SECONDS,
    INVITE_SLOT_CHARS_MAX,
)
from crystal_relay.tokens import Preset


class Scope(Enum):
    """See the table above."""

    READ = "read"
    OWN = "own"
    DEVLOG = "devlog"
    MIRROR = "mirror"
    TOKENS = "tokens"


SCOPES: dict[Preset, frozenset[Scope]] = {
    Preset.DEVICE: frozenset({Scope.READ, Scope.OWN}),
    Preset.LEAD: frozenset(Scope),
}


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel: the form of its keys (group 1: the device that owns the key), who writes, how much at most."""

    form: re.Pattern[str]
    writer: Scope
    bytes_max: int = ENTRY_BYTES_MAX
    overwritten: bool = False
    vital: bool = False
    """Let in a little beyond the vault's quota: without it nothing could be deleted or revoked."""
    life_seconds: int = 0
    """Objects are removed at this age; 0: they stay."""


_NAME = r"[a-z0-9._-]+"
_STREAM = r"([0-9a-f]{32})\.[0-9a-f]{16}"

CHANNELS: dict[str, Channel] = {
    "devlog": Channel(re.compile(rf"devlog/{_NAME}\Z"), Scope.DEVLOG, vital=True),
    "conversations": Channel(re.compile(rf"conversations/{_STREAM}/{_NAME}\Z"), Scope.OWN),
    "mirror": Channel(re.compile(rf"mirror/{_NAME}/{_NAME}\Z"), Scope.MIRROR),
    "commands": Channel(re.compile(rf"commands/{_STREAM}/{_NAME}\Z"), Scope.OWN),
    "cursor": Channel(re.compile(r"cursor/([0-9a-f]{32})\Z"), Scope.OWN, overwritten=True, vital=True),
    "blob": Channel(re.compile(rf"blob/{_NAME}\Z"), Scope.OWN, BLOB_BYTES_MAX),
    "invite": Channel(
        re.compile(rf"invite/[0-9a-f]{{32}}/[a-z0-9._-]{{1,{INVITE_SLOT_CHARS_MAX}}}\Z"),
        Scope.TOKENS,
        INVITE_BYTES_MAX,
        life_seconds=INVITE_SECONDS,
    ),
}


@dataclass(frozen=True, slots=True)
class Place:
    """An object's key within its vault, parsed."""

    key: str
    channel: Channel
    owner: str | None
    """The device that alone may write it, if the channel has owners."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks: a device that a vault knows, and what it may do."""

    vault: str
    device: str
    scopes: frozenset[Scope]

    def require(self, scope: Scope) -> None:
        """Raises Forbidden."""
        if scope not in self.scopes:
            raise Forbidden(f"this token lacks the scope `{scope.value}`")

    def require_write(self, place: Place) -> None:
        """Raises Forbidden."""
        self.require(place.channel.writer)
        if place.owner is not None and place.owner != self.device:
            raise Forbidden("a device writes its own keys only")


def parse_place(key: str) -> Place:
    """Parse a key within a vault. Raises BadRequest."""
    check_key(key)
    channel = CHANNELS.get(key.partition("/")[0])
    match = channel.form.match(key) if channel is not None else None
    if channel is None or match is None:
        raise BadRequest("no channel has such keys", hint="See the table of channels in docs/relay-api.md.")
    return Place(key, channel, match[1] if match.re.groups else None)
