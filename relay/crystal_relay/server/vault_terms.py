"""The operator's terms for a vault: who may use it how, and its quota.

    r/vault/<vault>/terms     {"access", "since", "reason", "quota_bytes"}

    open --suspend--> suspended --resume--> open;  open --read-only--> read-only --resume--> open

Suspended: nothing can be read or written. Read-only: nothing can be stored or deleted, and nobody can join; tokens can still be
registered and revoked, so that the owner can fetch what is there. Without a record a vault is open, with the quota that it came
with. The record is overwritten: the operator's newest word counts.
"""

import time
from collections.abc import Callable
from enum import StrEnum

import msgspec

from crystal_relay.errors import UNDECODABLE, BadRequest, NotFound, StoreDamaged, VaultSuspended
from crystal_relay.server.enrollment import day_of
from crystal_relay.store import Store

REASON_CHARS_MAX = 200


class VaultAccess(StrEnum):
    """How the devices of a vault may use it."""

    OPEN = "open"
    READ_ONLY = "read-only"
    SUSPENDED = "suspended"


class Terms(msgspec.Struct, frozen=True):
    """`since`: of the access, in Unix seconds. `reason`: the operator's words, for the vault's people. `quota_bytes`: 0 for
    what the vault came with."""

    access: VaultAccess = VaultAccess.OPEN
    since: int = 0
    reason: str = ""
    quota_bytes: int = 0

    @property
    def read_only(self) -> str | None:
        """What the operator did, as a sentence, if the vault is read-only; else None."""
        return self._sentence("made read-only") if self.access is VaultAccess.READ_ONLY else None

    def check(self) -> None:
        """Raise VaultSuspended if the vault is suspended."""
        if self.access is VaultAccess.SUSPENDED:  # §R9.4-1
            raise VaultSuspended(
                self._sentence("suspended"),
                hint="Ask the operator, or move to another relay. Your devices keep what they hold, and search works.",
            )

    def _sentence(self, done: str) -> str:
        reason = f": {self.reason}" if self.reason else ""  # §R9.4-3
        return f"this vault was {done} by the relay's operator on {day_of(self.since)}{reason}"


class VaultTerms:
    """The terms of the vaults in a store."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    async def of(self, vault: str) -> Terms:
        """The vault's terms. Raises StoreDamaged."""
        try:
            text = await (await self._store.get(_key(vault))).read()
        except NotFound:
            return _OPEN
        try:
            return _DECODER.decode(text)
        except UNDECODABLE:
            raise StoreDamaged("the record of a vault's terms is damaged") from None

    async def set_access(self, vault: str, access: VaultAccess, reason: str = "") -> Terms:
        """Suspend a vault, make it read-only, or open it. Idempotent: the first time and reason stay. Raises BadRequest."""
        if len(reason) > REASON_CHARS_MAX or not reason.isprintable():
            raise BadRequest(f"a reason has at most {REASON_CHARS_MAX} characters, all of them printable")
        terms = await self.of(vault)
        if terms.access is access and reason in ("", terms.reason):
            return terms
        return await self._put(vault, Terms(access, int(self._clock()), reason, terms.quota_bytes))

    async def set_quota(self, vault: str, quota_bytes: int) -> Terms:
        """Set the vault's quota in bytes, 0 for what it came with. Raises BadRequest."""
        if quota_bytes < 0:
            raise BadRequest("a quota is not negative")
        return await self._put(vault, msgspec.structs.replace(await self.of(vault), quota_bytes=quota_bytes))

    async def forget(self, vault: str) -> None:
        """Delete the terms of a vault that is to be created: a command may have written them while an earlier one went."""
        await self._store.delete(_key(vault))

    async def _put(self, vault: str, terms: Terms) -> Terms:
        await self._store.put(_key(vault), msgspec.json.encode(terms))
        return terms


_OPEN = Terms()
_DECODER: msgspec.json.Decoder[Terms] = msgspec.json.Decoder(Terms)


def _key(vault: str) -> str:
    return f"r/vault/{vault}/terms"
