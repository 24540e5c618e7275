"""What so many vaults cost a relay: memory, processor time, requests of devices, and requests to a bucket with their price.

    python -m bench.relay_sizing --vaults 1000                     # over a directory
    python -m bench.relay_sizing --vaults 1000 --store bucket      # over an S3 server (moto) on this machine

Not a part of `make bench`: it takes ten minutes. Prints one JSON document; docs/relay-sizing.md has the table.

The load is that of a month, evenly spread: each vault has a Core and a Node, both wait by long polls without end; each makes a
round every 300 seconds; and each vault has `MONTH_MESSAGES`. A round opens a connection of its own, as a device does after 300
idle seconds. What a round asks for has the numbers of docs/relay-costs.md; bodies are a kilobyte of sealed bytes.
Processor time is the relay process's own (user and system), so that a busy machine changes it little. A machine that is too
busy makes the window longer than it was asked for; the result says so.
"""

import argparse
import asyncio
import json
import os
import random
import re
import resource
import secrets
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import httpx

from bench.bench_relay_costs import R2, Operations
from bench.relay_load import UNLIMITED, headers, on_uvloop, path, put, stream
from crystal_relay.tokens import Preset, new_token, token_hash
from tests.support.raw_http import RawConnection
from tests.support.relay_process import RelayProcess
from tests.support.relay_server import Member, enrolled
from tests.support.s3_servers import S3Server, running_moto

ROUND_SECONDS = 300.0
"""A device that nothing wakes makes a round so often (`WatchTimes.safety_round`)."""
WAIT_SECONDS = 60
MONTH_MESSAGES = 3_300
"""Of one person: 22 working days of 150 messages (docs/relay-costs.md)."""
MONTH_SECONDS = 30 * 86_400
RECONNECT_SECONDS_MAX = 10.0
"""A device whose connection was closed pauses up to so long."""
WAITS_MAX = 7_500
"""Of one process, which takes 8,192 connections: the rest is for rounds. Devices beyond make rounds and do not wait."""
READS_OF_A_MESSAGE = 9
"""By each of the two devices, in the rounds that a message causes: two of its sender, one of the Core."""
_BODY = secrets.token_bytes(1_000)
_AT_ONCE = 16
_OPERATION = re.compile(r'^crystal_relay_store_operations_total\{.*?="(\w+)"\} ([0-9.e+]+)$', re.MULTILINE)
_METRICS_TOKEN = secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Sized:
    """What was measured. Seconds, and bytes in millions."""

    vaults: int
    store: str
    waits: int
    megabytes_at_start: float
    megabytes: float
    """Resident at the end of the window, with all that wait."""
    load_seconds: float
    """That were asked for."""
    window_seconds: float
    """That it took."""
    requests: int
    """Of devices, in the window."""
    late_seconds: float
    """How far the load was behind its timetable at the end."""
    unanswered: int
    """Rounds that ended because there was no answer for 20 seconds."""
    processor_seconds: float
    operations: Operations
    """At the bucket, in the window."""
    reconnected: int
    """Waits whose connection was closed, and which connected again: mostly before the window, when all come at once."""

    def document(self) -> dict[str, object]:
        """With what follows from it: the share of a core, and a month's requests to the bucket."""
        month = self.operations * (MONTH_SECONDS / self.load_seconds)
        return {
            **asdict(self),
            "core_percent": 100 * self.processor_seconds / self.load_seconds,
            "milliseconds_a_request": 1000 * self.processor_seconds / max(1, self.requests),
            "requests_a_second": self.requests / self.load_seconds,
            "month": str(month),
            "month_dollars_r2": month.dollars(R2),
        }


class _Vault:
    """A Core and a Node."""

    def __init__(self, core: Member, node: Member) -> None:
        self.core, self.node = core, node
        self.written = 0

    @property
    def devices(self) -> tuple[Member, Member]:
        return self.core, self.node

    def entry(self, member: Member) -> bytes:
        """The next entry of a device."""
        self.written += 1
        return put(member, self.written, _BODY)

    def idle_round(self, *, core: bool) -> list[bytes]:
        """What a round asks for if nothing was written since the last one. A Core lists a page of the mirror's slots, too."""
        there = _get(self.node, stream(self.core, 0))
        return [self.question(), there, there, *([self.listing()] if core else [])]

    def reads(self, count: int) -> list[bytes]:
        """Half of them find something; the others look for what comes next."""
        found, missing = stream(self.core, 0), stream(self.core, 10**9)
        return [_get(self.node, found if at % 2 else missing) for at in range(count)]

    def question(self) -> bytes:
        """Whether anything was written, with which each round begins."""
        where = f"/v2/vaults/{self.core.vault}/wait?timeout=0"
        return b"GET %s HTTP/1.1\r\n%s\r\n" % (where.encode(), headers(self.node))

    def listing(self) -> bytes:
        """A page of keys, as a Core asks for it."""
        where = f"/v2/vaults/{self.core.vault}/list?prefix=conversations/&limit=1000"
        return b"GET %s HTTP/1.1\r\n%s\r\n" % (where.encode(), headers(self.core))


class _Counter:
    """Of the window."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.requests = 0
        self.unanswered = 0
        self.reconnected = 0
        self.waits = 0
        self.seconds = 0.0
        self.late = 0.0
        self.processor = 0.0
        self.megabytes = 0.0
        self.operations = Operations()

    async def reached(self, requests: int) -> None:
        """Until so many were answered."""
        deadline = time.monotonic() + ROUND_SECONDS
        while self.requests < requests:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.requests} of {requests} devices wait")
            await asyncio.sleep(0.1)


class _Waiter(asyncio.Protocol):
    """A device that waits, and waits again; if its connection is closed, it connects again after a pause."""

    def __init__(self, member: Member, counted: _Counter) -> None:
        self._member, self._counted = member, counted
        self._buffer = bytearray()
        self._ended = False
        self._again: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask(b"")

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if self._buffer.startswith((b"HTTP/1.1 429", b"HTTP/1.1 503")):  # come again later
            self._transport.abort()
            return
        if end < 0 or not (token := re.search(rb'"token":"([^"]*)"', self._buffer[end:])):
            return
        if not self._buffer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"unexpected answer: {bytes(self._buffer[:300])!r}")
        self._counted.requests += 1
        self._buffer.clear()
        self._ask(b"&token=" + token[1])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended:
            self._counted.reconnected += 1
            self._buffer.clear()
            pause = random.uniform(0, RECONNECT_SECONDS_MAX)
            self._again = asyncio.get_running_loop().create_task(self._reconnect(pause))

    async def connect(self) -> None:
        """Connect, and ask."""
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._counted.port)

    async def _reconnect(self, pause: float) -> None:
        await asyncio.sleep(pause)
        await self.connect()

    def end(self) -> None:
        """Wait no more."""
        self._ended = True
        if self._again is not None:
            self._again.cancel()
        self._transport.abort()

    def _ask(self, since: bytes) -> None:
        where = f"/v2/vaults/{self._member.vault}/wait?timeout={WAIT_SECONDS}".encode()
        self._transport.write(b"GET %s%s HTTP/1.1\r\n%s\r\n" % (where, since, headers(self._member)))


async def _session(url: str, requests: Sequence[bytes], counted: _Counter) -> None:
    """A connection of its own, with one request after the other."""
    connection = await RawConnection.to(url)
    try:
        for request in requests:
            await connection.send(request)
            reply = await connection.reply()
            missing = reply.status == 404 and b"/objects/" in request.partition(b"\r\n")[0]
            if reply.status not in (200, 201) and not missing:
                raise RuntimeError(f"unexpected answer: {reply.status} {reply.body[:300]!r}")
            counted.requests += 1
    except (
        TimeoutError
    ):  # nothing for 20 seconds: the machine is too busy, and the device would make its round again
        counted.unanswered += 1
    finally:
        await connection.close()


def _get(member: Member, key: str) -> bytes:
    return b"GET %s HTTP/1.1\r\n%s\r\n" % (path(member, key), headers(member))


async def _filled(relay: RelayProcess, count: int) -> list[_Vault]:
    vaults: list[_Vault] = []
    left = iter(range(count))

    async def worker() -> None:
        for _ in left:
            core = await enrolled(relay.url, enroll_token=relay.enroll_token)
            node = Member(vault=core.vault, root=core.root)
            node.token = new_token(node.device)
            store = core.store(relay.url)
            await store.register_token(
                device=node.device,
                token_hash=token_hash(node.token),
                preset=Preset.DEVICE,
                recovery=core.recovery,
            )
            await store.aclose()
            vault = _Vault(core, node)
            await _session(relay.url, [put(core, 0, _BODY)], _Counter())
            vaults.append(vault)

    await asyncio.gather(*(worker() for _ in range(_AT_ONCE)))
    return vaults


def _timetable(vaults: list[_Vault], seconds: float) -> list[tuple[float, _Vault, bool]]:
    """When which vault has a round of one of its devices, or a message (True)."""
    rounds = [(random.uniform(0, ROUND_SECONDS), vault, False) for vault in vaults for _ in vault.devices]
    messages = round(len(vaults) * MONTH_MESSAGES * seconds / MONTH_SECONDS)
    said = [(random.uniform(0, seconds), random.choice(vaults), True) for _ in range(messages)]
    return sorted([each for each in rounds if each[0] < seconds] + said, key=lambda each: each[0])


async def _loaded(relay: RelayProcess, vaults: list[_Vault], seconds: float) -> _Counter:
    """What the load of so many seconds was, and what it cost."""
    counted = _Counter(int(relay.url.rpartition(":")[2]))
    waiting = [_Waiter(device, counted) for vault in vaults for device in vault.devices][:WAITS_MAX]
    try:
        for waiter in waiting:
            await waiter.connect()
        await counted.reached(len(waiting))  # each has its first token, and waits
        counted.requests, counted.waits = 0, len(waiting)
        before, operations = _processor(relay), _operations(relay)
        began = time.monotonic()
        counted.late = await _sent(relay, _timetable(vaults, seconds), counted)
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        counted.seconds = time.monotonic() - began
        counted.megabytes = _resident(relay)
        counted.processor, counted.operations = _processor(relay) - before, _operations(relay) - operations
    finally:
        for waiter in waiting:
            waiter.end()
    return counted


async def _sent(
    relay: RelayProcess, timetable: Sequence[tuple[float, _Vault, bool]], counted: _Counter
) -> float:
    """Send everything when it is due. Returns by how much the last was late."""
    began, late = time.monotonic(), 0.0
    running: set[asyncio.Task[None]] = set()
    core = False
    for at, vault, message in timetable:
        await asyncio.sleep(max(0.0, began + at - time.monotonic()))
        late = max(0.0, time.monotonic() - began - at)
        core = not core
        if message:
            said = [vault.entry(vault.node), vault.entry(vault.core), vault.listing()]
            requests = [vault.question()] * 3 + said + vault.reads(2 * READS_OF_A_MESSAGE)
        else:
            requests = vault.idle_round(core=core)
        running.add(asyncio.create_task(_session(relay.url, requests, counted)))
        while len(running) >= 4 * _AT_ONCE:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
    await asyncio.gather(*running)
    return late


def _processor(relay: RelayProcess) -> float:
    """Seconds of processor time, user and system (proc(5))."""
    fields = Path(f"/proc/{relay.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(relay: RelayProcess) -> float:
    status = Path(f"/proc/{relay.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


def _operations(relay: RelayProcess) -> Operations:
    read = httpx.get(
        f"{relay.url}/metrics", headers={"Authorization": f"Bearer {_METRICS_TOKEN}"}, timeout=60
    )
    counted = {kind: float(value) for kind, value in _OPERATION.findall(read.text)}
    return Operations(
        counted.get("put", 0), counted.get("list", 0), counted.get("get", 0) + counted.get("head", 0)
    )


def size(vaults: int, *, bucket: bool, seconds: float) -> Sized:
    """Measure so many vaults on a relay of their own, for so many seconds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crystal-bench-")))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        options: tuple[str, ...] = UNLIMITED
        environment = {"CRYSTAL_RELAY_METRICS_TOKEN": _METRICS_TOKEN}
        if bucket:
            server: S3Server = stack.enter_context(running_moto())
            options += ("--store", f"s3://{server.bucket}/relay", "--s3-endpoint", server.endpoint)
            environment |= server.environment
        relay = RelayProcess(folder / "relay", options=options, environment=environment, fresh=True)
        relay.start()
        stack.callback(relay.stop)
        at_start = _resident(relay)
        filled = asyncio.run(_filled(relay, vaults))
        counted = on_uvloop(lambda: _loaded(relay, filled, seconds))
        return Sized(
            vaults=vaults,
            store="bucket" if bucket else "directory",
            waits=counted.waits,
            megabytes_at_start=at_start,
            megabytes=counted.megabytes,
            load_seconds=seconds,
            window_seconds=counted.seconds,
            requests=counted.requests,
            late_seconds=counted.late,
            unanswered=counted.unanswered,
            processor_seconds=counted.processor,
            operations=counted.operations,
            reconnected=counted.reconnected,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.relay_sizing", description="Measure what vaults cost a relay."
    )
    parser.add_argument("--vaults", type=int, default=100)
    parser.add_argument("--store", choices=("directory", "bucket"), default="directory")
    parser.add_argument("--seconds", type=float, default=ROUND_SECONDS, help="of load; whole rounds are 300")
    options = parser.parse_args(arguments)
    sized = size(int(options.vaults), bucket=options.store == "bucket", seconds=float(options.seconds))
    print(json.dumps(sized.document(), indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
