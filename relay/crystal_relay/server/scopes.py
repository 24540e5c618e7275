"""Channels of a vault, and what a token may do in them.

    scope    may                                                          device   lead
    read     get and list everything in the vault, wait                     x        x
    own      write conversations/<device>.*, commands/<device>.*,           x        x
             cursor/<device>, blob/*
    devlog   write devlog/*                                                          x
    mirror   write mirror/*; delete anything in the vault; replace a                 x
             damaged slot of devlog/ or mirror/
    tokens   register and revoke tokens; open invites, read and                      x
             write their slots

Keys are written once; only `cursor/` is overwritten, and a slot of `devlog/` or `mirror/` by who may delete it: a slot that was
damaged at rest is put back. Each channel has a fixed form of keys, so that a vault cannot be filled with objects that no device
would read.

A newcomer with an invite's access secret has none of these scopes: it reads its mailbox, and writes two slots of it.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from crystal_relay.errors import BadRequest, Forbidden, VaultReadOnly
from crystal_relay.invites import NEWCOMER_SLOTS, MailboxSlot
from crystal_relay.keys import check_key
from crystal_relay.limits import BLOB_BYTES_MAX, ENTRY_BYTES_MAX, INVITE_BYTES_MAX, LOG_ENTRY_BYTES_MAX
from crystal_relay.tokens import Preset


class TokenScope(Enum):
    """Rights of a token; the module's docstring has the table."""

    READ = "read"
    OWN = "own"
    DEVLOG = "devlog"
    MIRROR = "mirror"
    TOKENS = "tokens"


SCOPES: dict[Preset, frozenset[TokenScope]] = {  # §R2-6
    Preset.DEVICE: frozenset({TokenScope.READ, TokenScope.OWN}),
    Preset.LEAD: frozenset(TokenScope),
}


@dataclass(frozen=True, slots=True)
class KeyChannel:
    """One channel: the form of its keys (named groups: the device that owns the key, an invite's mailbox and slot), who
    writes, how much at most."""

    form: re.Pattern[str]
    writer: TokenScope
    bytes_max: int = ENTRY_BYTES_MAX
    overwritten: bool = False
    restored: bool = False
    """Replaced by tokens with the scope `mirror`, which might delete the object: it may be damaged."""
    vital: bool = False
    """Admitted a little beyond the quota: without it nothing could be deleted or revoked."""


READ_ONLY_HINT = (
    "Ask the operator. Devices still fetch what is there; they keep what is new, and send it later."
)
_NAME = r"[a-z0-9._-]+"
_DEVICE = r"(?P<owner>[0-9a-f]{32})"
_STREAM = rf"{_DEVICE}\.[0-9a-f]{{16}}"

_MAILBOX = re.compile(r"invite/([0-9a-f]{32})/")

CHANNELS: dict[str, KeyChannel] = {
    "devlog": KeyChannel(
        re.compile(rf"devlog/{_NAME}\Z"), TokenScope.DEVLOG, LOG_ENTRY_BYTES_MAX, restored=True, vital=True
    ),
    "conversations": KeyChannel(re.compile(rf"conversations/{_STREAM}/{_NAME}\Z"), TokenScope.OWN),
    "mirror": KeyChannel(re.compile(rf"mirror/{_NAME}/{_NAME}\Z"), TokenScope.MIRROR, restored=True),
    "commands": KeyChannel(re.compile(rf"commands/{_STREAM}/{_NAME}\Z"), TokenScope.OWN),
    "cursor": KeyChannel(re.compile(rf"cursor/{_DEVICE}\Z"), TokenScope.OWN, overwritten=True, vital=True),
    "blob": KeyChannel(re.compile(rf"blob/{_NAME}\Z"), TokenScope.OWN, BLOB_BYTES_MAX),
    "invite": KeyChannel(
        re.compile(rf"invite/(?P<mailbox>[0-9a-f]{{32}})/(?P<slot>{'|'.join(MailboxSlot)})\Z"),
        TokenScope.TOKENS,
        INVITE_BYTES_MAX,
        vital=True,
    ),
}


class KeyPlace(NamedTuple):
    """An object's key within its vault, parsed. A tuple, since each request makes one."""

    key: str
    channel: KeyChannel
    owner: str | None
    """The only device that may write it, if the channel has owners."""
    mailbox: str | None = None
    slot: MailboxSlot | None = None
    """Of an invite."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller: a device of a vault with its scopes, or a newcomer with a mailbox and no scopes."""

    vault: str
    device: str
    scopes: frozenset[TokenScope]
    mailbox: str | None = None
    seconds_left: float = 0.0
    """Of a newcomer's invite: seconds until it expires."""
    read_only: str | None = None
    """What the operator did, as a sentence, if the vault is read-only."""

    def require_change(self) -> None:
        """Raises VaultReadOnly."""
        if self.read_only is not None:  # §R9.4-2
            raise VaultReadOnly(self.read_only, hint=READ_ONLY_HINT)

    def require(self, scope: TokenScope) -> None:
        """Raises Forbidden."""
        if scope not in self.scopes:  # §R2-6
            raise Forbidden(f"this token lacks the scope `{scope.value}`")

    def require_write(self, place: KeyPlace) -> None:
        """Raises Forbidden, VaultReadOnly."""
        self.require_change()
        newcomers = place.slot in NEWCOMER_SLOTS
        if self.mailbox is not None:
            if self.mailbox != place.mailbox or not newcomers:  # §R2-5
                raise Forbidden("a newcomer writes its own slots of its mailbox only")
            return
        self.require(place.channel.writer)
        if newcomers:
            raise Forbidden("only the newcomer writes this slot")  # §R5-2
        if place.owner is not None and place.owner != self.device:  # §R2-6
            raise Forbidden("a device writes its own keys only")

    def require_read(self, place: KeyPlace) -> None:
        """Raises Forbidden."""
        if self.mailbox is None:
            self.require(TokenScope.READ if place.mailbox is None else TokenScope.TOKENS)
        elif self.mailbox != place.mailbox:  # §R2-5
            raise Forbidden("a newcomer reads its mailbox only")

    def require_prefix(self, prefix: str) -> None:
        """Check the prefix of a list or a wait. Raises Forbidden."""
        if self.mailbox is None:
            self.require(TokenScope.READ)
        elif not prefix.startswith(f"invite/{self.mailbox}/"):  # §R2-5
            raise Forbidden("a newcomer reads its mailbox only")


def parse_place(key: str) -> KeyPlace:
    """Parse a key within a vault. Raises BadRequest."""
    check_key(key)
    channel = CHANNELS.get(key.partition("/")[0])
    found = channel.form.match(key) if channel is not None else None
    if channel is None or found is None:  # §R3-1
        raise BadRequest("no channel has such keys", hint="See the table of channels in docs/relay-api.md.")
    match found.lastgroup:
        case None:
            return KeyPlace(key, channel, None)
        case "owner":
            return KeyPlace(key, channel, found["owner"])
        case _:
            return KeyPlace(key, channel, None, found["mailbox"], MailboxSlot(found["slot"]))


def mailbox_of(prefix: str) -> str | None:
    """The mailbox that contains all keys with this prefix, if any."""
    match = _MAILBOX.match(prefix)
    return match[1] if match is not None else None
