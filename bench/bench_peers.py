"""Two relay processes over one bucket of a real S3 server: how soon a wait at one is woken by a write at the other."""

import asyncio
import secrets
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.harness import Row, percentile, value_at_most
from tests.support.relay_process import RelayProcess
from tests.support.relay_server import Member, enrolled
from tests.support.s3_servers import running_moto

WRITES = 400


def run(quick: bool) -> list[Row]:
    """One row: the 99th percentile."""
    writes = 40 if quick else WRITES
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crystal-bench-")))
        server = stack.enter_context(running_moto())
        enroll_token = secrets.token_hex(16)
        pair: list[RelayProcess] = []
        for name in ("one", "other"):
            relay = RelayProcess(
                folder / name,
                enroll_token=enroll_token,
                options=("--store", f"s3://{server.bucket}/relay", "--s3-endpoint", server.endpoint),
                environment=server.environment,
            )
            stack.callback(relay.stop)
            relay.start()
            pair.append(relay)
        return asyncio.run(_rows(pair, enroll_token, writes))


async def _rows(pair: list[RelayProcess], enroll_token: str, writes: int) -> list[Row]:
    member = await enrolled(pair[0].url, enroll_token=enroll_token)
    seconds = await _wakes(member, pair, writes)
    return [
        Row(
            name="a write at one relay process wakes a sleeper at another, p99",
            value=percentile(seconds, 99) * 1000,
            unit="ms",
            target=value_at_most(100),
            note=f"from the reply to the write; median {percentile(seconds, 50) * 1000:.1f} ms",
        )
    ]


async def _wakes(member: Member, pair: list[RelayProcess], writes: int) -> list[float]:
    waiter, writer = (member.store(relay.url) for relay in pair)
    prefix = f"{member.prefix}mirror/"
    token = await waiter.wait(prefix, token=None, timeout=0)
    seconds: list[float] = []
    for number in range(writes):
        while (fresh := await waiter.wait(prefix, token=token, timeout=0.05)) != token:
            token = fresh
        wait = asyncio.create_task(waiter.wait(prefix, token=token, timeout=20))
        await asyncio.sleep(0.02)
        assert not wait.done(), "woken for nothing"
        await writer.put_new(f"{prefix}0000000001/{number:016d}", b"x" * 4096)
        stored = time.perf_counter()
        token = await wait
        seconds.append(max(time.perf_counter() - stored, 0.0))
    await waiter.aclose()
    await writer.aclose()
    return seconds
