"""Real processes: how long a cold command takes, how soon a conversation is on another device, what rests in
memory."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Generator
from pathlib import Path

import apsw

from bench.harness import Row, percentile, timed, value_at_most
from crystal_node.base.settings import child_environment
from crystal_node.surfaces.demo.machines import DemoDevice, DemoRelay

_TEXTS = 2_000
_WRITES = 50
_PAUSE_SECONDS = 0.35
"""Between two writes: a conversation, not a flood."""
_ARRIVES_SECONDS_MAX = 30.0
_REST_SECONDS = 5.0


def run(quick: bool) -> list[Row]:
    """The figures of the issue's system part, each from processes as a person starts them."""
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as folder, _vault(Path(folder)) as vault:
        vault.fill(200 if quick else _TEXTS)
        rows = _cold(vault, repeat=5 if quick else 15)
        with vault.watching() as watchers:
            rows += _latency(vault, writes=8 if quick else _WRITES)
            time.sleep(1.0 if quick else _REST_SECONDS)
            rows += _resident(vault, watchers)
    return rows


class _Vault:
    """A Core and two Nodes at one relay."""

    def __init__(self, folder: Path, relay: DemoRelay) -> None:
        self.folder = folder
        self.relay = relay
        self.core, self.laptop, self.tablet = (
            DemoDevice(folder / name) for name in ("core", "laptop", "tablet")
        )
        self.projects = folder / "claude" / "projects"
        self.live = self.projects / "-work" / "live.jsonl"
        self.live.parent.mkdir(parents=True)
        self.core.run("init", "--role", "core", "--relay", relay.url, "--yes", token=relay.token)
        code = str(self.core.run("pair", "--offline", "--yes")["code"])
        for device in (self.laptop, self.tablet):
            device.run("pair", "--code", "-", "--relay", relay.url, typed=code)

    def fill(self, texts: int) -> None:
        """Gives the memory some size, so that a cold search has something to open."""
        path = self.folder / "past.jsonl"
        path.write_text(
            "".join(
                _turn(f"Remark {number} on the tide gauge and its {number % 97} sensors.")
                for number in range(texts)
            )
        )
        self.laptop.run("capture", str(path))
        for device in (self.laptop, self.core, self.laptop, self.tablet):
            device.run("sync")

    def environment(self, device: DemoDevice) -> dict[str, str]:
        return child_environment(
            {
                "CRYSTAL_HOME": str(device.home),
                "CRYSTAL_KEY_STORE": "file",
                "CLAUDE_CONFIG_DIR": str(
                    self.projects.parent if device is self.laptop else self.folder / "none"
                ),
            }
        )

    @contextlib.contextmanager
    def watching(self) -> Generator[dict[str, int]]:
        """A watcher on each device; gives their process ids."""
        processes = {
            name: subprocess.Popen(
                [sys.executable, "-m", "crystal_node", "sync", "--watch"],
                env=self.environment(device),
                stdout=subprocess.DEVNULL,
            )
            for name, device in (("Core", self.core), ("Node", self.laptop), ("other Node", self.tablet))
        }
        try:
            time.sleep(3.0)
            yield {name: process.pid for name, process in processes.items()}
        finally:
            for process in processes.values():
                process.send_signal(signal.SIGTERM)
            for process in processes.values():
                process.wait(30)


@contextlib.contextmanager
def _vault(folder: Path) -> Generator[_Vault]:
    relay = DemoRelay(folder / "relay")
    relay.start()
    try:
        yield _Vault(folder, relay)
    finally:
        relay.stop()


def _cold(vault: _Vault, *, repeat: int) -> list[Row]:
    def command(*arguments: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "crystal_node", *arguments],
            env=vault.environment(vault.tablet),
            stdout=subprocess.DEVNULL,
            check=True,
        )

    def median_ms(*arguments: str) -> float:
        return timed(lambda: command(*arguments), repeat=repeat).median * 1000

    return [
        Row(
            name="`crystal search` from a cold process",
            value=median_ms("search", "how many sensors has the gauge"),
            unit="ms",
            target=value_at_most(400),
            note="hybrid, model loaded anew",
        ),
        Row(
            name="`crystal status` from a cold process",
            value=median_ms("status"),
            unit="ms",
            target=value_at_most(300),
        ),
        Row(
            name="`crystal nudge`, the hooks' fast path",
            value=median_ms("nudge"),
            unit="ms",
            target=value_at_most(150),
        ),
    ]


def _latency(vault: _Vault, *, writes: int) -> list[Row]:
    """From the end of a write on the laptop until a search on the tablet can hit it."""
    database = apsw.Connection(
        str(vault.tablet.home / "memory" / "crystal.db"), flags=apsw.SQLITE_OPEN_READONLY
    )
    samples: list[float] = []
    try:
        for number in range(writes + 1):
            text = f"Live remark {number}, said at this very moment: {uuid.uuid4()}."
            with vault.live.open("a") as file:
                file.write(_turn(text))
            started = time.perf_counter()
            while not database.execute("SELECT 1 FROM chunks WHERE text = ?", (text,)).fetchone():
                if time.perf_counter() - started > _ARRIVES_SECONDS_MAX:
                    raise TimeoutError(f"a message did not arrive within {_ARRIVES_SECONDS_MAX:.0f} s")
                time.sleep(0.002)
            samples.append(time.perf_counter() - started)
            time.sleep(_PAUSE_SECONDS)
    finally:
        database.close()
    measured = samples[1:]  # the first one also loads the Core's embedding model
    return [
        Row(
            name=f"end of a write to a hit on another device, p{percent}",
            value=percentile(measured, percent),
            unit="s",
            target=value_at_most(limit),
            note=f"{len(measured)} writes",
        )
        for percent, limit in ((50, 1.0), (99, 3.0))
    ]


def _resident(vault: _Vault, watchers: dict[str, int]) -> list[Row]:
    processes = watchers | {"relay": vault.relay.pid}
    return [
        Row(name=f"memory of the {name} at rest", value=_rss_mb(pid), unit="MB", target=value_at_most(150))
        for name, pid in processes.items()
    ]


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def _turn(text: str) -> str:
    record = {
        "type": "user",
        "uuid": str(uuid.uuid4()),
        "sessionId": "bench",
        "timestamp": "2026-01-05T09:00:00.000Z",
        "cwd": "/home/someone/work",
        "message": {"role": "user", "content": text},
    }
    return json.dumps(record) + "\n"
