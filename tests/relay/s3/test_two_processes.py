"""Two real relay processes over one bucket of a real S3 server: either may be asked, killed, stopped and started."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from crystal_relay.client.http import HttpStore
from crystal_relay.errors import StoreUnavailable, Unauthorized
from tests.support.relay_process import RelayProcess
from tests.support.relay_server import Member, enrolled, joined
from tests.support.s3_servers import S3Server

WAKE_SECONDS_MAX = 5.0


@pytest.fixture(params=["moto_server", "rgw_server"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[list[RelayProcess]]:
    server: S3Server = request.getfixturevalue(request.param)
    server = server.with_new_bucket()
    options = ("--store", f"s3://{server.bucket}/relay", "--s3-endpoint", server.endpoint, "--verbose")
    with ExitStack() as stack:
        pair: list[RelayProcess] = []
        for name in ("one", "other"):
            relay = RelayProcess(
                tmp_path / name,
                enroll_token="enrolment-token-of-the-tests",
                options=options,
                environment=server.environment,
            )
            stack.callback(relay.kill)
            relay.start()
            pair.append(relay)
        yield pair


def key(member: Member, number: int) -> str:
    return f"{member.prefix}conversations/{member.device}.{'0' * 16}/{number:020d}"


async def settled(store: HttpStore, member: Member, token: str | None) -> str:
    """The token once nothing is new any more."""
    for _ in range(5):
        fresh = await store.wait(member.prefix, token=token, timeout=0.2)
        if fresh == token:
            return fresh
        token = fresh
    raise AssertionError("woken again and again for nothing")


async def woken(waiter: HttpStore, writer: HttpStore, member: Member, number: int, token: str) -> str:
    """The new token of a wait that a write elsewhere ends."""
    token = await settled(waiter, member, token)
    wait = asyncio.create_task(waiter.wait(member.prefix, token=token, timeout=30))
    await asyncio.sleep(0.1)
    assert not wait.done()
    await writer.put_new(key(member, number), b"x")
    fresh = await asyncio.wait_for(wait, WAKE_SECONDS_MAX)
    assert fresh != token
    return fresh


async def test_either_wakes_the_waits_of_the_other_and_refuses_what_the_other_revoked(
    pair: list[RelayProcess],
) -> None:
    lead = await enrolled(pair[0].url)
    node = await joined(pair[1].url, lead)
    stores = [lead.store(relay.url) for relay in pair]
    token = await stores[0].wait(lead.prefix, token=None, timeout=0)
    for number in range(10):
        waiter, writer = stores[number % 2], stores[(number + 1) % 2]
        token = await woken(waiter, writer, lead, number, token)
    known = [node.store(relay.url) for relay in pair]
    for store in known:
        assert len((await store.list(node.prefix)).entries) == 10
    await stores[0].revoke_token(device=node.device)
    for store in known:
        with pytest.raises(Unauthorized):
            await store.list(node.prefix)
        await store.aclose()
    for store in stores:
        await store.aclose()
    for relay in pair:
        assert relay.stop() == 0
        assert "Traceback" not in relay.errors
        assert "processes stays" not in relay.errors


async def test_one_that_is_killed_and_started_again_is_told_and_tells_again(pair: list[RelayProcess]) -> None:
    one, other = pair
    lead = await enrolled(one.url)
    here, there = lead.store(one.url), lead.store(other.url)
    token = await woken(here, there, lead, 0, await here.wait(lead.prefix, token=None, timeout=0))
    elsewhere = await there.wait(lead.prefix, token=token, timeout=0)
    other.kill()
    with pytest.raises(StoreUnavailable):
        await there.wait(lead.prefix, token=elsewhere, timeout=0)
    token = await here.wait(lead.prefix, token=elsewhere, timeout=0)
    token = await woken(here, here, lead, 1, token)
    other.start()
    token = await woken(there, here, lead, 2, token)
    await woken(here, there, lead, 3, token)
    assert [entry.key for entry in (await there.list(lead.prefix)).entries] == [
        key(lead, n) for n in range(4)
    ]
    await here.aclose()
    await there.aclose()


async def test_one_that_stands_still_for_a_while_is_told_all_that_it_missed(pair: list[RelayProcess]) -> None:
    one, other = pair
    lead = await enrolled(one.url)
    here, there = lead.store(one.url), lead.store(other.url)
    token = await settled(there, lead, await there.wait(lead.prefix, token=None, timeout=0))
    wait = asyncio.create_task(there.wait(lead.prefix, token=token, timeout=60))
    await asyncio.sleep(0.2)
    os.kill(other.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        for number in range(20):
            await here.put_new(key(lead, number), b"x")
        assert time.monotonic() - began < WAKE_SECONDS_MAX, "a process that stands still holds up the others"
        await settled(here, lead, token)
    finally:
        os.kill(other.pid, signal.SIGCONT)
    assert await asyncio.wait_for(wait, 20) != token
    await here.aclose()
    await there.aclose()


async def test_the_other_process_is_told_within_milliseconds(pair: list[RelayProcess]) -> None:
    """The benchmark measures how many; here it only must not be a matter of polling."""
    one, other = pair
    lead = await enrolled(one.url)
    here, there = lead.store(one.url), lead.store(other.url)
    token = await here.wait(lead.prefix, token=None, timeout=0)
    took: list[float] = []
    for number in range(10):
        token = await settled(here, lead, token)
        wait = asyncio.create_task(here.wait(lead.prefix, token=token, timeout=30))
        await asyncio.sleep(0.05)
        await there.put_new(key(lead, number), b"x")
        stored = time.monotonic()
        token = await asyncio.wait_for(wait, WAKE_SECONDS_MAX)
        took.append(time.monotonic() - stored)
    assert sorted(took)[5] < 0.5
    await here.aclose()
    await there.aclose()


async def test_strangers_at_the_public_address_learn_nothing_of_the_others(pair: list[RelayProcess]) -> None:
    async with httpx.AsyncClient(base_url=pair[0].url) as client:
        got = await client.post("/v2/peers/heard", content=b"{}")
        assert got.status_code == 401
        health = (await client.get("/health")).text
        described = (await client.get("/v2/openapi.json")).text
    assert json.loads(health)["ok"]
    assert "peers" not in described
    assert pair[1].url not in health + described + got.text
