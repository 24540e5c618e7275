"""What a vault costs whoever runs its relay over a bucket: requests to the object store, and their price.

Real devices (`crystal sync --watch`), a real relay process, a real S3 server; the relay counts the requests that it sends.
Measured is what whole windows of idleness and each kind of event cost; a month is that times how often it happens in one (see
`MONTH_*`), which docs/relay-costs.md states with the table. Prices are those of requests; stored bytes are priced apart.
"""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Row, value_at_most
from crystal_node.agent.watcher import POSITION_SECONDS
from crystal_node.base.settings import child_environment
from crystal_node.surfaces.demo.machines import DemoDevice
from crystal_node.sync.watch import WatchTimes
from tests.support.s3_servers import S3Server, running_moto

DEVICES = 10
NUDGES = 64
"""Idle rounds that are measured on each device that is: with each 64th the device looks at more."""
MESSAGES = 24
_PAUSE_SECONDS = 3.0
"""Between two messages: longer than all devices take to have it."""
_QUIET_SECONDS = 12.0
WINDOW_SECONDS = WatchTimes().safety_round
"""In one everything that an idle device does happens once: its round, and the look-ups of its token."""
WINDOWS = 2
_STEP_SECONDS_MAX = 120.0

MONTH_SECONDS = 30 * 86_400
BUSY_DAYS = 22
BUSY_SECONDS_PER_DAY = 8 * 3_600
BUSY_MESSAGES_PER_DAY = 150
"""Prompts and answers that the devices of one person record on a working day, each sent by itself: some forty prompts."""
HEAVY_MESSAGES_PER_DAY = 500
OBJECTS_PER_MESSAGE = 2
"""The relay counts a vault's objects once a day on which something is written: a LIST for each 1,000."""

_OPERATION = re.compile(r'^crystal_relay_store_operations_total\{.*?="(\w+)"\} ([0-9.e+]+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars for a million requests. Deletions are free at both."""

    name: str
    write: float
    """PUT and LIST."""
    read: float
    """GET and HEAD."""


R2 = Prices("R2", 4.50, 0.36)
S3 = Prices("S3", 5.00, 0.40)


@dataclass(frozen=True, slots=True)
class Operations:
    """Requests to the object store."""

    puts: float = 0.0
    lists: float = 0.0
    reads: float = 0.0

    def __add__(self, other: "Operations") -> "Operations":
        return Operations(self.puts + other.puts, self.lists + other.lists, self.reads + other.reads)

    def __sub__(self, other: "Operations") -> "Operations":
        return self + other * -1

    def __mul__(self, times: float) -> "Operations":
        return Operations(self.puts * times, self.lists * times, self.reads * times)

    def dollars(self, prices: Prices) -> float:
        return ((self.puts + self.lists) * prices.write + self.reads * prices.read) / 1_000_000

    def __str__(self) -> str:
        return f"{self.puts:,.0f} PUT, {self.lists:,.0f} LIST, {self.reads:,.0f} GET"


@dataclass(frozen=True, slots=True)
class Measured:
    """What each thing costs."""

    node_round: Operations
    """One round of a Node that finds nothing to do."""
    core_round: Operations
    message: Operations
    """One message, from the device that records it to all others."""
    alone: Operations
    """`WINDOW_SECONDS` of a relay without devices."""
    one: Operations
    """`WINDOW_SECONDS` with an idle Core, what the relay does by itself included."""
    all_idle: Operations
    """The same with all devices."""


def run(quick: bool) -> list[Row]:
    """Rows of a month's cost, each with its requests."""
    measured = measure(devices=3 if quick else DEVICES, nudges=4 if quick else NUDGES, quick=quick)
    rows = [
        Row(name=f"requests of {name}", value=each.puts + each.lists + each.reads, unit="", note=str(each))
        for name, each in (
            ("an idle round of a Node", measured.node_round),
            ("an idle round of the Core", measured.core_round),
            (f"a message that reaches {DEVICES} devices", measured.message),
            ("a window without devices", measured.alone),
            ("a window with an idle Core", measured.one),
            (f"a window with {DEVICES} idle devices", measured.all_idle),
        )
    ]
    for name, month in months(measured).items():
        for prices in (R2, S3):
            judged = name == BUSY and prices is R2
            rows.append(
                Row(
                    name=f"a month on {prices.name}: {name}",
                    value=month.dollars(prices),
                    unit="$",
                    target=value_at_most(0.50) if judged else None,
                    note=str(month),
                )
            )
    return rows


RELAY, ONE, TEN = "the relay alone", "one idle device (a Core)", f"{DEVICES} idle devices"
BUSY = f"{DEVICES} devices and {BUSY_DAYS * BUSY_MESSAGES_PER_DAY:,} messages"
HEAVY = f"{DEVICES} devices and {BUSY_DAYS * HEAVY_MESSAGES_PER_DAY:,} messages"


def months(measured: Measured) -> dict[str, Operations]:
    """What is measured, times how often it happens in thirty days."""
    busy_share = BUSY_DAYS * BUSY_SECONDS_PER_DAY / MONTH_SECONDS
    windows = MONTH_SECONDS / WINDOW_SECONDS
    rounds = measured.core_round + measured.node_round * (DEVICES - 1)
    # The Core then looks at all of them, and each Node at the Core's.
    positions = Operations(puts=DEVICES, reads=DEVICES * DEVICES + DEVICES) * (
        BUSY_DAYS * BUSY_SECONDS_PER_DAY / POSITION_SECONDS
    )
    # Where a message comes before the safety net's time, its rounds take the place of that one.
    working = (measured.all_idle - rounds * busy_share) * windows + positions

    def with_messages(per_day: int) -> Operations:
        pages = BUSY_DAYS * per_day * OBJECTS_PER_MESSAGE / 1_000
        return working + measured.message * (BUSY_DAYS * per_day) + Operations(lists=BUSY_DAYS * pages)

    return {
        RELAY: measured.alone * windows,
        ONE: measured.one * windows,
        TEN: measured.all_idle * windows,
        BUSY: with_messages(BUSY_MESSAGES_PER_DAY),
        HEAVY: with_messages(HEAVY_MESSAGES_PER_DAY),
    }


def measure(*, devices: int, nudges: int, quick: bool) -> Measured:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crystal-bench-")))
        relay = stack.enter_context(_relay(folder, stack.enter_context(running_moto())))
        alone = _window(relay, 1, quick=quick)
        vault = _Vault(folder, relay, devices)
        with vault.watching(vault.devices[:1]):
            _window(relay, 1, quick=quick)
            one = _window(relay, WINDOWS, quick=quick)
        vault.pair()
        stack.enter_context(vault.watching(vault.devices))
        # In the first window each device audits the relay, which it does every six hours (see docs/relay-costs.md).
        _window(relay, 1, quick=quick)
        _until(vault.quiet, "the devices do not come to rest")
        all_idle = _window(relay, WINDOWS, quick=quick)
        message = _messages(relay, vault, 4 if quick else MESSAGES)
        node = _nudged(relay, vault.devices[1], nudges)
        core = _nudged(relay, vault.devices[0], nudges)
    return Measured(node, core, message, alone, one, all_idle)


def _window(relay: "_Relay", windows: int, *, quick: bool) -> Operations:
    """Of one window, in the mean of some whole ones. `quick` extrapolates from ten seconds."""
    seconds = 10.0 if quick else windows * WINDOW_SECONDS
    before = relay.operations()
    time.sleep(seconds)
    return (relay.operations() - before) * (WINDOW_SECONDS / seconds)


def _nudged(relay: "_Relay", device: "_Device", nudges: int) -> Operations:
    """Of one round that finds nothing, in the mean."""
    before = relay.operations()
    for _ in range(nudges):
        device.nudge.touch()
        time.sleep(0.6)
    time.sleep(1.0)
    return (relay.operations() - before) * (1 / nudges)


def _messages(relay: "_Relay", vault: "_Vault", count: int) -> Operations:
    """Of one message, in the mean; the Core has loaded its model before."""
    vault.say("The first remark on the tide gauge.")
    time.sleep(15.0)
    before = relay.operations()
    for number in range(count):
        vault.say(f"Remark {number} on the tide gauge and its {number % 97} sensors.")
        time.sleep(_PAUSE_SECONDS)
    _until(vault.quiet, "the devices do not come to rest")
    return (relay.operations() - before) * (1 / count)


class _Relay:
    def __init__(self, url: str, enroll_token: str, metrics_token: str) -> None:
        self.url = url
        self.enroll_token = enroll_token
        self._metrics_token = metrics_token

    def operations(self) -> Operations:
        """All requests to the object store so far."""
        request = urllib.request.Request(  # noqa: S310  (our own relay)
            f"{self.url}/metrics", headers={"Authorization": f"Bearer {self._metrics_token}"}
        )
        with urllib.request.urlopen(request, timeout=20) as reply:  # noqa: S310
            counted = {kind: float(value) for kind, value in _OPERATION.findall(reply.read().decode())}
        assert counted, "the relay does not count its requests"
        assert not counted.get("other"), "a request of a kind that has no price here"
        return Operations(
            counted.get("put", 0), counted.get("list", 0), counted.get("get", 0) + counted.get("head", 0)
        )


@contextlib.contextmanager
def _relay(folder: Path, server: S3Server) -> Generator[_Relay]:
    enroll_token, metrics_token = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    ready = folder / "relay.ready"
    with (folder / "relay.log").open("w") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "crystal_relay", "serve", "--port", "0", "--ready-file", str(ready)),
                *("--store", f"s3://{server.bucket}/relay", "--s3-endpoint", server.endpoint),
            ],
            env=os.environ
            | server.environment
            | {"CRYSTAL_RELAY_ENROLL_TOKEN": enroll_token, "CRYSTAL_RELAY_METRICS_TOKEN": metrics_token},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        _until(lambda: ready.exists() or process.poll() is not None, "the relay does not start")
        assert process.poll() is None, (folder / "relay.log").read_text()
        yield _Relay(str(json.loads(ready.read_text())["url"]), enroll_token, metrics_token)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


class _Device(DemoDevice):
    @property
    def nudge(self) -> Path:
        """Touching it makes a watcher do a round."""
        return self.home / "state" / "nudge" / "now"


class _Vault:
    """A Core and Nodes at one relay; the first Node is where somebody works."""

    def __init__(self, folder: Path, relay: _Relay, devices: int) -> None:
        self.folder = folder
        self.relay = relay
        self.devices = [_Device(folder / f"device{number}") for number in range(devices)]
        self._live = folder / "claude" / "projects" / "-work" / "live.jsonl"
        self._live.parent.mkdir(parents=True)
        self._seen = (Operations(), time.monotonic())
        self.devices[0].run("init", "--role", "core", "--relay", relay.url, "--yes", token=relay.enroll_token)
        # Devices of a vault in use have something to check in each round.
        self.devices[0].run("remember", "The tide gauge has four sensors.")

    def pair(self) -> None:
        """Add the Nodes, and have them fetch what is there and tell their positions: no part of what they cost at rest."""
        core, *nodes = self.devices
        code = str(core.run("pair", "--offline", "--yes")["code"])
        for node in nodes:
            node.run("pair", "--code", "-", "--relay", self.relay.url, typed=code)
        for node in nodes:
            node.run("sync")

    @contextlib.contextmanager
    def watching(self, devices: Sequence[_Device]) -> Generator[None]:
        """A watcher on each of these devices."""
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "crystal_node", "sync", "--watch"],
                env=child_environment(
                    {
                        "CRYSTAL_HOME": str(device.home),
                        "CRYSTAL_KEY_STORE": "file",
                        "CLAUDE_CONFIG_DIR": str(
                            self.folder / ("claude" if device is self.devices[1] else "none")
                        ),
                    }
                ),
                stdout=subprocess.DEVNULL,
            )
            for device in devices
        ]
        try:
            yield
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait(60)

    def say(self, text: str) -> None:
        """Somebody works with an agent on the first Node."""
        record = {
            "type": "user",
            "uuid": str(uuid.uuid4()),
            "sessionId": "bench",
            "timestamp": "2026-01-05T09:00:00.000Z",
            "cwd": "/home/someone/work",
            "message": {"role": "user", "content": text},
        }
        with self._live.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def quiet(self) -> bool:
        """Whether the store was not asked for anything for a while."""
        now = self.relay.operations()
        if now != self._seen[0]:
            self._seen = (now, time.monotonic())
        return time.monotonic() - self._seen[1] > _QUIET_SECONDS


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _STEP_SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(what)
        time.sleep(0.25)
