"""The mailbox that an invite opens on the relay, as both sides use it.

``Mailbox`` is the port; two adapters implement it on the relay's clients. ``Post`` is one side's use of it: it retries while
the invite lives, treats its own write as success when an answer was lost, and turns the relay's state of an invite that is
over into the error that names the fix. The relay states the remaining seconds, counted by a monotonic clock: this machine's
date plays no part.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from crystal_mirror.requests import StoreFailure
from crystal_node.base.errors import ExitCode
from crystal_node.base.wording import ago
from crystal_node.safekeeping.pairing.errors import Expired, UnknownInvite, Used, Withdrawn
from crystal_relay.client.http import HttpStore
from crystal_relay.client.invite import InviteStore
from crystal_relay.errors import (
    AlreadyExists,
    Busy,
    Closed,
    InviteOver,
    NoSuchRoute,
    NotFound,
    StoreUnavailable,
    Unauthorized,
)
from crystal_relay.invites import CloseReason, InviteInfo, InviteState, MailboxSlot, mailbox_prefix, slot_key

MESSAGE_BYTES_MAX = 4096
WAIT_SECONDS_MAX = 20.0
"""One long poll. Shorter than what proxies cut off."""
TICK_SECONDS = 1.0
_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
_TRIES_UNTOLD = 2
"""Failures of a call before the person is told that the relay is away."""

T = TypeVar("T")


class Mailbox(Protocol):
    """One invite's mailbox at the relay. Failures are ``crystal_relay.errors``."""

    async def put_new(self, slot: MailboxSlot, data: bytes) -> None:
        """Create-only."""
        ...

    async def get(self, slot: MailboxSlot) -> bytes | None:
        """A slot's bytes, cut one byte above ``MESSAGE_BYTES_MAX``; None if it is empty."""
        ...

    async def wait(self, token: str | None, timeout: float) -> str:
        """Returns when the mailbox has changed since the token was given, or the time is up."""
        ...

    async def info(self) -> InviteInfo: ...


class InviterMailbox:
    """The inviter's access, by this device's token."""

    def __init__(self, store: HttpStore, vault: bytes, mailbox: bytes) -> None:
        self._store = store
        self._vault = vault
        self._mailbox = mailbox

    async def put_new(self, slot: MailboxSlot, data: bytes) -> None:
        await self._store.put_new(slot_key(self._vault, self._mailbox, slot), data)

    async def get(self, slot: MailboxSlot) -> bytes | None:
        try:
            found = await self._store.get(
                slot_key(self._vault, self._mailbox, slot), length=MESSAGE_BYTES_MAX + 1
            )
            return await found.read()
        except NotFound:
            return None

    async def wait(self, token: str | None, timeout: float) -> str:
        return await self._store.wait(
            mailbox_prefix(self._vault, self._mailbox), token=token, timeout=timeout
        )

    async def info(self) -> InviteInfo:
        return await self._store.invite_state(self._mailbox)

    async def keep_short(self, place: bytes, sealed: bytes) -> bool:
        """Has the relay keep the sealed invite. False: it is an older one, which keeps none."""
        try:
            await self._store.keep_short_invite(self._mailbox, place, sealed)
        except NoSuchRoute:
            return False
        return True

    async def close(self, reason: CloseReason) -> None:
        await self._store.close_invite(self._mailbox, reason)


class NewcomerMailbox:
    """The newcomer's access, by the secret in the code."""

    def __init__(self, store: InviteStore) -> None:
        self._store = store

    async def put_new(self, slot: MailboxSlot, data: bytes) -> None:
        await self._store.put_new(slot, data)

    async def get(self, slot: MailboxSlot) -> bytes | None:
        try:
            return await self._store.get(slot)
        except NotFound:
            return None

    async def wait(self, token: str | None, timeout: float) -> str:
        return await self._store.wait(token=token, timeout=timeout)

    async def info(self) -> InviteInfo:
        return await self._store.state()


class Countdown:
    """The remaining time of an invite."""

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._end = monotonic() + seconds

    def left(self) -> float:
        return max(self._end - self._monotonic(), 0.0)


class Post:
    """One side's use of a mailbox while its invite lives."""

    def __init__(
        self, mailbox: Mailbox, countdown: Countdown, away: Callable[[bool], None] = lambda _: None
    ) -> None:
        self._mailbox = mailbox
        self._countdown = countdown
        self._tell_away = away
        self._away = False
        self._seen: str | None = None
        """The mailbox's token of the last wait; a later write ends the next wait at once."""
        self._trouble: Exception | None = None
        """Why the last call did not reach the relay; None once one did."""

    @property
    def seconds_left(self) -> float:
        return self._countdown.left()

    async def put(self, slot: MailboxSlot, data: bytes) -> bool:
        """Writes a slot. Returns False if it holds other bytes.

        Raises:
            PairingFailed: the invite is over.
            RelayError: the relay cannot be reached for as long as the invite lives, or refuses.
        """
        try:
            await self.patiently(lambda: self._mailbox.put_new(slot, data))
        except AlreadyExists:
            return await self.get(slot) == data
        return True

    async def get(self, slot: MailboxSlot) -> bytes | None:
        """A slot's bytes, or None. Raises as ``put``."""
        return await self.patiently(lambda: self._mailbox.get(slot))

    async def info(self) -> InviteInfo:
        """What the relay says of the invite. Raises as ``put``."""
        return await self.patiently(self._mailbox.info)

    async def first_of(
        self,
        slots: Sequence[MailboxSlot],
        *,
        within: float | None = None,
        tick: Callable[[float], None] = lambda _: None,
    ) -> tuple[MailboxSlot, bytes] | None:
        """Waits for the first filled slot, in the given order; None when the time is up.

        ``tick`` is called every second with the seconds left. Raises as ``put``, also if the time is up while the relay is
        away.
        """
        ticking = asyncio.create_task(self._tick(tick))
        try:
            async with asyncio.timeout(
                min(self.seconds_left, within if within is not None else float("inf"))
            ):
                return await self._first_of(slots)
        except TimeoutError:
            if self._trouble is not None:
                raise self._trouble from None
            return None
        finally:
            ticking.cancel()

    async def patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeats an idempotent call until it succeeds, while the relay is only away and the invite lives.

        ``away`` is told when the relay is away, and when it is back. Raises as ``put``, and as the call.
        """
        tries = 0
        while True:
            try:
                result = await call()
                self._trouble = None
                self._note_away(False)
                return result
            except InviteOver as error:
                raise await self._over(error) from error
            except Closed:
                raise
            except (StoreUnavailable, Busy, StoreFailure) as error:
                pause = _PAUSES_SECONDS[min(tries, len(_PAUSES_SECONDS) - 1)]
                passing = not isinstance(error, StoreFailure) or error.exit_code == ExitCode.RELAY_UNREACHABLE
                if not passing or self.seconds_left <= pause:
                    raise
                self._trouble = error
            tries += 1
            if tries == _TRIES_UNTOLD:
                self._note_away(True)
            await asyncio.sleep(pause)

    async def _first_of(self, slots: Sequence[MailboxSlot]) -> tuple[MailboxSlot, bytes]:
        while True:
            for slot in slots:
                data = await self.get(slot)
                if data is not None:
                    return slot, data
            self._seen = await self.patiently(lambda: self._mailbox.wait(self._seen, WAIT_SECONDS_MAX))

    async def _tick(self, tick: Callable[[float], None]) -> None:
        while True:
            tick(self.seconds_left)
            await asyncio.sleep(TICK_SECONDS)

    def _note_away(self, away: bool) -> None:
        if away != self._away:
            self._away = away
            self._tell_away(away)

    async def _over(self, error: InviteOver) -> Expired | Used | Withdrawn:
        """Why the invite is over, as far as the relay tells."""
        try:
            info = await self._mailbox.info()
        except (InviteOver, StoreUnavailable, Busy, Unauthorized):
            return Withdrawn("the invite is over", hint=error.hint or None)
        return over(info)


def over(info: InviteInfo) -> Expired | Used | Withdrawn:
    """The error for an invite that is not open any more."""
    when = f"{ago(info.expired_ago)} ago"
    match info.state:
        case InviteState.USED:
            return Used(f"this invite was already used, {when}")
        case InviteState.BURNT:
            return Withdrawn(f"this invite was burnt {when}: wrong digits, or something that does not belong")
        case InviteState.WITHDRAWN:
            return Withdrawn(f"this invite was withdrawn on the machine that made it, {when}")
        case InviteState.OPEN | InviteState.EXPIRED:
            return Expired(f"this invite expired {when}; it was good for ten minutes")


def unknown(error: Unauthorized) -> UnknownInvite:
    """The error for an invite that the relay does not know, or whose secret is wrong: it does not say which."""
    return UnknownInvite("the relay knows no such invite", hint=error.hint and None)
