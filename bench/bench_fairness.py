"""What a vault notices of ten greedy ones on a slow store: its own requests' times alone, and beside them, in turns.

On a machine that other programs keep busy the tail is theirs: then a request waits for the relay's process to be run. What the
relay's own decisions cost is in tests/relay/test_fairness.py, in virtual time.
"""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack

from bench.harness import Row, percentile, ratio_at_most
from bench.relay_load import get, on_uvloop, put
from bench.slow_relay import AT_ONCE, SECONDS
from tests.support.raw_http import RawConnection
from tests.support.relay_server import Member, enrolled

GREEDY = 10
CONNECTIONS_OF_EACH = 32
"""Requests that each greedy vault has in flight. Each stays below its rate, since the store gives no more."""
PAUSE_SECONDS = 0.02
"""Between two requests of the modest vault, which alternate: it writes an object, and reads it."""
BODY = bytes(4096)
SETTLE_SECONDS = 2.0
ROUNDS = 5
"""Each is a while alone, and a while beside the others."""
COUNT, COUNT_FIRST_COME = 600, 20
"""Requests of the modest vault, alone and beside the others. Without turns each takes two seconds and more."""
WARM_UP = 999_999_999
"""Number of an object that is not measured."""


def run(quick: bool) -> list[Row]:
    """Rows for the result table."""
    rows: list[Row] = []
    for in_turn, full in ((True, COUNT), (False, COUNT_FIRST_COME)):
        count = full // 10 if quick else full
        with slow_relay(in_turn=in_turn) as url:
            members = asyncio.run(_members(url))
            alone, beside, done = on_uvloop(lambda: _measured(url, members, count))  # noqa: B023  used at once
        note = f"the greedy ones had {done:.0f} requests/s; the store takes {AT_ONCE} at once, {SECONDS * 1000:.0f} ms each"
        rows.extend(
            Row(
                name=f"a modest vault beside {GREEDY} greedy ones, p{percent}"
                + ("" if in_turn else ", first come, first served"),
                value=percentile(beside, percent) * 1000,
                unit="ms",
                baseline="alone",
                baseline_value=percentile(alone, percent) * 1000,
                target=ratio_at_most(2.0) if in_turn and percent == 99 else None,
                note=note,
            )
            for percent in (50, 99)
        )
    return rows


@contextlib.contextmanager
def slow_relay(*, in_turn: bool) -> Generator[str]:
    """The address of `bench.slow_relay`, as a process."""
    options = () if in_turn else ("--first-come",)
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.slow_relay", *options], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(timeout=30)
        assert process.stdout is not None
        process.stdout.close()


async def _members(url: str) -> list[Member]:
    """Devices of a modest vault, and of the greedy ones."""
    return [await enrolled(url) for _ in range(1 + GREEDY)]


async def _measured(url: str, members: list[Member], count: int) -> tuple[list[float], list[float], float]:
    """Seconds of the modest vault's requests alone and beside the others, and the others' requests a second."""
    modest, *others = members
    done = 0
    async with AsyncExitStack() as stack:
        connection = await RawConnection.to(url)
        stack.push_async_callback(connection.close)
        for member in members:  # from now on its token is known
            await connection.send(put(member, WARM_UP, BODY))
            assert (await connection.reply()).status == 201
        alone: list[float] = []
        beside: list[float] = []
        served, seconds, of_round = [0], 0.0, max(2, count // ROUNDS)
        for at in range(0, count, of_round):
            alone += await _modest(connection, modest, 2 * at, of_round)
            async with _greedy_ones(url, others, at, served):
                before, began = served[0], time.perf_counter()
                beside += await _modest(connection, modest, 2 * at + of_round, of_round)
                seconds += time.perf_counter() - began
                done += served[0] - before
    return alone, beside, done / seconds


@contextlib.asynccontextmanager
async def _greedy_ones(url: str, members: list[Member], at: int, served: list[int]) -> AsyncGenerator[None]:
    """All of them at work, with objects of this round."""
    tasks = [
        asyncio.create_task(_greedy(url, member, (at * CONNECTIONS_OF_EACH + number) * 1_000_000, served))
        for member in members
        for number in range(CONNECTIONS_OF_EACH)
    ]
    await asyncio.sleep(SETTLE_SECONDS)
    yield
    for task in tasks:
        task.cancel()
    for each in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(each, Exception):
            raise each
    await asyncio.sleep(SETTLE_SECONDS)  # what is still in the store ends


async def _modest(connection: RawConnection, member: Member, first: int, count: int) -> list[float]:
    seconds: list[float] = []
    for number in range(first, first + count // 2):
        for request, status in ((put(member, number, BODY), 201), (get(member, number), 200)):
            began = time.perf_counter()
            await connection.send(request)
            answered = (await connection.reply()).status
            seconds.append(time.perf_counter() - began)
            assert answered == status, f"status {answered}"
            await asyncio.sleep(PAUSE_SECONDS)
    return seconds


async def _greedy(url: str, member: Member, at: int, served: list[int]) -> None:
    """Write objects from this number on without a pause, until cancelled."""
    connection = await RawConnection.to(url)
    try:
        while True:
            await connection.send(put(member, at, BODY))
            assert (await connection.reply()).status == 201
            served[0] += 1
            at += 1
    finally:
        await connection.close()
