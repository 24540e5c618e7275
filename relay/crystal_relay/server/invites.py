"""Invites in the store: who may use a mailbox, until when, and how the invite ended.

    r/vault/<vault>/invite/<mailbox>/opened     the access secret's hash, when it expires
    r/vault/<vault>/invite/<mailbox>/closed     why it was closed, and when
    r/vault/<vault>/invite/<mailbox>/short      its sealed bytes (see `short_invites`); deleted when it ends
    v/<vault>/invite/<mailbox>/<slot>           messages of the two devices; deleted when it ends

Both records are written once, so any number of processes may serve one invite: the first closing counts. Whether it is open is
checked at every use, by this process's clock, and does not depend on the sweeper. The sweeper deletes the slots when an invite
expires, and the records a day later.

If several processes open invites at once, all may be refused although there is space for one; the limit is never exceeded.
"""

import asyncio
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from crystal_relay.errors import (
    UNDECODABLE,
    AlreadyExists,
    InviteClosed,
    InviteExpired,
    InviteUsed,
    NotFound,
    StoreDamaged,
    TooManyInvites,
    Unauthorized,
    VaultReadOnly,
)
from crystal_relay.invites import CloseReason, InviteState, mailbox_prefix
from crystal_relay.limits import INVITE_KEPT_SECONDS, INVITE_SECONDS, INVITES_KEPT_MAX, INVITES_OPEN_MAX
from crystal_relay.server.concurrency import VaultConcurrency
from crystal_relay.server.dropped_vaults import DroppedVaults
from crystal_relay.server.expiry import ExpiryKind, expiry_at, record_expiry
from crystal_relay.server.vault_terms import Terms, VaultTerms
from crystal_relay.store import Store
from crystal_relay.wire import InviteCreation, InviteReply

_VERSION = 1

Record = TypeVar("Record", bound=msgspec.Struct)
_CLOSED_MARK = "closed"
"""Not a slot: written and deleted again to wake the waits on the mailbox."""


class _Opened(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    access_hash: str
    expires_at: int


class _Closed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    reason: CloseReason
    at: int


@dataclass(frozen=True, slots=True)
class Invite:
    """An invite as read from the store."""

    access_hash: str
    expires_at: int
    """Unix seconds."""
    closed: CloseReason | None
    closed_at: int

    def state(self, now: float) -> InviteState:
        """State at a time in Unix seconds."""
        if self.closed is not None:
            return InviteState(self.closed.value)
        return InviteState.OPEN if now < self.expires_at else InviteState.EXPIRED  # §21.4-6, §R5-1

    def reply(self, now: float) -> InviteReply:
        """The reply to a client."""
        state = self.state(now)
        if state is InviteState.OPEN:
            return InviteReply(state, max(1, int(self.expires_at - now)), 0)
        return InviteReply(state, 0, self._ago(now))

    def check_open(self, now: float) -> float:
        """Seconds left. Raises InviteExpired, InviteUsed, InviteClosed."""
        ago = self._ago(now)
        match self.state(now):
            case InviteState.OPEN:
                return self.expires_at - now
            case InviteState.EXPIRED:
                raise InviteExpired(f"this invite expired {_span(ago)} ago", seconds_ago=ago)  # §R5-4
            case InviteState.USED:
                raise InviteUsed(f"this invite was used {_span(ago)} ago", seconds_ago=ago)
            case InviteState.WITHDRAWN:
                raise InviteClosed(f"this invite was withdrawn {_span(ago)} ago", seconds_ago=ago)
            case InviteState.BURNT:
                raise InviteClosed(
                    f"this invite was burnt after wrong digits {_span(ago)} ago", seconds_ago=ago
                )

    def _ago(self, now: float) -> int:
        return max(0, int(now - (self.expires_at if self.closed is None else self.closed_at)))


class Invites:
    """The invites in a store."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._dropped = DroppedVaults(store, clock=clock)
        self._terms = VaultTerms(store, clock=clock)
        self._opening = VaultConcurrency(1)

    @property
    def now(self) -> float:
        """Unix seconds, by the relay's clock."""
        return self._clock()

    async def open(self, vault: str, creation: InviteCreation) -> InviteReply:
        """Open a mailbox. Idempotent.

        Raises TooManyInvites, AlreadyExists (with another secret), InviteOver (it was open).
        """
        await self._opening.enter(vault)
        try:
            found = await self.find(vault, creation.mailbox)
            if found is None:
                await self._check_room(vault, creation.mailbox)
                found = await self._open(vault, creation)
        finally:
            self._opening.leave(vault)
        if not hmac.compare_digest(found.access_hash, creation.access_hash):  # §R5.1-1
            raise AlreadyExists("the mailbox is open already, to another secret")
        found.check_open(self._clock())
        return found.reply(self._clock())

    async def close(self, vault: str, mailbox: str, reason: CloseReason) -> InviteReply:
        """Close an invite. Idempotent; the first reason stays. Raises NotFound."""
        if await self.find(vault, mailbox) is None:
            raise _no_invite()
        record = _Closed(_VERSION, reason, int(self._clock()))
        await self._put_once(_closed_key(vault, mailbox), msgspec.json.encode(record))
        await self._store.delete(short_key(vault, mailbox))  # §R5-5
        prefix = mailbox_prefix(vault, mailbox)
        await self._put_once(prefix + _CLOSED_MARK, b"")
        for entry in (await self._store.list(prefix)).entries:
            await self._store.delete(entry.key)  # §R5-5
        return await self.look_up(vault, mailbox)

    async def look_up(self, vault: str, mailbox: str) -> InviteReply:
        """The state of an invite. Raises NotFound."""
        found = await self.find(vault, mailbox)
        if found is None:
            raise _no_invite()
        return found.reply(self._clock())

    async def check_open(self, vault: str, mailbox: str) -> float:
        """Seconds left. Raises NotFound, InviteExpired, InviteUsed, InviteClosed."""
        found = await self.find(vault, mailbox)
        if found is None:
            raise _no_invite()
        return found.check_open(self._clock())

    async def identify(self, vault: str, mailbox: str, presented_hash: str) -> Invite:
        """The invite, open or over, if that is the hash of its access secret. Raises Unauthorized, VaultClosed,
        VaultReadOnly (nobody can join).

        An unknown vault, an unknown mailbox and a wrong secret cannot be told apart, and cost the same.
        """
        found, until, terms = await asyncio.gather(
            self.find(vault, mailbox),
            self._dropped.until(vault),
            self._terms.of(vault),
            return_exceptions=True,
        )
        for failed in (found, until, terms):
            if isinstance(failed, BaseException):
                raise failed
        expected = found.access_hash if isinstance(found, Invite) else "0" * 64
        if not hmac.compare_digest(expected, presented_hash) or not isinstance(found, Invite):  # §R2-3
            raise Unauthorized("the relay does not know these credentials")
        if until is not None:
            await self._dropped.check(vault)
        assert isinstance(terms, Terms)
        terms.check()
        if terms.read_only is not None:  # §R9.4-2
            raise VaultReadOnly(terms.read_only, hint="Ask the operator when devices can join again.")
        return found

    async def find(self, vault: str, mailbox: str) -> Invite | None:
        """Read an invite. Raises StoreDamaged."""
        opened, closed = await asyncio.gather(
            self._read(_opened_key(vault, mailbox), _Opened), self._read(_closed_key(vault, mailbox), _Closed)
        )
        if opened is None:
            return None
        if closed is None:
            return Invite(opened.access_hash, opened.expires_at, None, 0)
        return Invite(opened.access_hash, opened.expires_at, closed.reason, closed.at)

    # --- inside ---

    async def _open(self, vault: str, creation: InviteCreation) -> Invite:
        mailbox = creation.mailbox
        expires_at = int(self._clock()) + INVITE_SECONDS
        await record_expiry(self._store, expiry_at(expires_at, ExpiryKind.INVITE, vault, mailbox))
        await record_expiry(  # §R5-4
            self._store, expiry_at(expires_at + INVITE_KEPT_SECONDS, ExpiryKind.MAILBOX, vault, mailbox)
        )
        key = _opened_key(vault, mailbox)
        record = _Opened(_VERSION, creation.access_hash, expires_at)
        try:
            await self._store.put_new(key, msgspec.json.encode(record))
        except AlreadyExists:
            # Another process was first.
            found = await self.find(vault, mailbox)
            if found is None:
                raise
            return found
        try:
            await self._check_room(vault, mailbox)
        except TooManyInvites:
            # Other processes opened some meanwhile. Nobody was told of this one yet.
            await self._store.delete(key)
            raise
        return Invite(record.access_hash, record.expires_at, None, 0)

    async def _check_room(self, vault: str, mailbox: str) -> None:
        """Raise TooManyInvites if the vault has reached a limit."""
        prefix = _records_prefix(vault)
        records: dict[str, set[str]] = {}
        for entry in (await self._store.list(prefix)).entries:
            name, _, kind = entry.key.removeprefix(prefix).partition("/")
            records.setdefault(name, set()).add(kind)
        records.pop(mailbox, None)
        if len(records) >= INVITES_KEPT_MAX:  # §R5.1-2
            raise TooManyInvites(
                f"this vault has made {INVITES_KEPT_MAX} invites within a day", hint="Try again later."
            )
        # Few are neither closed nor gone: of those only their records tell whether they have expired.
        maybe = [name for name, kinds in records.items() if _CLOSED_MARK not in kinds]
        found = await asyncio.gather(*(self._read(_opened_key(vault, name), _Opened) for name in maybe))
        left = sorted(each.expires_at - self._clock() for each in found if each is not None)
        still_open = [seconds for seconds in left if seconds > 0]
        if len(still_open) >= INVITES_OPEN_MAX:  # §R5.1-2
            raise TooManyInvites(
                f"this vault has {INVITES_OPEN_MAX} open invites",
                hint=f"Withdraw one, or wait: the first of them expires in {_span(int(still_open[0]) + 1)}.",
            )

    async def _put_once(self, key: str, body: bytes) -> None:
        try:
            await self._store.put_new(key, body)
        except AlreadyExists:
            return

    async def _read(self, key: str, kind: type[Record]) -> Record | None:
        try:
            text = await (await self._store.get(key)).read()
        except NotFound:
            return None
        try:
            return msgspec.json.decode(text, type=kind)
        except UNDECODABLE:
            raise StoreDamaged("a record of an invite is damaged") from None


def record_keys(vault: str, mailbox: str) -> list[str]:
    """Keys of an invite's records, in the order of their deletion."""
    return [_closed_key(vault, mailbox), _opened_key(vault, mailbox)]


def short_key(vault: str, mailbox: str) -> str:
    """Key of an invite's sealed bytes."""
    return f"{_records_prefix(vault)}{mailbox}/short"


def _records_prefix(vault: str) -> str:
    return f"r/vault/{vault}/invite/"


def _opened_key(vault: str, mailbox: str) -> str:
    return f"{_records_prefix(vault)}{mailbox}/opened"


def _closed_key(vault: str, mailbox: str) -> str:
    return f"{_records_prefix(vault)}{mailbox}/{_CLOSED_MARK}"


def _no_invite() -> NotFound:
    return NotFound("this vault has no such invite", hint="It is over for more than a day, or never was.")


def _span(seconds: int) -> str:
    for unit, length in (("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = seconds // length
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{seconds} second{'s' if seconds != 1 else ''}"
