"""Thousands of devices that wait at one relay process: how soon they are back, what they hold in memory, how soon they wake.

    python -m bench.relay_waiters --vaults 10000 --waiters 30000

Not a part of `make bench`: it takes minutes, and needs a limit of open files above twice the number of waiters. Where the limit
is lower, several can run side by side. Prints one JSON document; docs/relay-sizing.md has the figures.

The vaults are written into the relay's directory before it starts. Each waiter is a device with its own connection, from one
of many addresses of loopback. All connect within `--seconds`; one that is closed or refused comes again after up to ten
seconds, as devices do. Then objects are dropped into one vault after the other, and all of its devices have to wake.
"""

import argparse
import asyncio
import json
import os
import random
import re
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from bench.harness import percentile
from bench.relay_load import UNLIMITED, headers, on_uvloop, put
from crystal_relay.local import LocalStore
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.tokens import Preset, new_token, recovery_hash, token_hash
from crystal_relay.wire import TokenRegistration, VaultCreation
from tests.support.raw_http import RawConnection
from tests.support.relay_process import RelayProcess
from tests.support.relay_server import Member

RECONNECT_SECONDS_MAX = 10.0
WAITERS_OF_ADDRESS = 10_000
"""Loopback has 28,000 ports for each of its addresses."""
BACK_SECONDS_MAX = 600.0
HELD_SECONDS = 50.0
"""By then every wait has begun its answer."""
_AT_ONCE = 64
_TOKEN = re.compile(rb'"token":"([^"]*)"')


@dataclass(slots=True)
class Waited:
    """What was measured. Seconds; memory in millions of bytes."""

    vaults: int
    waiters: int
    back_seconds: float = 0.0
    """From the first connection until all wait."""
    tries: int = 0
    """Connections that were made for it."""
    processor_seconds: float = 0.0
    """Of the relay until then."""
    megabytes_at_start: float = 0.0
    megabytes: float = 0.0
    wakes: int = 0
    wake_median: float = 0.0
    wake_p99: float = 0.0
    """From sending a drop until a waiter has its answer."""


class _Waiter(asyncio.Protocol):
    """Waits, and tells when it is woken."""

    def __init__(self, at: int, member: Member, port: int, waited: Waited) -> None:
        self._at, self._member, self._port, self._waited = at, member, port, waited
        self._input = b""
        self.waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it sleeps."""
        self.woken: asyncio.Future[float] | None = None
        self._ended = False

    def begin(self) -> None:
        """Connect soon."""
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        # Of this process alone: generators that run side by side do not share an address's ports.
        source = f"127.0.{1 + os.getpid() % 250}.{1 + self._at // WAITERS_OF_ADDRESS}"
        self._waited.tries += 1
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: self, "127.0.0.1", self._port, local_addr=(source, 0)
            )
        except OSError:
            self._come_again()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask(b"")

    def data_received(self, data: bytes) -> None:
        self._input += data
        if self._input.startswith((b"HTTP/1.1 429", b"HTTP/1.1 503")):
            self._transport.abort()
            return
        token = _TOKEN.search(self._input)
        if token is None:
            return
        assert self._input.startswith(b"HTTP/1.1 200"), self._input[:300]
        self._input = b""
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(time.perf_counter())
        if not self.waits.done():
            self.waits.set_result(None)
        self._ask(b"&token=" + token[1])

    def connection_lost(self, exc: Exception | None) -> None:
        self._input = b""
        if not self._ended:
            self._come_again()

    def end(self) -> None:
        self._ended = True
        self._transport.abort()

    def _come_again(self) -> None:
        asyncio.get_running_loop().call_later(random.uniform(0, RECONNECT_SECONDS_MAX), self.begin)

    def _ask(self, since: bytes) -> None:
        where = f"/v2/vaults/{self._member.vault}/wait?timeout=60".encode()
        held = b"Prefer: wait=900\r\n" if since else b""  # as devices at rest ask
        self._transport.write(b"GET %s%s HTTP/1.1\r\n%s%s\r\n" % (where, since, held, headers(self._member)))


async def _filled(directory: Path, vaults: int, devices: int) -> list[list[Member]]:
    """Vaults as their devices would have made them at a relay over this directory."""
    store = LocalStore(directory)
    registry = create_app(store, RelaySettings(enroll_token="x" * 32)).state.relay.registry
    filled: list[list[Member]] = []
    left = iter(range(vaults))

    async def worker() -> None:
        for _ in left:
            first = Member()
            await registry.create_vault(
                VaultCreation(
                    first.vault, recovery_hash(first.recovery), first.device, token_hash(first.token)
                )
            )
            members = [first]
            for _ in range(devices - 1):
                other = Member(vault=first.vault, root=first.root)
                other.token = new_token(other.device)
                await registry.register(
                    first.vault, TokenRegistration(other.device, token_hash(other.token), Preset.DEVICE)
                )
                members.append(other)
            filled.append(members)

    await asyncio.gather(*(worker() for _ in range(_AT_ONCE)))
    await store.aclose()
    return filled


async def _waiting(
    relay: RelayProcess, vaults: list[list[Member]], waited: Waited, seconds: float, wakes: int
) -> None:
    port = int(relay.url.rpartition(":")[2])
    members = [member for vault in vaults for member in vault][: waited.waiters]
    waiters = [_Waiter(at, member, port, waited) for at, member in enumerate(members)]
    before, began = relay_seconds(relay), time.perf_counter()
    loop = asyncio.get_running_loop()
    for at, waiter in enumerate(waiters):
        loop.call_later(seconds * at / len(waiters), waiter.begin)
    async with asyncio.timeout(BACK_SECONDS_MAX):
        await asyncio.gather(*(waiter.waits for waiter in waiters))
    waited.back_seconds = time.perf_counter() - began
    waited.processor_seconds = relay_seconds(relay) - before
    await asyncio.sleep(HELD_SECONDS)
    waited.megabytes = relay_megabytes(relay)
    of_vault = len(vaults[0])
    connection = await RawConnection.to(relay.url)
    taken: list[float] = []
    for number in range(wakes):
        at = random.randrange(len(waiters) // of_vault)
        sleeping = waiters[at * of_vault : (at + 1) * of_vault]
        for each in sleeping:
            each.woken = loop.create_future()
        sent = time.perf_counter()
        await connection.send(put(vaults[at][0], number, b"x" * 1000))
        assert (await connection.reply()).status == 201
        taken += [(await each.woken) - sent for each in sleeping if each.woken is not None]
    waited.wakes, waited.wake_median, waited.wake_p99 = (
        len(taken),
        percentile(taken, 50),
        percentile(taken, 99),
    )
    for waiter in waiters:
        waiter.end()
    await connection.close()


def relay_seconds(relay: RelayProcess) -> float:
    """Processor time of the relay so far."""
    fields = Path(f"/proc/{relay.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def relay_megabytes(relay: RelayProcess) -> float:
    """Its resident memory."""
    status = Path(f"/proc/{relay.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


def measured(vaults: int, waiters: int, *, seconds: float, wakes: int) -> Waited:
    """So many devices at a relay of their own."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    waited = Waited(vaults, waiters)
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as directory:
        place = Path(directory) / "relay"
        filled = on_uvloop(lambda: _filled(place, vaults, -(-waiters // vaults)))
        relay = RelayProcess(place, options=(*UNLIMITED, "--connections", str(waiters + 1_024)), fresh=True)
        relay.start()
        try:
            waited.megabytes_at_start = relay_megabytes(relay)
            on_uvloop(lambda: _waiting(relay, filled, waited, seconds, wakes))
        finally:
            relay.stop()
    return waited


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.relay_waiters", description="Measure devices that wait at one relay process."
    )
    parser.add_argument("--vaults", type=int, default=10_000)
    parser.add_argument("--waiters", type=int, default=30_000)
    parser.add_argument("--seconds", type=float, default=3.0, help="within which all connect")
    parser.add_argument("--wakes", type=int, default=500)
    options = parser.parse_args(arguments)
    waited = measured(
        int(options.vaults), int(options.waiters), seconds=float(options.seconds), wakes=int(options.wakes)
    )
    print(json.dumps(asdict(waited), indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
