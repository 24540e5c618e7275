"""Vaults, tokens and enrolment tokens: kept in the relay's own store, under names that no request can reach.

    r/vault/<vault>/record                       the recovery hash, the first device and its token's hash
    r/vault/<vault>/token/…, revoked/…           registered and revoked tokens (see `token_records`)
    r/vault/<vault>/leads/…, lead/…              whose tokens have the preset `lead`, whatever theirs is (see `leads`)
    r/vault/<vault>/recovery/<number>            the recovery hash that counts (see `recovery`)
    r/vault/<vault>/invite/<mailbox>/…           an invite (see `invites`)
    r/vault/<vault>/dropped                      the vault is closed, and will be deleted (see `dropped_vaults`)
    r/vault/<vault>/deletion/…                   its owner asked for its deletion (see `vault_deletions`)
    r/vault/<vault>/terms                        the operator's terms for it, overwritten (see `vault_terms`)
    r/vault/<vault>/used/<day>                   when it was last used (see `last_used`)
    r/enrollment/<hash>                          an enrolment token

Records are written once and never changed, so any number of relay processes may write them in any order: a token is valid if it
is registered and not revoked. Records are deleted only when nothing depends on them. Only hashes are kept.

A look-up reads records of the token and records of its vault. Those of the vault are read once for all of its devices, and what
follows from them is forgotten when the oldest of them is `cache_seconds` old. So all tokens of a vault are looked up again at
the same time, by one device after the other, and share what the first one reads. Those of many devices are forgotten earlier,
each by a share of its own: all at once they would be more look-ups than an address may have.
"""

import asyncio
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from crystal_relay.errors import AlreadyExists, Busy, Forbidden, NotFound, Unauthorized
from crystal_relay.server.core_devices import CoreDevices
from crystal_relay.server.dropped_vaults import DroppedVaults
from crystal_relay.server.records import Records
from crystal_relay.server.recovery import RecoverySecrets
from crystal_relay.server.scopes import SCOPES, Identity, TokenScope
from crystal_relay.server.settings import LOOKUPS_OF_ADDRESS_MAX
from crystal_relay.server.shared_calls import SharedCalls
from crystal_relay.server.token_records import TokenRecord, TokenRecords
from crystal_relay.server.vault_deletions import VaultDeletions
from crystal_relay.server.vault_terms import Terms, VaultTerms
from crystal_relay.store import Store
from crystal_relay.tokens import Preset
from crystal_relay.wire import TokenRegistration, VaultCreation

CACHED_TOKENS_MAX = 65_536
CACHED_VAULTS_MAX = 65_536
ALIGNED_TOKENS_MAX = LOOKUPS_OF_ADDRESS_MAX // 2
"""So many tokens of a vault may be forgotten at the same moment."""
_SPREAD_SHARE = 0.5
"""Beyond, each token is forgotten up to this share of `cache_seconds` earlier."""
_SHARED_SHARE = 0.25
"""And what is read of the vault is shared only for this one, so that what is looked up counts for a while."""
_RECORD_VERSION = 1

_Newest: TypeAlias = tuple[int, frozenset[str]]
"""The newest naming of leads: its number and its devices."""
_Name: TypeAlias = tuple[str, str, str]
"""A token's: its vault, its device, its hash."""


@dataclass(frozen=True, slots=True)
class _VaultState:
    """What a look-up asks of the vault itself, whichever device asks. `asked_at`: what follows from it counts from then."""

    newest: _Newest
    read_only: str | None
    asked_at: float


class _VaultRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    recovery_hash: str
    device: str
    token_hash: str


class Registry:
    """Vaults, their credentials, and a cache of tokens. One for each relay process."""

    def __init__(
        self,
        store: Store,
        *,
        cache_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        used: Callable[[str], None] = lambda vault: None,
    ) -> None:
        """`used` is called with each vault of which a device's token was looked up and found."""
        self._store = store
        self._cache_seconds = cache_seconds
        self._clock = clock
        self._cache: OrderedDict[_Name, tuple[Identity, float]] = OrderedDict()
        self._cached_of: dict[str, set[_Name]] = {}
        """Cached tokens of each vault."""
        self._changes = 0
        self._dropped = DroppedVaults(store, clock=wall_clock)
        self._deletions = VaultDeletions(store, clock=wall_clock)
        self._terms = VaultTerms(store, clock=wall_clock)
        self._used = used
        self._recovery = RecoverySecrets(store)
        self._records = Records(store)
        self._tokens = TokenRecords(self._records)
        self._leads = CoreDevices(self._records, clock=clock)
        self._states: OrderedDict[str, _VaultState] = OrderedDict()
        """Of vaults that a device was let into lately."""
        self._lookups: SharedCalls[_Name, Identity] = SharedCalls()
        self._state_lookups: SharedCalls[str, _VaultState] = SharedCalls()

    def known(self, vault: str, device: str, token: str) -> Identity | None:
        """The device of a well-formed token, if it is in the cache."""
        return self.known_by_hash(vault, device, hash_of(token))

    def known_by_hash(self, vault: str, device: str, token_hash: str) -> Identity | None:
        """As `known`."""
        found = self._cache.get((vault, device, token_hash))
        if found is None or found[1] <= self._clock():
            return None
        return found[0]

    async def identify(self, vault: str, device: str, token: str) -> Identity:
        """The device of a well-formed token. Raises Unauthorized, VaultClosed.

        An unknown vault, an unknown device and a wrong secret cannot be told apart.
        """
        known = self.known(vault, device, token)
        if known is not None:
            return known
        name = (vault, device, hash_of(token))
        return await self._lookups.ask(name, lambda: self._look_up(name))

    async def confirm(self, vault: str, device: str, token: str) -> Identity:
        """Look the token up in the store, not in the cache. Raises Unauthorized, VaultClosed."""
        record = await self._registered(vault, device, hash_of(token))
        scopes = await self._scopes(vault, device, record, await self._leads.newest(vault))
        return Identity(vault, device, scopes, read_only=await self._check_open(vault))

    async def check_recovery(self, vault: str, presented_hash: str) -> None:
        """Check the hash of the current recovery secret. Raises Unauthorized, RecoveryReplaced, VaultClosed."""
        # All are read in any case, so that the cost does not tell whether a vault exists.
        record, newest, dropped, terms = await asyncio.gather(
            self._vault(vault),
            self._recovery.newest(vault),
            self._dropped.until(vault),
            self._terms.of(vault),
            return_exceptions=True,
        )
        if isinstance(record, NotFound):
            raise _unauthorized() from None
        for failed in (record, newest, dropped, terms):
            if isinstance(failed, BaseException):
                raise failed
        assert isinstance(record, _VaultRecord)
        assert isinstance(newest, tuple)
        assert isinstance(terms, Terms)
        if not hmac.compare_digest(newest[1] or record.recovery_hash, presented_hash):  # §R4.6-2
            raise await self._recovery.refusal(vault, record.recovery_hash, newest[0], presented_hash)
        if dropped is not None:
            await self._dropped.check(vault)
        terms.check()

    async def recovery_number(self, vault: str) -> int:
        """How often the recovery secret was replaced."""
        return (await self._recovery.newest(vault))[0]

    async def replace_recovery(self, vault: str, number: int, new_hash: str, *, presented: str) -> None:
        """Replace the recovery secret by the one of this hash. `presented` is the hash of the current one, as shown.

        Idempotent. Raises WrongNumber, Unauthorized, VaultClosed.
        """
        try:
            record = await self._vault(vault)
        except NotFound:
            raise _unauthorized() from None
        await self._check_open(vault)
        await self._recovery.replace(vault, record.recovery_hash, number, new_hash, presented=presented)

    async def is_created(self, vault: str) -> bool:
        """Whether the vault was created, and not deleted since. Its creation may have been cut short."""
        return await self._records.has(f"r/vault/{vault}/record")

    async def create_vault(
        self,
        creation: VaultCreation,
        *,
        created: bool = False,
        before_token: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Create a vault with its first token. Idempotent. Raises AlreadyExists, VaultDropped, Busy (it was just deleted).

        `created`: its record was there, and is not written again. `before_token` is called once the vault is there, and
        before anybody has access to it.
        """
        await self._dropped.check(creation.vault)
        record = _VaultRecord(_RECORD_VERSION, creation.recovery_hash, creation.device, creation.token_hash)
        if not created:
            await self._terms.forget(creation.vault)
            try:
                await self._records.put_new(f"r/vault/{creation.vault}/record", record)
            except AlreadyExists:
                created = True
        try:
            if created and await self._vault(creation.vault) != record:  # §R4.1-1
                raise AlreadyExists("the vault exists already")
        except NotFound:
            raise Busy("the vault of that id was deleted just now") from None
        if before_token is not None:
            await before_token()
        try:
            # With no naming of leads: a vault that has one already is not created again by this.
            await self.register(
                creation.vault, TokenRegistration(creation.device, creation.token_hash, Preset.LEAD)
            )
        except Forbidden:
            raise AlreadyExists("the vault exists already, and its first token was revoked") from None

    async def register(
        self, vault: str, registration: TokenRegistration, *, number: int = 0, by_recovery: bool = False
    ) -> bool:
        """Register a token. Idempotent. Returns whether it is new.

        `number`, for the preset `lead` only: of the newest naming of leads before the caller was looked up. Raises Forbidden
        (revoked), AlreadyExists (other preset), QuotaExceeded (too many, including revoked ones).
        """
        device, name, preset = registration.device, registration.token_hash, registration.preset
        if await self._tokens.is_revoked(vault, device, name):  # §R4.2-2
            raise Forbidden("this token was revoked", hint="Make a new token and register that.")
        number = number if preset is Preset.LEAD else 0
        try:
            await self._tokens.add(vault, device, name, preset, number=number, by_recovery=by_recovery)
        except AlreadyExists:
            try:
                record = await self._tokens.find(vault, device, name)
            except NotFound:
                raise Forbidden("this token was revoked meanwhile") from None
            leads = preset is Preset.LEAD and await self._may_lead(
                vault, device, record, await self._leads.newest(vault)
            )
            if record.preset is not preset or leads is not (preset is Preset.LEAD):  # §R4.2-2
                raise AlreadyExists(
                    "this token is registered with another preset", hint="Make a new token and register that."
                ) from None
            return False
        return True

    async def revoke(self, vault: str, device: str, name: str | None) -> None:
        """Revoke one token of a device, by its hash, or all. Idempotent.

        Raises QuotaExceeded for a hash that was never registered once too many are revoked, so that their number is bounded.
        """
        try:
            await self._tokens.revoke(vault, device, name)
        finally:
            self.forget(vault)

    async def retain(
        self, vault: str, devices: Mapping[str, str | None], *, by_recovery: bool = False
    ) -> int:
        """Revoke all tokens except those of these devices, and for each of them all but the one of this hash, unless None.

        Idempotent. Returns how many were revoked. Repeats until there is none left: tokens that a revoked one registers
        meanwhile are revoked too. A registration confirms its own token afterwards, so one of the two sees the other.
        `by_recovery`: also delete the records of revoked tokens, which makes space for new ones.
        """
        shut_out = 0
        try:
            while strangers := await self._tokens.shut_out_strangers(vault, devices):  # §R4.4-1
                shut_out += strangers
            await self._leads.end_all_but(vault, frozenset(devices))
            if by_recovery:  # §R4.4-5
                await self._tokens.make_room(vault, devices)
        finally:
            self.forget(vault)
        return shut_out

    async def leads_number(self, vault: str) -> int:
        """The number of the newest naming of leads. Read before a caller who wants the preset `lead` is confirmed."""
        return await self._leads.number(vault)

    async def name_leads(self, vault: str, devices: frozenset[str], *, after: int) -> bool:
        """Let only these devices lead, if that number is still the newest. Returns whether it was."""
        try:
            return await self._leads.name(vault, devices, after=after)
        finally:
            self.forget(vault)

    async def raise_device(
        self, vault: str, device: str, *, number: int = 0, by_recovery: bool = False
    ) -> None:
        """Give this device's tokens the preset `lead`. Idempotent. `number`: as in `register`.

        Raises NotFound (it has no valid token), QuotaExceeded.
        """
        if not await self._tokens.is_in(vault, device):  # §R4.5-1
            raise NotFound("the device has no valid token")  # §R3.2-2
        try:
            await self._leads.raise_device(vault, number, device, by_recovery=by_recovery)
        finally:
            self.forget(vault)

    def forget(self, vault: str | None) -> None:
        """Drop a vault's tokens, or all, from the cache: another process may have changed something."""
        self._changes += 1
        self._leads.forget(vault)
        self._lookups.leave(lambda name: vault in (None, name[0]))
        self._state_lookups.leave(lambda name: vault in (None, name))
        if vault is None:
            self._cache.clear()
            self._cached_of.clear()
            self._states.clear()
            return
        self._states.pop(vault, None)
        for cached in self._cached_of.pop(vault, ()):
            del self._cache[cached]

    async def has_vault(self, vault: str) -> bool:
        """Whether the vault exists, dropped or not."""
        return bool((await self._store.list(f"r/vault/{vault}/", limit=1)).entries)

    async def dropped_until(self, vault: str) -> int | None:
        """When a dropped vault will be deleted (Unix seconds); None if it is in use."""
        return await self._dropped.until(vault)

    async def drop_vault(self, vault: str, until: float) -> int:
        """Close a vault and have it deleted at that time (Unix seconds), or at the earliest safe one. Returns when.

        The caller notifies other processes, else their cached tokens stay valid until they expire.
        """
        try:
            return await self._dropped.drop(vault, until)
        finally:
            self.forget(vault)

    async def restore_vault(self, vault: str) -> None:
        """Reopen a dropped vault. Raises BadRequest if it is too late."""
        await self._dropped.restore(vault)

    async def has_enrollment(self) -> bool:
        """Whether the store holds any enrolment token's hash."""
        return bool((await self._store.list("r/enrollment/", limit=1)).entries)

    async def add_enrollment(self, token: str) -> None:
        """Store the hash of an enrolment token. Idempotent."""
        await self._records.mark(_enrollment_key(token))

    # --- inside ---

    async def _check_open(self, vault: str) -> str | None:
        """What the operator did, if the vault is read-only. Raises VaultClosed."""
        _, terms = await asyncio.gather(self._dropped.check(vault), self._terms.of(vault))
        terms.check()
        return terms.read_only

    async def _look_up(self, name: _Name) -> Identity:
        changes, asked_at = self._changes, self._clock()
        vault, device, _ = name
        record = await self._registered(*name)
        state = await self._state(vault, at_least=record.number)
        scopes = await self._scopes(vault, device, record, state.newest)
        identity = Identity(vault, device, scopes, read_only=state.read_only)
        self._used(vault)
        if changes == self._changes:  # else a token was revoked during the look-up
            self._remember(name, identity, min(asked_at, state.asked_at))
        return identity

    async def _registered(self, vault: str, device: str, name: str) -> TokenRecord:
        """The record of a token that is not revoked. Raises Unauthorized, VaultDeleted."""
        # The mark first, since it is deleted after the record (see `token_records`).
        revoked = await self._tokens.is_revoked(vault, device, name)
        try:
            record = await self._tokens.find(vault, device, name)
        except NotFound:
            raise await self._deletions.refusal(vault, name) from None
        if revoked or not hmac.compare_digest(record.token_hash, name):  # §R2-3
            raise _unauthorized()
        return record

    async def _state(self, vault: str, *, at_least: int) -> _VaultState:
        """The state of a vault, which all of its devices share until it is `cache_seconds` old. Raises VaultClosed.

        `at_least`: the number that the newest naming has at least. A process that cannot reach this one may have made it.
        """
        known = self._states.get(vault)
        share = _SHARED_SHARE if self._is_spread(vault) else 1.0
        if known is not None and known.asked_at + share * self._cache_seconds > self._clock():
            if known.newest[0] >= at_least:
                return known
            self._state_lookups.leave(lambda name: name == vault)
        state = await self._state_lookups.ask(vault, lambda: self._look_at(vault))
        if state.newest[0] < at_least:  # of a look that began before this token's record was read
            state = await self._state_lookups.ask(vault, lambda: self._look_at(vault))
        return state

    async def _look_at(self, vault: str) -> _VaultState:
        changes, asked_at = self._changes, self._clock()
        newest = await self._leads.recent(vault)
        state = _VaultState(newest, await self._check_open(vault), asked_at)
        if changes == self._changes:  # as above
            self._states[vault] = state
            self._states.move_to_end(vault)
            if len(self._states) > CACHED_VAULTS_MAX:
                self._states.popitem(last=False)
        return state

    async def _scopes(
        self, vault: str, device: str, record: TokenRecord, newest: _Newest
    ) -> frozenset[TokenScope]:
        leads = await self._may_lead(vault, device, record, newest)
        return SCOPES[Preset.LEAD if leads else Preset.DEVICE]

    async def _may_lead(self, vault: str, device: str, record: TokenRecord, newest: _Newest) -> bool:
        number, named = newest
        by_preset = record.preset is Preset.LEAD and record.number == number  # §R4.4-4
        return device in named or by_preset or await self._leads.is_raised(vault, number, device)  # §R4.4-3

    def _is_spread(self, vault: str) -> bool:
        """Whether so many devices of the vault are known that they must not all be looked up again at the same moment."""
        return len(self._cached_of.get(vault, ())) >= ALIGNED_TOKENS_MAX

    def _remember(self, name: _Name, identity: Identity, asked_at: float) -> None:
        # From the time of the request: a slow store's answer may be outdated.
        earlier = _SPREAD_SHARE * int(name[2][:8], 16) / 2**32 if self._is_spread(name[0]) else 0.0
        self._cache[name] = (identity, asked_at + (1 - earlier) * self._cache_seconds)
        self._cache.move_to_end(name)
        self._cached_of.setdefault(name[0], set()).add(name)
        if len(self._cache) > CACHED_TOKENS_MAX:
            oldest, _ = self._cache.popitem(last=False)
            self._cached_of[oldest[0]].discard(oldest)
            if not self._cached_of[oldest[0]]:
                del self._cached_of[oldest[0]]

    async def _vault(self, vault: str) -> _VaultRecord:
        return await self._records.read(f"r/vault/{vault}/record", _VaultRecord)


def hash_of(token: str) -> str:
    """As `tokens.token_hash`, without checking the form again: called for every request."""
    return hashlib.sha256(token.encode("ascii")).hexdigest()


def _enrollment_key(token: str) -> str:
    return f"r/enrollment/{hashlib.sha256(token.encode()).hexdigest()}"


def _unauthorized() -> Unauthorized:
    return Unauthorized("the relay does not know these credentials")
