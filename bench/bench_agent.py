"""The agent at rest and at work, as processes: what it costs when nothing happens, and how soon it has what was written."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

from bench.file_transfers import Counter, syncthing_pair
from bench.harness import Row, percentile, timed, value_at_most
from crystal_node.base.settings import child_environment
from crystal_node.surfaces.demo.machines import DemoDevice, DemoRelay, command_of

_IDLE_SECONDS = 600.0
"""Two rounds on average: their interval varies by a quarter."""
_SETTLE_SECONDS = 170.0
"""Time until the embedding model is unloaded, every job has run once, and the long-polls have become one."""
_WRITES = 100
_PAUSE_SECONDS = 0.3
_CAPTURED_SECONDS_MAX = 20.0


def run(quick: bool) -> list[Row]:
    """Idle cost on a Core and a Node, then writes one after the other on the Node."""
    with (
        tempfile.TemporaryDirectory(prefix="crystal-bench-") as folder,
        _syncthing(Path(folder) / "syncthing") as syncthing,
        _agents(Path(folder)) as (core, node),
    ):
        node.capture("A first remark, so that the Core has embedded something.", _CAPTURED_SECONDS_MAX)
        time.sleep(10.0 if quick else _SETTLE_SECONDS)
        rows = _idle({"Core": core, "Node": node}, syncthing, 10.0 if quick else _IDLE_SECONDS)
        rows += _latency(node, writes=10 if quick else _WRITES)
        rows += _nudge(node, repeat=5 if quick else 15)
        before = {each: each.descriptors() for each in (core, node)}
        time.sleep(10.0)
        grown = max(each.descriptors() - before[each] for each in (core, node))
        rows.append(
            Row(name="descriptors that an agent has more of after a rest", value=float(grown), unit="")
        )
    return rows


@dataclass(eq=False)
class _Agent:
    """An agent's process, and what it says, with the moment at which it was read."""

    device: DemoDevice
    tools: Path
    process: "subprocess.Popen[str]"
    wire: Counter
    captured: "Queue[float]" = field(default_factory=Queue[float])

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if json.loads(line)["event"] == "captured":
                self.captured.put(time.perf_counter())

    def capture(self, text: str, seconds: float) -> float:
        """Writes a turn and returns the seconds until the agent said that it has it."""
        with contextlib.suppress(Empty):
            while True:
                self.captured.get_nowait()
        path = self.tools / "projects" / "-work" / "live.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(_turn(text))
        started = time.perf_counter()
        return self.captured.get(timeout=seconds) - started

    @property
    def resting(self) -> "_Resting":
        return _Resting(self.process.pid, self.wire)

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@dataclass(frozen=True)
class _Spent:
    """What a process has taken since it began."""

    processor: float
    wake_ups: int
    wire: int
    written: int


@dataclass(frozen=True)
class _Resting:
    """A process that has nothing to do, and the counter that the bytes pass which it exchanges."""

    pid: int
    wire: Counter

    def spent(self) -> _Spent:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        counts = dict(line.split(": ") for line in Path(f"/proc/{self.pid}/io").read_text().splitlines())
        return _Spent(
            # with children that have ended
            processor=sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"),
            wake_ups=_wake_ups(self.pid),
            wire=self.wire.bytes,
            written=int(counts["write_bytes"]),
        )

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 1e6


@contextlib.contextmanager
def _syncthing(folder: Path) -> Generator[_Resting | None]:
    """One of two Syncthing processes that share a folder; None if Syncthing is not installed."""
    if not shutil.which("syncthing"):
        yield None
        return
    with syncthing_pair(folder, counted=True) as pair:
        yield _Resting(pair.processes[0], pair.wires[0])


@contextlib.contextmanager
def _agents(folder: Path) -> Generator[tuple[_Agent, _Agent]]:
    relay = DemoRelay(folder / "relay")
    relay.start()
    running: list[_Agent] = []
    port = int(relay.url.rpartition(":")[2].strip("/"))
    wires = Counter(port), Counter(port)
    try:
        core, node = DemoDevice(folder / "core"), DemoDevice(folder / "node")
        core.run("init", "--role", "core", "--relay", wires[0].url, "--yes", token=relay.token)
        code = str(core.run("pair", "--offline", "--yes")["code"])
        node.run("pair", "--code", "-", "--relay", wires[1].url, typed=code)
        for device, name, wire in ((core, "core-tools", wires[0]), (node, "node-tools", wires[1])):
            running.append(_started(device, folder / name, wire))
        time.sleep(3.0)
        yield running[0], running[1]
    finally:
        for agent in running:
            agent.process.send_signal(signal.SIGTERM)
        for agent in running:
            agent.process.wait(30)
        for wire in wires:
            wire.close()
        relay.stop()


def _started(device: DemoDevice, tools: Path, wire: Counter) -> _Agent:
    (tools / "projects").mkdir(parents=True)
    variables = {
        "CRYSTAL_HOME": str(device.home),
        "CRYSTAL_KEY_STORE": "file",
        "CLAUDE_CONFIG_DIR": str(tools),
        "HOME": str(tools),
    }
    process = subprocess.Popen(
        command_of("agent", "run"),
        env=child_environment(variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    agent = _Agent(device, tools, process, wire)
    threading.Thread(target=agent.listen, daemon=True).start()
    return agent


def _idle(agents: dict[str, _Agent], syncthing: _Resting | None, seconds: float) -> list[Row]:
    resting = {name: agent.resting for name, agent in agents.items()}
    before = {name: each.spent() for name, each in resting.items()}
    beside = None if syncthing is None else syncthing.spent()
    poll = _wake_ups_of_a_poll(seconds)
    taken = {name: each.spent() for name, each in resting.items()}
    other = None if syncthing is None else syncthing.spent()

    def row(name: str, value: float, unit: str, limit: float, baseline: float | None) -> Row:
        return Row(
            name=f"the {name}, 300 s",
            value=value,
            unit=unit,
            baseline="" if baseline is None else "Syncthing at rest",
            baseline_value=baseline,
            target=value_at_most(limit),
            note=f"over {seconds:.0f} s",
        )

    def in_300_s(after: float, earlier: float) -> float:
        return (after - earlier) * 300 / seconds

    rows: list[Row] = []
    for name, agent in agents.items():
        first, last, mine = before[name], taken[name], f"{name}'s agent at rest"
        rows += [
            Row(
                name=f"the {mine}: of a core",
                value=(last.processor - first.processor) / seconds * 100,
                unit="%",
                target=value_at_most(0.5),
                note=f"over {seconds:.0f} s",
            ),
            Row(
                name=f"the {mine}: wake-ups a second",
                value=(last.wake_ups - first.wake_ups) / seconds,
                unit="",
                baseline="a process that looks every 50 ms",
                baseline_value=poll,
                target=value_at_most(5),
                note="of all threads, voluntary ones",
            ),
            row(
                f"{mine}: processor time",
                in_300_s(last.processor, first.processor),
                "s",
                0.2,
                in_300_s(other.processor, beside.processor) if other and beside else None,
            ),
            row(
                f"{mine}: on the wire",
                in_300_s(last.wire, first.wire) / 1000,
                "KB",
                3,
                in_300_s(other.wire, beside.wire) / 1000 if other and beside else None,
            ),
            row(
                f"{mine}: written to the disk",
                in_300_s(last.written, first.written) / 1000,
                "KB",
                40,
                in_300_s(other.written, beside.written) / 1000 if other and beside else None,
            ),
            Row(
                name=f"the {mine}: memory",
                value=agent.resting.resident_mb(),
                unit="MB",
                baseline="" if syncthing is None else "Syncthing at rest",
                baseline_value=None if syncthing is None else syncthing.resident_mb(),
                target=value_at_most(60),
            ),
            Row(name=f"the {mine}: descriptors", value=float(agent.descriptors()), unit=""),
        ]
    return rows


def _wake_ups(process: int) -> int:
    """How often the threads of a process went to sleep since they began."""
    return sum(
        int(line.split()[1])
        for status in Path(f"/proc/{process}/task").glob("*/status")
        for line in status.read_text().splitlines()
        if line.startswith("voluntary_ctxt_switches:")
    )


def _wake_ups_of_a_poll(seconds: float) -> float:
    """A second, of a process that does nothing else, while that time passes."""
    process = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(0.05)"])
    try:
        time.sleep(seconds / 10)
        before = _wake_ups(process.pid)
        time.sleep(seconds * 0.9)
        return (_wake_ups(process.pid) - before) / (seconds * 0.9)
    finally:
        process.kill()
        process.wait()


def _latency(agent: _Agent, *, writes: int) -> list[Row]:
    samples: list[float] = []
    for number in range(writes):
        text = f"Live remark {number}: {uuid.uuid4()}."
        samples.append(agent.capture(text, _CAPTURED_SECONDS_MAX))
        time.sleep(_PAUSE_SECONDS)
    return [
        Row(
            name=f"end of a write until the agent has recorded it, p{percent}",
            value=percentile(samples, percent),
            unit="s",
            target=value_at_most(1.0),
            note=f"{writes} writes",
        )
        for percent in (50, 99)
    ]


def _nudge(agent: _Agent, *, repeat: int) -> list[Row]:
    command = [sys.executable, "-m", "crystal_node", "nudge", "--home", str(agent.device.home)]

    def nudge() -> None:
        subprocess.run(command, env=child_environment({}), check=True)

    return [
        Row(
            name="`crystal nudge --home`, as a hook starts it",
            value=timed(nudge, repeat=repeat).median * 1000,
            unit="ms",
            target=value_at_most(150),
        )
    ]


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
