"""Short invites in the store: the sealed bytes of an invite, for anybody who knows the place that follows from its key.

    r/vault/<vault>/invite/<mailbox>/short     the place, the sealed bytes; deleted when the invite ends
    r/short/<place>                            which invite; deleted a day later, with its state

An invite has one of them at most, so the limits of invites are theirs. Both records are written once, the first one first:
a crash between the two leaves what the inviting device's next try completes, or the sweeper deletes. A reader needs no
credentials: the place has 128 bits and follows from a key by scrypt, and wrong ones count as unknown credentials.
"""

import hmac
from dataclasses import dataclass

import msgspec

from crystal_relay.errors import UNDECODABLE, AlreadyExists, NotFound, StoreDamaged
from crystal_relay.limits import INVITE_KEPT_SECONDS
from crystal_relay.server.dropped_vaults import DroppedVaults
from crystal_relay.server.expiry import ExpiryKind, expiry_at, record_expiry
from crystal_relay.server.invites import Invites, Record, short_key
from crystal_relay.store import Store
from crystal_relay.wire import InviteReply, SealedInviteReply, ShortInviteCreation

_VERSION = 1


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    place: str
    sealed: bytes


class _Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    vault: str
    mailbox: str


@dataclass(frozen=True, slots=True)
class ShortInvites:
    """The short invites in a store."""

    store: Store
    invites: Invites
    dropped: DroppedVaults

    async def keep(self, vault: str, mailbox: str, creation: ShortInviteCreation) -> InviteReply:
        """Keep an open invite's sealed bytes. Idempotent.

        Raises NotFound, InviteOver, AlreadyExists (it has others, or another invite has that place).
        """
        await self.invites.check_open(vault, mailbox)
        kept = _Kept(_VERSION, creation.place, creation.sealed)
        if not await self._put_once(short_key(vault, mailbox), kept):  # §R5.4-2
            raise AlreadyExists("this invite has a short invite already")
        found = await self.invites.find(vault, mailbox)
        if found is None:
            raise NotFound("this vault has no such invite")
        gone_at = found.expires_at + INVITE_KEPT_SECONDS
        await record_expiry(self.store, expiry_at(gone_at, ExpiryKind.SHORT, vault, creation.place))
        if not await self._put_once(place_key(creation.place), _Place(_VERSION, vault, mailbox)):  # §R5.4-2
            raise AlreadyExists("another invite has that place")
        return found.reply(self.invites.now)

    async def read(self, place: str) -> SealedInviteReply:
        """The sealed invite at a place. Raises NotFound, InviteOver, VaultDropped."""
        where = await self._read(place_key(place), _Place)
        if where is None:
            raise _nothing_there()
        await self.dropped.check(where.vault)
        found = await self.invites.find(where.vault, where.mailbox)
        if found is None:
            raise _nothing_there()
        left = found.check_open(self.invites.now)  # §R5.5-2
        kept = await self._read(short_key(where.vault, where.mailbox), _Kept)
        if kept is None or not hmac.compare_digest(kept.place, place):
            raise _nothing_there()
        return SealedInviteReply(kept.sealed, max(1, int(left)))

    async def _put_once(self, key: str, record: msgspec.Struct) -> bool:
        """Whether it is written, now or before."""
        try:
            await self.store.put_new(key, msgspec.json.encode(record))
        except AlreadyExists:
            return await self._read(key, type(record)) == record
        return True

    async def _read(self, key: str, kind: type[Record]) -> Record | None:
        try:
            text = await (await self.store.get(key)).read()
        except NotFound:
            return None
        try:
            return msgspec.json.decode(text, type=kind)
        except UNDECODABLE:
            raise StoreDamaged("a record of a short invite is damaged") from None


def place_key(place: str) -> str:
    """Key of the record that says which invite lies at a place."""
    return f"r/short/{place}"


def _nothing_there() -> NotFound:
    return NotFound(
        "no invite lies at that place",
        hint="It was mistyped, is for another relay, or ended more than a day ago. `crystal pair` makes a new one.",
    )
