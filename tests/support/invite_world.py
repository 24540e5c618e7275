"""A relay whose clock stands still until a test moves it, a vault on it, and invites to that vault."""

import secrets
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from crystal_relay.client.http import HttpStore
from crystal_relay.client.invite import InviteStore
from crystal_relay.invites import (
    MailboxSlot,
    access_hash,
    slot_key,
)
from crystal_relay.limits import (
    INVITE_SECONDS,
)
from crystal_relay.server import RelaySettings
from crystal_relay.server.sweeper import Sweeper
from crystal_relay.store import Store
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, served

SETTINGS = RelaySettings(enroll_token=ENROLL_TOKEN, sweep_seconds=0)
WAKE_SECONDS_MAX = 5.0
"""A sleeper that is not woken by then is not woken."""


@dataclass
class Clock:
    """The relay's. It stands still until it is moved."""

    now: float = field(default_factory=lambda: float(int(time.time())))

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    """A relay that does not sweep by itself, a vault, and its inviting device."""

    relay: ServedRelay
    clock: Clock
    lead: Member
    store: HttpStore

    async def invite(self) -> "Invitation":
        made = Invitation(self.lead.vault)
        assert await self.store.create_invite(made.mailbox, access_hash(made.access)) == INVITE_SECONDS
        return made

    @asynccontextmanager
    async def newcomer(self, invitation: "Invitation") -> AsyncGenerator[InviteStore]:
        store = InviteStore(
            self.relay.url, vault=invitation.vault, mailbox=invitation.mailbox, access=invitation.access
        )
        try:
            yield store
        finally:
            await store.aclose()

    async def sweep(self) -> None:
        await Sweeper(self.relay.store, clock=self.clock).run()

    async def kept(self, prefix: str) -> list[str]:
        return [entry.key for entry in (await self.relay.store.list(prefix)).entries]


@dataclass
class Invitation:
    """What the text of an invite gives."""

    vault: str
    mailbox: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    access: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def key(self, slot: MailboxSlot) -> str:
        return slot_key(self.vault, self.mailbox, slot)


@asynccontextmanager
async def invite_world(kept: Store) -> AsyncGenerator[World]:
    """Over a store, which stays the caller's to close."""
    clock = Clock()
    async with served(kept, SETTINGS, clock=clock) as relay:
        lead = await enrolled(relay.url)
        store = lead.store(relay.url)
        yield World(relay, clock, lead, store)
        await store.aclose()


async def refused(calls: Sequence[Coroutine[object, object, object]], error: type[Exception]) -> None:
    """Each of them raises that."""
    for call in calls:
        with pytest.raises(error):
            await call
