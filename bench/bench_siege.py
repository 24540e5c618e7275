"""A relay under a thousand hostile clients of eight kinds: its memory, and how long honest devices wait meanwhile."""

import asyncio
import tempfile
from pathlib import Path

from bench.harness import Row, percentile, value_at_most
from bench.relay_load import UNLIMITED
from crystal_relay.limits import MIB
from tests.support.hostile_clients import KINDS, Usage, besieged, honest, hostile_to, rss_of, watched
from tests.support.relay_process import RelayProcess, running_relay
from tests.support.relay_server import enrolled

OF_EACH = 125
SECONDS = 60.0
RSS_MIB_MAX = 300.0
P99_MS_MAX = 1_000.0


def run(quick: bool) -> list[Row]:
    """Rows for the result table."""
    of_each, seconds = (12, 5.0) if quick else (OF_EACH, SECONDS)
    with (
        tempfile.TemporaryDirectory(prefix="crystal-bench-") as directory,
        running_relay(Path(directory) / "relay", options=UNLIMITED, fresh=True) as relay,
    ):
        before = rss_of(relay.pid)
        usage, opened = asyncio.run(_besieged(relay, of_each, seconds))
    who = f"{of_each * len(KINDS)} hostile clients of {len(KINDS)} kinds"
    return [
        Row(
            name=f"memory of a relay under {who}",
            value=usage.rss_max / MIB,
            unit="MiB",
            target=value_at_most(RSS_MIB_MAX),
            note=f"{before / MIB:.0f} MiB before; {opened} connections in {seconds:.0f} s",
        ),
        Row(
            name=f"an honest device connects, stores and reads under {who}, p99",
            value=percentile(usage.seconds, 99) * 1000,
            unit="ms",
            target=value_at_most(P99_MS_MAX),
            note=f"median {percentile(usage.seconds, 50) * 1000:.0f} ms, {len(usage.seconds)} times",
        ),
    ]


async def _besieged(relay: RelayProcess, of_each: int, seconds: float) -> tuple[Usage, int]:
    """What the relay used, and how many connections were opened to it."""
    device = await enrolled(relay.url, enroll_token=relay.enroll_token)
    target = hostile_to(relay.url, await enrolled(relay.url, enroll_token=relay.enroll_token))
    with besieged(target, of_each):
        usage = await watched(relay.pid, honest(relay.url, device), seconds)
    return usage, target.opened
