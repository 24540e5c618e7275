"""What one side makes of a mailbox whose relay goes away."""

import asyncio
import time

import pytest

from crystal_node.safekeeping.pairing.mailbox import Countdown, Post
from crystal_relay.errors import StoreUnavailable
from crystal_relay.invites import InviteInfo, MailboxSlot


class _AwayThenSilent:
    """A relay that cannot be reached, and then takes a connection and never answers."""

    def __init__(self) -> None:
        self.calls = 0

    async def get(self, slot: MailboxSlot) -> bytes | None:
        self.calls += 1
        if self.calls == 1:
            raise StoreUnavailable("no connection")
        await asyncio.Event().wait()
        return None

    async def put_new(self, slot: MailboxSlot, data: bytes) -> None:
        raise NotImplementedError

    async def wait(self, token: str | None, timeout: float) -> str:
        raise NotImplementedError

    async def info(self) -> InviteInfo:
        raise NotImplementedError


def test_a_time_that_runs_out_while_the_relay_is_away_is_the_relays_failure() -> None:
    mailbox = _AwayThenSilent()
    post = Post(mailbox, Countdown(2.0, time.monotonic))
    with pytest.raises(StoreUnavailable, match="no connection"):
        asyncio.run(post.first_of([MailboxSlot.WELCOME, MailboxSlot.END]))
    assert mailbox.calls == 2
