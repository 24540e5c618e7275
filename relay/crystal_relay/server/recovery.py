"""The hash of a vault's recovery secret, and its replacement when the root is replaced.

    r/vault/<vault>/record                 the first one, number 0
    r/vault/<vault>/recovery/<number>      its replacements; numbered from 1, six digits

Each is written once, under the next number: of two concurrent replacements one wins, and a secret can only authorise its own
replacement, not that of a later one. Nothing is cached: the newest is valid at every process at once.
"""

import asyncio
import hmac

import msgspec

from crystal_relay.errors import (
    UNDECODABLE,
    AlreadyExists,
    NotFound,
    RecoveryReplaced,
    StoreDamaged,
    Unauthorized,
    WrongNumber,
)
from crystal_relay.limits import RECOVERIES_MAX, RECOVERIES_TOLD
from crystal_relay.store import Store

_VERSION = 1


class _Replacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    recovery_hash: str


class RecoverySecrets:
    """The recovery hashes in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def newest(self, vault: str) -> tuple[int, str | None]:
        """How often it was replaced, and the current hash; None if that is the first."""
        listed = (await self._store.list(_prefix(vault), limit=RECOVERIES_MAX)).entries
        number = int(listed[-1].key.removeprefix(_prefix(vault))) if listed else 0
        # Also read for unknown vaults, so that the cost does not tell whether a vault exists.
        return number, await self._hash(vault, max(number, 1))

    async def refusal(self, vault: str, first_hash: str, number: int, presented: str) -> Unauthorized:
        """The error for a wrong secret after `number` replacements. Holders of a previous one are told so."""
        before = range(max(1, number - RECOVERIES_TOLD), number)  # §R2-4
        found = await asyncio.gather(*(self._hash(vault, each) for each in before))
        for known in (first_hash, *found) if number else ():
            if known is not None and hmac.compare_digest(known, presented):
                return RecoveryReplaced("that recovery secret was replaced")
        return Unauthorized("the relay does not know these credentials")

    async def replace(
        self, vault: str, first_hash: str, number: int, new_hash: str, *, presented: str
    ) -> None:
        """Replace the current one. Idempotent, also by the secret that it replaced.

        `first_hash`: number 0; `presented`: the hash of the secret that was shown. Raises WrongNumber, Unauthorized.
        """
        last, replaced_by = await self.newest(vault)
        counts = first_hash if replaced_by is None else replaced_by
        if not hmac.compare_digest(presented, counts):
            before = first_hash if number == 1 else await self._hash(vault, number - 1)
            repeated = last == number and hmac.compare_digest(counts, new_hash)
            if not repeated or before is None or not hmac.compare_digest(presented, before):  # §R4.6-3
                raise Unauthorized("the relay does not know these credentials")
            return
        if number == last and counts == new_hash:
            return
        if number != last + 1:  # §R4.6-3
            raise WrongNumber(f"the recovery secret that counts has the number {last}")
        record = _Replacement(_VERSION, new_hash)
        try:
            await self._store.put_new(_key(vault, number), msgspec.json.encode(record))
        except AlreadyExists:
            if await self._hash(vault, number) != new_hash:
                raise WrongNumber(f"another recovery secret was given the number {number} first") from None

    async def _hash(self, vault: str, number: int) -> str | None:
        try:
            text = await (await self._store.get(_key(vault, number))).read()
        except NotFound:
            return None
        try:
            return msgspec.json.decode(text, type=_Replacement).recovery_hash
        except UNDECODABLE:
            raise StoreDamaged("a record of the relay's registry is damaged") from None


def _prefix(vault: str) -> str:
    return f"r/vault/{vault}/recovery/"


def _key(vault: str, number: int) -> str:
    return f"{_prefix(vault)}{number:06d}"
