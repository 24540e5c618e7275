"""Raw sessions between two machines, as real processes: how soon one that grew is ready to resume on the other machine, what
2 KB more of a 200 MB transcript cost, and what a session takes on the relay.

Two homes with background services (`crystal agent run`) at a relay of their own. Ready means: a head on the other machine names
all bytes of the transcript, all that it names is there, and its last line is the one that was appended. What `crystal resume`
does with it then is measured in the part `commands`.
"""

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.file_transfers import Counter, Pair
from bench.harness import Row, percentile, ratio_at_most, value_at_most
from crystal_crypto import compression
from crystal_node.base.settings import child_environment
from crystal_node.capture.tools import TOOLS
from crystal_node.derive.sessions.copies import CopyIncomplete, SessionCopies, read_segment
from crystal_node.derive.sessions.layout import Head, segment_path
from crystal_node.surfaces.demo.machines import DemoDevice, DemoRelay, command_of

MB = 1_000_000
APPENDS = 60
LARGE_BYTES = 200 * MB
APPENDED_BYTES = 2_000
_RESULT_BYTES = 100_000
"""Of one tool's output: what large transcripts consist of."""
_LEVEL = 3
_POLL_SECONDS = 0.01
_PAUSE_SECONDS = 1.0
_ARRIVES_SECONDS_MAX = 600.0
_SETTLES_SECONDS = 10.0
_TOOL = "claude-code"


def run(quick: bool) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as folder, _machines(Path(folder)) as pair:
        rows = _latency(pair, appends=8 if quick else APPENDS)
        return rows + _large(pair, size=10 * MB if quick else LARGE_BYTES)


class _Machine(DemoDevice):
    """A device that Claude Code is used on. Nothing else of this machine is read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "crystal")
        self._folder = folder
        folder.mkdir()

    def environment(self, token: str = "") -> dict[str, str]:
        without = ",".join(name for name in TOOLS if name != _TOOL)
        mine = {
            "HOME": str(self._folder),
            "CLAUDE_CONFIG_DIR": str(self._folder / ".claude"),
            "CRYSTAL_CAPTURE_WITHOUT": without,
        }
        return child_environment(super().environment(token) | mine)

    @property
    def projects(self) -> Path:
        return self._folder / ".claude" / "projects"


@dataclass
class _Session:
    """A transcript of Claude Code that grows."""

    machine: _Machine
    work: Path
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def path(self) -> Path:
        return self.machine.projects / "-work" / f"{self.id}.jsonl"

    def turn(self, text: str) -> bytes:
        return self._line({"role": "user", "content": text})

    def result(self, text: str) -> bytes:
        return self._line(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": text}]}
        )

    def append(self, data: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(data)

    def _line(self, message: dict[str, Any]) -> bytes:
        record = {
            "type": "user",
            "uuid": str(uuid.uuid4()),
            "sessionId": self.id,
            "timestamp": "2026-01-05T09:00:00.000Z",
            "cwd": str(self.work),
            "message": message,
        }
        return json.dumps(record).encode() + b"\n"


@dataclass
class _Machines:
    """A laptop on which people work, and a Core to which they go."""

    laptop: _Machine
    core: _Machine
    relay: Path
    work: Path
    pair: Pair
    laptop_process: int

    def wait_for(self, session: _Session, last: bytes) -> Head:
        """Until the Core can resume it with this last line."""
        copies = SessionCopies(self.core.home)
        deadline = time.monotonic() + _ARRIVES_SECONDS_MAX
        size = session.path.stat().st_size
        while time.monotonic() < deadline:
            try:
                for head in copies.of(_TOOL, session.id):
                    if head.main.bytes == size:
                        copies.check(head)
                        assert _last_part(copies, head).endswith(last), "it is the line that was appended"
                        return head
            except (CopyIncomplete, FileNotFoundError):
                pass  # its files arrive one by one
            time.sleep(_POLL_SECONDS)
        raise TimeoutError(
            f"a session was not ready on the other machine within {_ARRIVES_SECONDS_MAX:.0f} s"
        )

    def bytes_read(self) -> int:
        """What the laptop's service has read so far, from files and sockets."""
        for line in Path(f"/proc/{self.laptop_process}/io").read_text().splitlines():
            if line.startswith("rchar:"):
                return int(line.split()[1])
        raise ValueError("the system tells no rchar")


def _last_part(copies: SessionCopies, head: Head) -> bytes:
    last = head.main.segments[-1]
    return read_segment(segment_path(head.place.folder(copies.root), head.main, last), last)


@contextmanager
def _machines(folder: Path) -> Generator[_Machines]:
    relay = DemoRelay(folder / "relay")
    relay.start()
    port = int(relay.url.rpartition(":")[2].strip("/"))
    wires = [Counter(port), Counter(port)]
    core, laptop = _Machine(folder / "desktop"), _Machine(folder / "laptop")
    work = folder / "work"
    work.mkdir()
    watching: list[subprocess.Popen[bytes]] = []
    try:
        core.run(
            "init",
            "--role",
            "core",
            "--relay",
            f"http://127.0.0.1:{wires[0].port}",
            "--yes",
            token=relay.token,
        )
        code = str(core.run("pair", "--offline", "--yes")["code"])
        laptop.run("pair", "--code", "-", "--relay", f"http://127.0.0.1:{wires[1].port}", typed=code)
        for device in (laptop, core, laptop):
            device.run("sync")
        for device in (core, laptop):
            device.projects.mkdir(parents=True)
            watching.append(
                subprocess.Popen(
                    [sys.executable, "-P", "-m", "crystal_node", "agent", "run"],
                    env=device.environment(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        processes = [relay.pid, *(process.pid for process in watching)]
        pair = Pair("Crystal", laptop.home, core.home, processes, wires)
        yield _Machines(laptop, core, folder / "relay", work, pair, watching[1].pid)
    finally:
        for process in watching:
            process.send_signal(signal.SIGTERM)
        for process in watching:
            process.wait(60)
        for wire in wires:
            wire.close()
        relay.stop()


def _latency(machines: _Machines, *, appends: int) -> list[Row]:
    session = _Session(machines.laptop, machines.work)
    samples: list[float] = []
    for number in range(appends + 2):
        line = session.turn(f"Remark {number} on the tide gauge, said at this moment: {uuid.uuid4()}.")
        session.append(line)
        started = time.perf_counter()
        machines.wait_for(session, line)
        samples.append(time.perf_counter() - started)
        time.sleep(_PAUSE_SECONDS)
    measured = samples[2:]  # the first ones load what the services have not loaded yet
    resumed = json.loads(
        subprocess.run(
            command_of("resume", session.id, "--in", str(machines.work)),
            env=machines.core.environment(),
            capture_output=True,
            check=True,
        ).stdout
    )
    assert resumed["writes"][0]["bytes"] == session.path.stat().st_size, "resuming it writes all of it"
    return [
        Row(
            name=f"end of a write to ready to resume on another machine, p{percent}",
            value=percentile(measured, percent),
            unit="s",
            target=target,
            note=f"{len(measured)} writes, {_PAUSE_SECONDS:.0f} s after the last had arrived",
        )
        for percent, target in ((50, None), (95, value_at_most(3.0)))
    ]


@dataclass
class _Cost:
    seconds: float
    wire: int
    read: int
    processor: float


def _append_cost(machines: _Machines, session: _Session) -> _Cost:
    rng = random.Random(session.id)
    line = session.turn(_words(rng, APPENDED_BYTES))
    wire, read, processor = machines.pair.wire(), machines.bytes_read(), machines.pair.processor()
    started = time.perf_counter()
    session.append(line)
    machines.wait_for(session, line)
    seconds = time.perf_counter() - started
    time.sleep(_SETTLES_SECONDS)
    return _Cost(
        seconds,
        machines.pair.wire() - wire,
        machines.bytes_read() - read,
        machines.pair.processor() - processor,
    )


def _large(machines: _Machines, *, size: int) -> list[Row]:
    small, large = (_Session(machines.laptop, machines.work) for _ in range(2))
    line = small.turn("A session that has just begun.")
    small.append(line)
    machines.wait_for(small, line)
    rng = random.Random(11)
    raw = bytearray(large.turn("Read all logs of the harbour."))
    while len(raw) < size:
        raw += large.result(_words(rng, _RESULT_BYTES))
    packed = len(compression.frame_of(bytes(raw), level=_LEVEL))
    on_relay = _size_of(machines.relay)
    large.append(bytes(raw))
    started = time.perf_counter()
    head = machines.wait_for(large, bytes(raw[raw.rindex(b"\n", 0, -1) + 1 :]))
    arrived = time.perf_counter() - started
    time.sleep(_SETTLES_SECONDS)
    grown = _size_of(machines.relay) - on_relay
    beside, cost = _append_cost(machines, small), _append_cost(machines, large)
    what = f"2 KB more of a {size // MB} MB transcript"
    baseline = "of a new one"
    return [
        Row(name=f"a {size // MB} MB transcript, until it is ready elsewhere", value=arrived, unit="s"),
        Row(
            name="the same: size of its copy's segments",
            value=head.packed / MB,
            unit="MB",
            baseline=f"zstd -{_LEVEL} of it",
            baseline_value=packed / MB,
            target=ratio_at_most(1.1),
        ),
        Row(
            name="the same: what the relay's disk grew by",
            value=grown / MB,
            unit="MB",
            baseline=f"zstd -{_LEVEL} of it",
            baseline_value=packed / MB,
            target=ratio_at_most(1.1),
            note="with all else that the vault sent meanwhile",
        ),
        Row(
            name=f"{what}: seconds",
            value=cost.seconds,
            unit="s",
            baseline=baseline,
            baseline_value=beside.seconds,
        ),
        Row(
            name=f"{what}: bytes on the wire of both machines",
            value=cost.wire / 1000,
            unit="kB",
            baseline=baseline,
            baseline_value=beside.wire / 1000,
            target=ratio_at_most(2.0),
            note=f"with {_SETTLES_SECONDS:.0f} s afterwards",
        ),
        Row(
            name=f"{what}: read by the laptop's service",
            value=cost.read / MB,
            unit="MB",
            baseline=baseline,
            baseline_value=beside.read / MB,
            target=value_at_most(2.0),
        ),
        Row(
            name=f"{what}: processor time of both services and the relay",
            value=cost.processor,
            unit="s",
            baseline=baseline,
            baseline_value=beside.processor,
        ),
    ]


def _words(rng: random.Random, size: int) -> str:
    """Lines as a log has them: words that recur, and numbers that do not."""
    words = (
        "tide",
        "gauge",
        "harbour",
        "sensor",
        "calibrated",
        "north",
        "buoy",
        "report",
        "timeout",
        "reading",
    )
    parts: list[str] = []
    length = 0
    while length < size:
        part = f"{rng.choice(words)} {rng.choice(words)}={rng.randrange(100_000)}\n"
        parts.append(part)
        length += len(part)
    return "".join(parts)[:size]


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
