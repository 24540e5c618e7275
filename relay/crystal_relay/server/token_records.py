"""Records of registered and revoked tokens of vaults.

    r/vault/<vault>/token/<device>/<hash>       a registered token: its preset, and under which naming of leads
    r/vault/<vault>/revoked/<device>/<hash>     that token is revoked, for good
    r/vault/<vault>/reserved/<device>/<hash>    that token uses one of the places reserved for the recovery secret

    unknown --register--> VALID --revoke--> REVOKED, for good --members named by recovery secret--> REVOKED, without a record

The thief of a token can fill a vault with tokens. So some places are reserved for the recovery secret and counted separately,
and naming the members by it makes space: the records of revoked tokens are deleted. Their marks stay, up to a bound that no
honest vault reaches. A mark is written before its record is deleted, and deleted after it; a look-up reads the mark first. So
a revoked token is never valid, not even for a moment.
"""

from collections.abc import Mapping

import msgspec

from crystal_relay.errors import AlreadyExists, NotFound, QuotaExceeded
from crystal_relay.server.records import Records
from crystal_relay.tokens import Preset

TOKENS_MAX = 1_000
"""Tokens of a vault including revoked ones: one page, so that nobody can fill the relay with tokens."""
TOKENS_RESERVED = 64
"""Further tokens, reserved for the recovery secret."""
MARKS_KEPT_MAX = 8_000
"""Marks of revoked tokens without a record. Beyond it some are deleted: those of non-members first."""
_RECORD_VERSION = 1


class TokenRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A registered token. `number` is that of the naming of leads (see `core_devices`) under which it got its preset."""

    version: int
    token_hash: str
    preset: Preset
    number: int = 0


class TokenRecords:
    """The token records in a store."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def find(self, vault: str, device: str, name: str) -> TokenRecord:
        """The record of a token, valid or revoked. Raises NotFound."""
        return await self._records.read(_token_key(vault, device, name), TokenRecord)

    async def is_revoked(self, vault: str, device: str, name: str) -> bool:
        """Whether the token is revoked."""
        return await self._records.has(_revoked_key(vault, device, name))

    async def is_in(self, vault: str, device: str) -> bool:
        """Whether the device has a valid token."""
        tokens = await self._records.names(_token_key(vault, device, ""))
        return bool(set(tokens).difference(await self._records.names(_revoked_key(vault, device, ""))))

    async def add(
        self, vault: str, device: str, name: str, preset: Preset, *, number: int, by_recovery: bool
    ) -> None:
        """Add a token. Raises AlreadyExists, QuotaExceeded."""
        token = f"{device}/{name}"
        tokens = await self._records.names(_tokens(vault))
        if token in tokens:
            raise AlreadyExists("the token is registered")
        if len(tokens) >= TOKENS_MAX:  # §R4.2-3, §R9.1-4
            if not by_recovery:
                raise QuotaExceeded(
                    f"a vault has at most {TOKENS_MAX} tokens, those that were shut out included",
                    hint="Revoke the device that filled it, on a machine that holds the vault's root.",
                )
            await self._reserve(vault, token)
        record = TokenRecord(_RECORD_VERSION, name, preset, number)
        await self._records.put_new(_token_key(vault, device, name), record)

    async def revoke(self, vault: str, device: str, name: str | None) -> None:
        """Revoke one token of a device, or all. Raises QuotaExceeded (a hash that was never registered)."""
        if name is None:
            names = await self._records.names(_token_key(vault, device, ""))
            await self._records.mark_all([_revoked_key(vault, device, each) for each in names])
        else:
            await self._check_revocable(vault, device, name)
            await self._records.mark(_revoked_key(vault, device, name))

    async def shut_out_strangers(self, vault: str, kept: Mapping[str, str | None]) -> int:
        """Revoke the valid tokens that are not kept, as in `Registry.retain`. Returns how many."""
        tokens = await self._records.names(_tokens(vault))
        out = frozenset(await self._records.names(_revoked(vault)))
        strangers = [each for each in tokens if each not in out and not _is_kept(each, kept)]
        await self._records.mark_all([_revoked(vault) + each for each in strangers])
        return len(strangers)

    async def make_room(self, vault: str, kept: Mapping[str, str | None]) -> None:
        """Delete the records of revoked tokens."""
        out = await self._records.names(_revoked(vault))
        shut_out = frozenset(out)
        tokens = await self._records.names(_tokens(vault))
        gone = [each for each in tokens if each in shut_out]
        await self._records.delete_all([_tokens(vault) + each for each in gone])
        strangers_first = sorted(out, key=lambda each: each.partition("/")[0] in kept)
        spare = strangers_first[: max(0, len(out) - MARKS_KEPT_MAX)]  # §R9.1-4
        await self._records.delete_all([_revoked(vault) + each for each in spare])
        left: frozenset[str] = frozenset()
        if len(tokens) - len(gone) > TOKENS_MAX:
            left = frozenset(tokens).difference(gone)
        reserved = await self._records.names(_reserved(vault))
        await self._records.delete_all([_reserved(vault) + each for each in reserved if each not in left])

    async def _reserve(self, vault: str, token: str) -> None:
        reserved = await self._records.names(_reserved(vault))
        if token in reserved:
            return
        if len(reserved) >= TOKENS_RESERVED:  # §R4.2-3, §R9.1-4
            raise QuotaExceeded(
                f"the {TOKENS_RESERVED} tokens beyond a vault's {TOKENS_MAX} are used up",
                hint="Name the vault's members by the recovery secret: the records of all others go.",
            )
        await self._records.mark(_reserved(vault) + token)

    async def _check_revocable(self, vault: str, device: str, name: str) -> None:
        out = await self._records.names(_revoked(vault))
        if len(out) < TOKENS_MAX or f"{device}/{name}" in out:  # §R9.1-4
            return
        try:
            await self.find(vault, device, name)
        except NotFound:
            raise QuotaExceeded(f"{TOKENS_MAX} tokens of this vault were shut out already") from None


def _is_kept(token: str, kept: Mapping[str, str | None]) -> bool:
    device, _, name = token.partition("/")
    return device in kept and kept[device] in (None, name)  # §R4.4-1


def _tokens(vault: str) -> str:
    return f"r/vault/{vault}/token/"


def _revoked(vault: str) -> str:
    return f"r/vault/{vault}/revoked/"


def _reserved(vault: str) -> str:
    return f"r/vault/{vault}/reserved/"


def _token_key(vault: str, device: str, name: str) -> str:
    return f"{_tokens(vault)}{device}/{name}"


def _revoked_key(vault: str, device: str, name: str) -> str:
    return f"{_revoked(vault)}{device}/{name}"
