"""Long polls: how soon a sleeper wakes, and what thousands of them cost."""

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from bench.harness import Row, percentile, value_at_most
from bench.relay_load import UNLIMITED, headers, on_uvloop, put
from crystal_relay.server.waits import WAITS_OF_DEVICE_MAX
from tests.support.raw_http import RawConnection
from tests.support.relay_process import RelayProcess, running_relay
from tests.support.relay_server import Member, enrolled

SLEEPERS = 2_000


def run(quick: bool) -> list[Row]:
    """Rows for the result table."""
    wakes = 100 if quick else 1_000
    with (
        tempfile.TemporaryDirectory(prefix="crystal-bench-") as directory,
        running_relay(Path(directory) / "relay", options=UNLIMITED, fresh=True) as relay,
    ):
        member = asyncio.run(enrolled(relay.url, enroll_token=relay.enroll_token))
        seconds = on_uvloop(lambda: _wakes(relay.url, relay.url, member, wakes))
        rows = [wake_row("a sleeper wakes, from the drop's request to its answer", seconds, 20)]
        rows.append(on_uvloop(lambda: _many(relay, SLEEPERS)))
        return rows


def wake_row(name: str, seconds: list[float], target: float) -> Row:
    """The 99th percentile."""
    return Row(
        name=f"{name}, p99",
        value=percentile(seconds, 99) * 1000,
        unit="ms",
        target=value_at_most(target),
        note=f"median {percentile(seconds, 50) * 1000:.1f} ms",
    )


async def _wakes(sleeps_at: str, drops_at: str, member: Member, count: int) -> list[float]:
    """Seconds from sending a drop to one process until the sleeper at the other has its answer."""
    seconds: list[float] = []
    async with AsyncExitStack() as stack:
        sleeper, writer = await RawConnection.to(sleeps_at), await RawConnection.to(drops_at)
        stack.push_async_callback(sleeper.close)
        stack.push_async_callback(writer.close)
        token = await _wait(sleeper, member, None)
        for number in range(count):
            waiting = asyncio.create_task(_wait(sleeper, member, token))
            await asyncio.sleep(0.005)
            began = time.perf_counter()
            await writer.send(put(member, number, b"x" * 1000))
            token = await waiting
            seconds.append(time.perf_counter() - began)
            assert (await writer.reply()).status == 201
    return seconds


async def _many(relay: RelayProcess, count: int) -> Row:
    async with AsyncExitStack() as stack:
        first = await RawConnection.to(relay.url)
        stack.push_async_callback(first.close)
        members: list[Member] = []
        sleepers: list[RawConnection] = []
        while len(sleepers) < count:
            member = await enrolled(relay.url, enroll_token=relay.enroll_token)
            members.append(member)
            token = await _wait(first, member, None)
            for _ in range(min(WAITS_OF_DEVICE_MAX, count - len(sleepers))):
                connection = await RawConnection.to(relay.url)
                stack.push_async_callback(connection.close)
                await connection.send(_request(member, token))
                sleepers.append(connection)
        await asyncio.sleep(1)
        resident = _resident(relay)
        for member in members:
            await first.send(put(member, 10**9, b"x"))
            assert (await first.reply()).status == 201
        woken = await asyncio.gather(*(sleeper.reply() for sleeper in sleepers))
        assert {reply.status for reply in woken} == {200}
    return Row(
        name=f"resident memory of the relay with {count:,} sleepers",
        value=resident / 1e6,
        unit="MB",
        target=value_at_most(120),
    )


async def _wait(connection: RawConnection, member: Member, token: str | None) -> str:
    await connection.send(_request(member, token))
    reply = await connection.reply()
    assert reply.status == 200, reply.body
    return str(msgspec.json.decode(reply.body)["token"])


def _request(member: Member, token: str | None) -> bytes:
    since = "" if token is None else f"&token={token}"
    return b"GET /v2/vaults/%s/wait?timeout=60%s HTTP/1.1\r\n%s\r\n" % (
        member.vault.encode(),
        since.encode(),
        headers(member),
    )


def _resident(relay: RelayProcess) -> int:
    status = Path(f"/proc/{relay.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024
