"""Deletions that a vault's owner asked for: each waits, can be called off meanwhile, and is then carried out by the sweeper.

    r/vault/<vault>/deletion/<number, 6 digits>         {"asked", "due"}, Unix seconds
    r/vault/<vault>/deletion/<number, 6 digits>.off     it was called off
    r/deleted/<vault>                                   {"at", "tokens"}: what remains, for a year

    none --asked--> waiting --called off--> none;  waiting --due--> being deleted (see `dropped_vaults`) --> gone

Records are written once, under numbers that are used once: a request that somebody kept has no power after it was called off.
While a deletion waits, the vault is served as before.

What remains tells a device that was away which end its vault has had: the beginnings of its tokens' hashes, and when. Whoever
shows none of these tokens learns nothing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from crystal_relay.errors import (
    UNDECODABLE,
    AlreadyExists,
    BadRequest,
    NotFound,
    RelayError,
    StoreDamaged,
    Unauthorized,
    VaultDeleted,
    WrongNumber,
)
from crystal_relay.limits import DELETION_SECONDS_MAX, DELETIONS_MAX
from crystal_relay.server.expiry import ExpiryKind, expiry_at, record_expiry
from crystal_relay.server.records import Records
from crystal_relay.store import Store

CALL_OFF_SECONDS_MIN = 60
"""A deletion cannot be called off this shortly before its time: clocks differ, and another process may have begun it."""
KEPT_SECONDS = 366 * 24 * 3600
"""How long the relay remembers that a vault was deleted."""
_SHOWN_CHARS = 16
"""Of a token's hash: enough to know it again, too little to test guesses of a secret of 256 bits."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """The newest deletion of a vault. `number`: 0 if none was ever asked for; `asked`, `due`: in Unix seconds, 0 if none
    waits."""

    number: int = 0
    asked: int = 0
    due: int = 0


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    asked: int
    due: int


class _Remains(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    at: int
    tokens: list[str]


_RECORD = msgspec.json.Decoder(_Record)
_REMAINS = msgspec.json.Decoder(_Remains)


class VaultDeletions:
    """The deletions in a store."""

    def __init__(self, store: Store, *, seconds_min: int = 0, clock: Callable[[], float] = time.time) -> None:
        """`seconds_min`: the shortest waiting time that is accepted."""
        self._store = store
        self.seconds_min = seconds_min
        self._clock = clock

    async def newest(self, vault: str) -> Deletion:
        """The newest deletion. Raises StoreDamaged."""
        prefix = deletions_prefix(vault)
        names = [entry.key.removeprefix(prefix) for entry in (await self._store.list(prefix)).entries]
        if not names:
            return Deletion()
        number = int(names[-1][:6])
        if names[-1].endswith(".off"):
            return Deletion(number)
        record = await self._read(vault, number)
        return Deletion(number) if record is None else Deletion(number, record.asked, record.due)

    async def ask(self, vault: str, number: int, due: int) -> Deletion:
        """Have the vault deleted at `due`. Idempotent. Raises WrongNumber, BadRequest (too soon, too late)."""
        last = await self.newest(vault)
        if last.due and (last.number, last.due) == (number, due):  # §R4.7-4
            return last
        if last.due:  # §R4.7-3
            raise WrongNumber(
                f"this vault is to be deleted on {_day(last.due)} already",
                hint="Call that off first, to choose another time.",
            )
        if number != last.number + 1 or number > DELETIONS_MAX:  # §R4.7-3
            raise WrongNumber(f"{last.number} deletions of this vault were asked for before")
        now = int(self._clock())
        if not self.seconds_min <= due - now <= DELETION_SECONDS_MAX:  # §R4.7-2
            raise BadRequest(
                f"this relay deletes a vault {_days(self.seconds_min)} after the request at the soonest, and "
                f"{_days(DELETION_SECONDS_MAX)} after it at the latest",
                hint="Choose another waiting time, and see that this machine's clock is right.",
            )
        await record_expiry(self._store, expiry_at(due, ExpiryKind.DELETION, vault))
        try:
            await self._store.put_new(_key(vault, number), msgspec.json.encode(_Record(now, due)))
        except AlreadyExists:
            record = await self._read(vault, number)
            if record is None or record.due != due:
                raise WrongNumber("another deletion was given that number first") from None
            return Deletion(number, record.asked, record.due)
        return Deletion(number, now, due)

    async def call_off(self, vault: str, number: int) -> Deletion:
        """Call a deletion off. Idempotent. Raises NotFound, BadRequest (too late)."""
        last = await self.newest(vault)
        if not 1 <= number <= last.number:
            raise NotFound("no such deletion was asked for")
        if number < last.number or not last.due:  # §R4.7-5
            return last
        if self._clock() > last.due - CALL_OFF_SECONDS_MIN:  # §R4.7-5
            raise BadRequest("the waiting time is over: the vault is being deleted")
        try:
            await self._store.put_new(f"{_key(vault, number)}.off", b"{}")
        except AlreadyExists:
            return Deletion(number)
        return Deletion(number)

    async def is_due(self, vault: str) -> bool:
        """Whether the vault's owner had it deleted, and the waiting time is over."""
        return 0 < (await self.newest(vault)).due <= self._clock()

    async def keep_remains(self, vault: str, due: int) -> None:
        """Write what remains, from the tokens that the vault has now. Idempotent, also after some of them were deleted."""
        kept = await self._remains(vault)
        if kept is not None and kept.at == due:
            return
        await record_expiry(self._store, expiry_at(due + KEPT_SECONDS, ExpiryKind.DELETED, vault))
        records = Records(self._store)
        shut_out = set(await records.names(f"r/vault/{vault}/revoked/"))
        tokens = [each for each in await records.names(f"r/vault/{vault}/token/") if each not in shut_out]
        remains = _Remains(due, sorted({each.rpartition("/")[2][:_SHOWN_CHARS] for each in tokens}))
        await self._store.put(_remains_key(vault), msgspec.json.encode(remains))

    async def forget(self, vault: str) -> None:
        """Delete what remains, once its time is over."""
        kept = await self._remains(vault)
        if kept is not None and kept.at + KEPT_SECONDS <= self._clock():  # else it was deleted again since
            await self._store.delete(_remains_key(vault))

    async def refusal(self, vault: str, name: str) -> RelayError:
        """The error for a token, by its hash, that the vault does not have."""
        kept = await self._remains(vault)  # read for unknown vaults, too, so that the cost tells nothing
        if kept is not None and name[:_SHOWN_CHARS] in kept.tokens:  # §R4.7-7
            return VaultDeleted(f"this vault was deleted on {_day(kept.at)}, as its owner had asked")
        return Unauthorized("the relay does not know these credentials")

    # --- inside ---

    async def _read(self, vault: str, number: int) -> _Record | None:
        text = await self._text(_key(vault, number))
        try:
            return None if text is None else _RECORD.decode(text)
        except UNDECODABLE:
            raise StoreDamaged("the record of a vault's deletion is damaged") from None

    async def _remains(self, vault: str) -> _Remains | None:
        text = await self._text(_remains_key(vault))
        try:
            return None if text is None else _REMAINS.decode(text)
        except UNDECODABLE:
            raise StoreDamaged("the record of a deleted vault is damaged") from None

    async def _text(self, key: str) -> bytes | None:
        try:
            return await (await self._store.get(key)).read()
        except NotFound:
            return None


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _days(seconds: int) -> str:
    days = seconds // 86400
    return f"{days} day{'s' * (days != 1)}"


def deletions_prefix(vault: str) -> str:
    """Prefix of the records of a vault's deletions."""
    return f"r/vault/{vault}/deletion/"


def _key(vault: str, number: int) -> str:
    return f"{deletions_prefix(vault)}{number:06d}"


def _remains_key(vault: str) -> str:
    return f"r/deleted/{vault}"
