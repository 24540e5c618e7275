"""The tokens of vaults: which were let in, and which of them were shut out.

    r/vault/<vault>/token/<device>/<hash>       a token that was let in: its preset, and under which naming of leads
    r/vault/<vault>/revoked/<device>/<hash>     that token was shut out, for good
    r/vault/<vault>/reserved/<device>/<hash>    that token took one of the places that only the recovery secret gives

    unknown --let in--> IN --shut out--> OUT, for good --the recovery secret names the members--> OUT, without a record

Who has stolen a token can fill a vault with tokens. So some places are kept for the recovery secret, counted by themselves, and
its naming of the members makes room: the records of what was shut out go. The marks stay, up to a bound that nothing honest
comes to. A mark is written before its record goes, and goes after it; whoever looks a token up asks for the mark first. So at
no moment is a token let in that was shut out.
"""

from collections.abc import Mapping

import msgspec

from crystal_relay.errors import AlreadyExists, NotFound, QuotaExceeded
from crystal_relay.server.records import Records
from crystal_relay.tokens import Preset

TOKENS_MAX = 1_000
"""Of a vault, those that were shut out included: one page, so that nobody can fill the relay with tokens."""
TOKENS_RESERVED = 64
"""Beyond that, for who shows the recovery secret."""
MARKS_KEPT_MAX = 8_000
"""Of tokens that were shut out and whose records went. Beyond it some marks go too: of strangers first."""
_RECORD_VERSION = 1


class TokenRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A token that was let in. `number`: of the naming of leads (see `leads`) under which it was given its preset."""

    version: int
    token_hash: str
    preset: Preset
    number: int = 0


class TokenRecords:
    """All of a store."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def find(self, vault: str, device: str, name: str) -> TokenRecord:
        """The record of a token, in or out. Raises NotFound."""
        return await self._records.read(_token_key(vault, device, name), TokenRecord)

    async def is_revoked(self, vault: str, device: str, name: str) -> bool:
        """Whether it was shut out."""
        return await self._records.has(_revoked_key(vault, device, name))

    async def is_in(self, vault: str, device: str) -> bool:
        """Whether any token of the device is let in."""
        tokens = await self._records.names(_token_key(vault, device, ""))
        return bool(set(tokens).difference(await self._records.names(_revoked_key(vault, device, ""))))

    async def add(
        self, vault: str, device: str, name: str, preset: Preset, *, number: int, by_recovery: bool
    ) -> None:
        """Raises AlreadyExists, QuotaExceeded."""
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
        """Shut out one token of a device, or all that it has. Raises QuotaExceeded (a hash that was never let in)."""
        if name is None:
            names = await self._records.names(_token_key(vault, device, ""))
            await self._records.mark_all([_revoked_key(vault, device, each) for each in names])
        else:
            await self._check_revocable(vault, device, name)
            await self._records.mark(_revoked_key(vault, device, name))

    async def shut_out_strangers(self, vault: str, kept: Mapping[str, str | None]) -> int:
        """Those that are in and not to be kept, as `Registry.retain` has it. Returns how many there were."""
        tokens = await self._records.names(_tokens(vault))
        out = frozenset(await self._records.names(_revoked(vault)))
        strangers = [each for each in tokens if each not in out and not _is_kept(each, kept)]
        await self._records.mark_all([_revoked(vault) + each for each in strangers])
        return len(strangers)

    async def make_room(self, vault: str, kept: Mapping[str, str | None]) -> None:
        """Delete the records of the tokens that were shut out."""
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
