"""Vaults, tokens and enrolment tokens: kept in the relay's own store, under names that no request can reach.

    r/vault/<vault>/record                       the recovery hash, the first device and its token's hash
    r/vault/<vault>/token/<device>/<hash>        a token that was let in, with its preset
    r/vault/<vault>/revoked/<device>/<hash>      that token was shut out, for good
    r/vault/<vault>/lead/<device>                tokens of this device have the preset `lead`, whatever theirs is
    r/vault/<vault>/recovery/<number>            the recovery hash that counts (see `recovery`)
    r/vault/<vault>/invite/<mailbox>/…           an invite (see `invites`)
    r/vault/<vault>/dropped                      the vault is closed, and will be deleted (see `dropped`)
    r/enrollment/<hash>                          an enrolment token

Everything here is written once and never changed, so any number of relay processes may do so over one store in any order:
a token is valid if it was let in and not shut out. (An invite's records go in the end.) Only hashes are kept.
"""

import asyncio
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeVar

import msgspec

from crystal_relay.errors import (
    AlreadyExists,
    Forbidden,
    NotFound,
    QuotaExceeded,
    StoreDamaged,
    Unauthorized,
)
from crystal_relay.limits import VAULT_DEVICES_MAX
from crystal_relay.server.dropped import DroppedVaults
from crystal_relay.server.recovery import RecoverySecrets
from crystal_relay.server.scopes import SCOPES, Identity, Scope
from crystal_relay.store import Store
from crystal_relay.tokens import Preset
from crystal_relay.wire import TokenRegistration, VaultCreation

CACHED_TOKENS_MAX = 65_536
TOKENS_MAX = 1_000
"""Of a vault, over its life: one page, so that nobody can fill the relay with tokens."""
WRITES_AT_ONCE = 8
_RECORD_VERSION = 1

Record = TypeVar("Record", bound=msgspec.Struct)


class _VaultRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    recovery_hash: str
    device: str
    token_hash: str


class _TokenRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    token_hash: str
    preset: Preset


class Registry:
    """Who may do what. One for each relay process."""

    def __init__(
        self,
        store: Store,
        *,
        cache_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._cache_seconds = cache_seconds
        self._clock = clock
        self._cache: OrderedDict[tuple[str, str, str], tuple[Identity, float]] = OrderedDict()
        self._cached_of: dict[str, set[tuple[str, str, str]]] = {}
        """What of each vault is in the cache."""
        self._changes = 0
        self._dropped = DroppedVaults(store, clock=wall_clock)
        self._recovery = RecoverySecrets(store)

    def known(self, vault: str, device: str, token: str) -> Identity | None:
        """The device that this token (of the right form) stands for, if it was looked up lately."""
        found = self._cache.get((vault, device, _hash_of(token)))
        if found is None or found[1] <= self._clock():
            return None
        return found[0]

    async def identify(self, vault: str, device: str, token: str) -> Identity:
        """The device that this token (of the right form) stands for. Raises Unauthorized, VaultDropped.

        An unknown vault, an unknown device and a wrong secret cannot be told apart.
        """
        known = self.known(vault, device, token)
        if known is not None:
            return known
        name = (vault, device, _hash_of(token))
        changes, asked_at = self._changes, self._clock()
        identity = Identity(vault, device, await self._scopes(*name))
        await self._dropped.check(vault)
        if changes == self._changes:  # else a token was shut out while this one was being looked up
            self._remember(name, identity, asked_at)
        return identity

    async def confirm(self, vault: str, device: str, token: str) -> None:
        """Look this token up anew. Raises Unauthorized, VaultDropped."""
        await self._scopes(vault, device, _hash_of(token))
        await self._dropped.check(vault)

    async def check_recovery(self, vault: str, presented_hash: str) -> None:
        """Raises Unauthorized unless this is the hash of the recovery secret that counts; RecoveryReplaced, VaultDropped."""
        # All are looked up whatever the first says: what a vault's record costs must not tell that there is one.
        record, newest, dropped = await asyncio.gather(
            self._vault(vault),
            self._recovery.newest(vault),
            self._dropped.until(vault),
            return_exceptions=True,
        )
        if isinstance(record, NotFound):
            raise _unauthorized() from None
        for failed in (record, newest, dropped):
            if isinstance(failed, BaseException):
                raise failed
        assert isinstance(record, _VaultRecord)
        assert isinstance(newest, tuple)
        if not hmac.compare_digest(newest[1] or record.recovery_hash, presented_hash):
            raise await self._recovery.refusal(vault, record.recovery_hash, newest[0], presented_hash)
        if dropped is not None:
            await self._dropped.check(vault)

    async def recovery_number(self, vault: str) -> int:
        """How often the recovery secret was replaced."""
        return (await self._recovery.newest(vault))[0]

    async def replace_recovery(self, vault: str, number: int, new_hash: str, *, presented: str) -> None:
        """Have another recovery secret count, by its hash. `presented`: the hash of the secret that was shown, which must be
        the one that counts. Repeating it is no error. Raises WrongNumber, Unauthorized, VaultDropped."""
        try:
            record = await self._vault(vault)
        except NotFound:
            raise _unauthorized() from None
        await self._dropped.check(vault)
        await self._recovery.replace(vault, record.recovery_hash, number, new_hash, presented=presented)

    async def create_vault(self, creation: VaultCreation) -> None:
        """Create a vault and let its first token in. Repeating it is no error. Raises AlreadyExists, VaultDropped."""
        await self._dropped.check(creation.vault)
        record = _VaultRecord(_RECORD_VERSION, creation.recovery_hash, creation.device, creation.token_hash)
        try:
            await self._store.put_new(f"r/vault/{creation.vault}/record", msgspec.json.encode(record))
        except AlreadyExists:
            if await self._vault(creation.vault) != record:
                raise AlreadyExists("the vault exists already") from None
        try:
            await self.register(
                creation.vault, TokenRegistration(creation.device, creation.token_hash, Preset.LEAD)
            )
        except Forbidden:
            raise AlreadyExists("the vault exists already, and its first token was revoked") from None

    async def register(self, vault: str, registration: TokenRegistration) -> bool:
        """Let a token in. Repeating it is no error. Returns whether it was not in before.

        Raises Forbidden (it was shut out), AlreadyExists (other preset), QuotaExceeded (too many, those shut out included).
        """
        device, name = registration.device, registration.token_hash
        if await self._is_revoked(vault, device, name):
            raise Forbidden("this token was revoked", hint="Make a new token and register that.")
        record = _TokenRecord(_RECORD_VERSION, name, registration.preset)
        try:
            await self._add_token(vault, device, record)
        except AlreadyExists:
            if await self._token(vault, device, name) != record:
                raise AlreadyExists(
                    "this token is registered with another preset", hint="Make a new token and register that."
                ) from None
            return False
        return True

    async def revoke(self, vault: str, device: str, name: str | None) -> None:
        """Shut out one token of a device, by its hash, or all that it has. Repeating it is no error.

        Raises QuotaExceeded for a hash that was never let in, once too many were shut out: else nothing would bound them.
        """
        names = [name] if name is not None else await self._names(f"r/vault/{vault}/token/{device}/")
        if name is not None:
            await self._check_revocable(vault, device, name)
        try:
            for each in names:
                await self._put_once(_revoked_key(vault, device, each))
        finally:
            self.forget(vault)

    async def retain(self, vault: str, devices: Mapping[str, str | None]) -> int:
        """Shut out every token but those of these devices, and of each of them all but the one of this hash, unless None.

        Repeating it is no error. Returns how many that were. It looks again until there is none: what one of them let in
        meanwhile goes with it. Whoever registers by a token looks that up anew after, so one of the two sees the other.
        """
        shut_out = 0
        try:
            while strangers := await self._strangers(vault, devices):
                keys = [_revoked_key(vault, *each.split("/")) for each in strangers]
                for at in range(0, len(keys), WRITES_AT_ONCE):
                    await asyncio.gather(*map(self._put_once, keys[at : at + WRITES_AT_ONCE]))
                shut_out += len(keys)
        finally:
            self.forget(vault)
        return shut_out

    async def raise_device(self, vault: str, device: str) -> None:
        """Tokens of this device have the preset `lead` from now on. Repeating it is no error. Raises QuotaExceeded."""
        prefix = _lead_key(vault, "")
        raised = (await self._store.list(prefix, limit=VAULT_DEVICES_MAX)).entries
        known = any(entry.key == prefix + device for entry in raised)
        if len(raised) >= VAULT_DEVICES_MAX and not known:
            raise QuotaExceeded(f"{VAULT_DEVICES_MAX} devices of this vault may lead already")
        try:
            await self._put_once(prefix + device)
        finally:
            self.forget(vault)

    def forget(self, vault: str | None) -> None:
        """Look tokens of this vault up anew, or all: something was changed by another process, or may have been."""
        self._changes += 1
        if vault is None:
            self._cache.clear()
            self._cached_of.clear()
            return
        for cached in self._cached_of.pop(vault, ()):
            del self._cache[cached]

    async def has_vault(self, vault: str) -> bool:
        """Whether the vault exists, dropped or not."""
        return bool((await self._store.list(f"r/vault/{vault}/", limit=1)).entries)

    async def vaults(self) -> AsyncIterator[str]:
        """The ids of all vaults, dropped ones too, in order."""
        last, after, more = "", "", True
        while more:
            page = await self._store.list("r/vault/", after=after)
            for entry in page.entries:
                vault = entry.key.split("/")[2]
                if vault != last:
                    yield vault
                last = vault
            more = page.more
            after = page.entries[-1].key if page.entries else after

    async def dropped_until(self, vault: str) -> int | None:
        """When a dropped vault will be deleted (unix seconds); None: it is in use."""
        return await self._dropped.until(vault)

    async def drop_vault(self, vault: str, until: float) -> int:
        """Close a vault and have it deleted at that time (unix seconds), or at the earliest that is safe. Returns when.

        Other processes learn of it as of a revocation: tell them, or their tokens are good for as long as they remember them.
        """
        try:
            return await self._dropped.drop(vault, until)
        finally:
            self.forget(vault)

    async def restore_vault(self, vault: str) -> None:
        """Open a dropped vault again. Raises BadRequest when it is too late."""
        await self._dropped.restore(vault)

    async def is_enrollment(self, token: str) -> bool:
        """Whether the store holds this enrolment token's hash."""
        return await self._has(_enrollment_key(token))

    async def has_enrollment(self) -> bool:
        """Whether the store holds any enrolment token's hash."""
        return bool((await self._store.list("r/enrollment/", limit=1)).entries)

    async def add_enrollment(self, token: str) -> None:
        """Keep the hash of an enrolment token. Repeating it is no error."""
        await self._put_once(_enrollment_key(token))

    # --- inside ---

    async def _put_once(self, key: str) -> None:
        try:
            await self._store.put_new(key, b"{}")
        except AlreadyExists:
            return

    async def _strangers(self, vault: str, kept: Mapping[str, str | None]) -> list[str]:
        """`<device>/<hash>` of the tokens that are let in and are not to be kept."""
        tokens, revoked = await asyncio.gather(
            self._names(f"r/vault/{vault}/token/"), self._names(f"r/vault/{vault}/revoked/")
        )
        out = frozenset(revoked)
        named = [(each, *each.split("/")) for each in tokens if each not in out]
        return [
            each for each, device, name in named if device not in kept or kept[device] not in (None, name)
        ]

    async def _add_token(self, vault: str, device: str, record: _TokenRecord) -> None:
        key = _token_key(vault, device, record.token_hash)
        tokens = (await self._store.list(f"r/vault/{vault}/token/", limit=TOKENS_MAX)).entries
        if any(entry.key == key for entry in tokens):
            raise AlreadyExists("the token is registered")
        if len(tokens) >= TOKENS_MAX:
            raise QuotaExceeded(f"a vault has at most {TOKENS_MAX} tokens, those that were shut out included")
        await self._store.put_new(key, msgspec.json.encode(record))

    async def _check_revocable(self, vault: str, device: str, name: str) -> None:
        shut_out = (await self._store.list(f"r/vault/{vault}/revoked/", limit=TOKENS_MAX)).entries
        if len(shut_out) < TOKENS_MAX:
            return
        try:
            await self._token(vault, device, name)
        except NotFound:
            raise QuotaExceeded(f"{TOKENS_MAX} tokens of this vault were shut out already") from None

    async def _scopes(self, vault: str, device: str, name: str) -> frozenset[Scope]:
        try:
            record = await self._token(vault, device, name)
        except NotFound:
            raise _unauthorized() from None
        if not hmac.compare_digest(record.token_hash, name) or await self._is_revoked(vault, device, name):
            raise _unauthorized()
        raised = record.preset is not Preset.LEAD and await self._has(_lead_key(vault, device))
        return SCOPES[Preset.LEAD if raised else record.preset]

    def _remember(self, name: tuple[str, str, str], identity: Identity, asked_at: float) -> None:
        # From when it was asked: what a slow store said may be old already.
        self._cache[name] = (identity, asked_at + self._cache_seconds)
        self._cache.move_to_end(name)
        self._cached_of.setdefault(name[0], set()).add(name)
        if len(self._cache) > CACHED_TOKENS_MAX:
            oldest, _ = self._cache.popitem(last=False)
            self._cached_of[oldest[0]].discard(oldest)
            if not self._cached_of[oldest[0]]:
                del self._cached_of[oldest[0]]

    async def _vault(self, vault: str) -> _VaultRecord:
        return await self._record(f"r/vault/{vault}/record", _VaultRecord)

    async def _token(self, vault: str, device: str, name: str) -> _TokenRecord:
        return await self._record(_token_key(vault, device, name), _TokenRecord)

    async def _is_revoked(self, vault: str, device: str, name: str) -> bool:
        return await self._has(_revoked_key(vault, device, name))

    async def _has(self, key: str) -> bool:
        try:
            await (await self._store.get(key)).read()
        except NotFound:
            return False
        return True

    async def _names(self, prefix: str) -> list[str]:
        names: list[str] = []
        after, more = "", True
        while more:
            page = await self._store.list(prefix, after=after)
            names += [entry.key.removeprefix(prefix) for entry in page.entries]
            more = page.more
            after = page.entries[-1].key if page.entries else after
        return names

    async def _record(self, key: str, kind: type[Record]) -> Record:
        text = await (await self._store.get(key)).read()
        try:
            record = msgspec.json.decode(text, type=kind)
        except msgspec.DecodeError:
            raise StoreDamaged("a record of the relay's registry is damaged") from None
        return record


def _hash_of(token: str) -> str:
    """As `tokens.token_hash`, of what has the form of a token already: this is asked for every request."""
    return hashlib.sha256(token.encode("ascii")).hexdigest()


def _token_key(vault: str, device: str, name: str) -> str:
    return f"r/vault/{vault}/token/{device}/{name}"


def _revoked_key(vault: str, device: str, name: str) -> str:
    return f"r/vault/{vault}/revoked/{device}/{name}"


def _lead_key(vault: str, device: str) -> str:
    return f"r/vault/{vault}/lead/{device}"


def _enrollment_key(token: str) -> str:
    return f"r/enrollment/{hashlib.sha256(token.encode()).hexdigest()}"


def _unauthorized() -> Unauthorized:
    return Unauthorized("the relay does not know these credentials")
