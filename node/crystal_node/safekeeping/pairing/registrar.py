"""The inviting device's writes: adding the newcomer to the device log, its token at the relay, and taking both back if it
refuses.

An intent is stored in the journal before the first write, and removed once the newcomer has confirmed: after a crash in
between, the next ``crystal pair`` can name the machine that may be half added. Everything may be repeated: the log holds a
device once, a token is registered once.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from crystal_crypto.errors import UNDECODABLE, CrystalError, Malformed
from crystal_crypto.invite import Newcomer
from crystal_mirror.devicelog.damage import compare_log, replace_damaged
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.errors import NotAllowed, frozen_vault
from crystal_mirror.membership.administration import NewDevice as NewMember
from crystal_mirror.membership.administration import add_device, grant_lead, revoke
from crystal_mirror.membership.authority import authority
from crystal_mirror.membership.names import free_name, names_in
from crystal_mirror.membership.status import device_name
from crystal_mirror.repair.audit import may_write_log
from crystal_node.base.clock import now_ms
from crystal_node.base.decoding import from_msgpack
from crystal_node.device.runner import Runner, store_failure
from crystal_node.safekeeping.pairing.errors import RevokedBefore, StrangeNewcomer
from crystal_relay.decorators import RetryingStore, RetryPolicy
from crystal_relay.errors import RelayError
from crystal_relay.store import Body
from crystal_relay.tokens import Preset

if TYPE_CHECKING:
    from crystal_node.device.device import Device
    from crystal_relay.client.http import HttpStore

META_INTENT = "pairing.intent"


class Intent(msgspec.Struct, frozen=True):
    """The newcomer that may be half added."""

    device: bytes
    name: str
    system: str


@dataclass(frozen=True, slots=True)
class Admission:
    """The newcomer's place in the log, for the welcome. ``fresh``: False if it was a member before."""

    slot: int
    entry_hash: bytes
    head: bytes
    root_number: int
    fresh: bool


class Membership(Enum):
    """Whether the newcomer is in the device log, as far as this device knows."""

    OUT = "out"
    """Nothing that adds it was sent."""
    UNKNOWN = "unknown"
    """It was sent, and the relay's answer did not come."""
    IN = "in"


class Registrar:
    """Adds devices to one vault, on a device that may."""

    def __init__(self, device: "Device", http: "HttpStore", *, grant: bool) -> None:
        self._device = device
        self._http = http
        self._store = _Writing(http, policy=RetryPolicy(tries=3))
        self._runner = Runner(self._store, None)
        self._grant = grant
        self._known = False

    async def refresh(self) -> None:
        """Reads the device log to its end, and puts back what is damaged of it: a newcomer could not read past that.

        Raises StoreFailure, LogForked.
        """
        member = self._device.member
        await self._runner.run(read_log(member.log, member.journal, member.keys, member.notices))
        damaged = await self._runner.run(compare_log(member.log, member.journal, member.keys))
        if damaged and may_write_log(member):
            await self._runner.run(replace_damaged(member.journal, member.keys, damaged))

    def check_right(self) -> None:
        """Raises NotAllowed, naming the device that can, unless this one may add devices."""
        member = self._device.member
        member.check_active()
        try:
            authority(member)
        except NotAllowed as error:
            lead = member.log.lead
            core = device_name(member, lead.device) if lead is not None else None
            if lead is not None and lead.is_freeze:
                raise frozen_vault("invite") from error
            named = f"the Core ({core})" if core else "the Core"
            raise NotAllowed(
                f"this machine cannot invite: only {named} can, or a machine that holds the vault's root",
                hint=f"Run `crystal pair` on {core or 'the Core'}.",
            ) from error

    def check_newcomer(self, newcomer: Newcomer) -> None:
        """Raises RevokedBefore, or StrangeNewcomer for a device that goes by another's id."""
        known = self._device.member.log.member(newcomer.device)
        if known is None:
            return
        if (known.signing, known.exchange) != (newcomer.signing, newcomer.exchange.to_bytes()):
            raise StrangeNewcomer("the newcomer goes by the id of another device of the vault")
        if known.revoked is not None:
            raise RevokedBefore("that machine was a device of this vault, and was revoked")

    def called(self, newcomer: Newcomer) -> str:
        """The newcomer's name in the vault if it differs from the one that it asked for; else ""."""
        member = self._device.member
        name = device_name(member, newcomer.device) or free_name(
            newcomer.name, names_in(member.log, member.key_for)
        )
        return "" if name == newcomer.name else name

    def interrupted(self) -> Intent | None:
        """The newcomer that an interrupted pairing had added; returned once."""
        data = self._device.journal.meta_get(META_INTENT)
        if data is None:
            return None
        self.settle()
        try:
            intent = from_msgpack(data, Intent)
        except UNDECODABLE:
            return None
        return intent if self._device.member.log.is_active(intent.device) else None

    def intend(self, newcomer: Newcomer) -> None:
        """Stores the intent, before anything is added."""
        self._known = self._device.member.log.is_active(newcomer.device)
        self._store.wrote = False
        self._keep(msgspec.msgpack.encode(Intent(newcomer.device, newcomer.name, newcomer.system)))

    def settle(self) -> None:
        """Removes the intent: the newcomer is in or out for good."""
        self._keep(None)

    def _keep(self, intent: bytes | None) -> None:
        with self._device.journal.transaction() as transaction:
            transaction.meta_set(META_INTENT, intent)

    def membership(self, device: bytes) -> Membership:
        """What is known of a newcomer since ``intend``."""
        if self._device.member.log.is_active(device):
            return Membership.IN
        return Membership.UNKNOWN if self._store.wrote else Membership.OUT

    async def admit(self, newcomer: Newcomer) -> Admission:
        """Adds it to the log, and registers its token. May be repeated after a failure.

        Raises:
            NotAllowed, Revoked, Malformed, StoreFailure: as the flows do.
        """
        member = self._device.member
        added = await self._runner.run(
            add_device(
                member,
                NewMember(newcomer.device, newcomer.signing, newcomer.exchange),
                name=newcomer.name,
                system=newcomer.system,
                now_ms=now_ms(),
                grant=self._grant,
            )
        )
        info = member.log.member(newcomer.device)
        if info is None:
            raise Malformed("the newcomer is not in the device log after it was added")
        if self._grant and not info.grant:
            await self._runner.run(grant_lead(member, newcomer.device, now_ms=now_ms()))
        lead = member.log.lead
        leads = lead is not None and lead.device == newcomer.device
        preset = Preset.LEAD if self._grant or info.grant or leads else Preset.DEVICE
        try:
            await self._http.register_token(
                device=newcomer.device, token_hash=newcomer.token_hash, preset=preset
            )
        except RelayError as error:
            raise store_failure(error) from error
        # A repeated call finds the earlier write: what counts is whether it was there before the first.
        fresh = not self._known
        return Admission(added.slot, added.entry_hash, member.log.head, member.log.root_number, fresh)

    async def take_back(self, device: bytes) -> bool:
        """Revokes a newcomer that refused. Returns whether it is out of the log."""
        try:
            await self._runner.run(revoke(self._device.member, device, now_ms=now_ms()))
            await self._http.revoke_token(device=device)
        except (CrystalError, RelayError):
            return not self._device.member.log.is_active(device)
        return True


class _Writing(RetryingStore):
    """A store that notes whether a write was attempted, even if no answer came."""

    wrote = False

    async def put_new(self, key: str, body: bytes | Body) -> None:
        self.wrote = True
        await super().put_new(key, body)
