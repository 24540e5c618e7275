"""What a call of a command costs, in processor time of its process, beside the start of Python alone.

Processor time, because a person's machine does other work as well. The calls are made in turns.
"""

import json
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.harness import Row, value_at_most
from crystal_node.base.settings import child_environment
from crystal_node.derive.sessions.layout import HEAD_NAME, Head, encode_head
from crystal_node.surfaces.demo.machines import DemoDevice, DemoRelay

_TEXTS = 1_000
_SESSIONS = 10_000
_LISTED = 20
_STARTS_SECONDS_MAX = 60.0
_QUERY = "how many sensors has the gauge"
_BASELINE = "Python's own start"


def run(quick: bool) -> list[Row]:
    """Each command with a background service that answers it, and a search without one."""
    repeat = 3 if quick else 15
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as folder:
        relay = DemoRelay(Path(folder) / "relay")
        relay.start()
        try:
            device = DemoDevice(Path(folder) / "core")
            device.run("init", "--role", "core", "--relay", relay.url, "--yes", token=relay.token)
            _fill(device, Path(folder), 100 if quick else _TEXTS)
            environment = child_environment(
                {"CRYSTAL_HOME": str(device.home), "CRYSTAL_KEY_STORE": "file", "HOME": folder}
            ) | {"TERM": "xterm-256color"}
            cold = _measured({"search, cold": ("search", _QUERY)}, environment, repeat)
            sessions = 100 if quick else _SESSIONS
            _fill_sessions(device.home, sessions)
            subprocess.run(
                _command("resume", "--last", "--json"), env=environment, stdout=subprocess.DEVNULL, check=True
            )
            listed = [_seconds_to_list(environment, sessions) for _ in range(3 if quick else _LISTED)]
            load = os.getloadavg()[0]
            service = subprocess.Popen(
                _command("agent", "run"),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                _await(device.home / "state" / "agent" / "api.sock")
                subprocess.run(
                    _command("search", _QUERY), env=environment, stdout=subprocess.DEVNULL, check=True
                )
                served = _measured(
                    {
                        "search, for people": ("search", _QUERY),
                        "search, at a terminal": ("search", _QUERY),
                        "search --json": ("search", "--json", _QUERY),
                        "status": ("status",),
                        "remember": ("remember", "--keep-both", "-"),
                    },
                    environment,
                    repeat,
                )
            finally:
                service.terminate()
                service.wait(60)
        finally:
            relay.stop()
    limits = {
        "search, cold": 330,
        "search, for people": 70,
        "search, at a terminal": 70,
        "status": 110,
        "remember": 120,
    }
    list_rows = [
        Row(
            name=f"`crystal resume` until its list of {sessions:,} sessions is shown, {what}",
            value=statistics.median(each[at] for each in listed) * 1000,
            unit="ms",
            baseline=_BASELINE,
            baseline_value=statistics.median(cold[_BASELINE]) * 1000,
            target=value_at_most(200),
            note=f"from its cache, on a terminal; the machine's load was {load:.1f}",
        )
        for at, what in enumerate(("processor time", "elapsed time"))
    ]
    return list_rows + [
        Row(
            name=f"`crystal {name}`, processor time",
            value=statistics.median(samples) * 1000,
            unit="ms",
            baseline=_BASELINE,
            baseline_value=statistics.median(found[_BASELINE]) * 1000,
            target=value_at_most(limits[name]) if name in limits else None,
            note="the service away" if found is cold else "the service answers",
        )
        for found in (cold, served)
        for name, samples in found.items()
        if name != _BASELINE
    ]


def _fill(device: DemoDevice, folder: Path, texts: int) -> None:
    path = folder / "past.jsonl"
    with path.open("w") as file:
        for number in range(texts):
            message = {
                "role": "user",
                "content": f"Remark {number} on the gauge and its {number % 97} sensors.",
            }
            about = {"type": "user", "sessionId": "bench", "timestamp": "2026-01-05T09:00:00.000Z"}
            where = {"uuid": str(uuid.uuid4()), "cwd": "/home/someone/work"}
            file.write(json.dumps(about | where | {"message": message}) + "\n")
    device.run("capture", str(path))
    device.run("sync")


def _fill_sessions(home: Path, count: int) -> None:
    """Heads of copies of another device's sessions."""
    for number in range(count):
        head = Head(
            tool="codex",
            session=f"{number:08x}-0000-4000-8000-000000000001",
            device="a1" * 16,
            number=1,
            title=f"Why does gauge {number} read {number % 97} mm at the third weir?",
            last_words="The float is stuck: clean it with a brush, then compare it with the other gauge. "
            * 3,
            cwd="~",
            updated_at=1_795_000_000_000 + number,
        )
        folder = head.place.folder(home)
        folder.mkdir(parents=True)
        (folder / HEAD_NAME).write_bytes(encode_head(head))


def _seconds_to_list(environment: dict[str, str], count: int) -> tuple[float, float]:
    """Processor time of `crystal resume`, and elapsed time, at the moment when a terminal has its list."""
    main, side = pty.openpty()
    began = time.perf_counter()
    process = subprocess.Popen(_command("resume"), env=environment, stdin=side, stdout=side, stderr=side)
    os.close(side)
    shown = b""
    while f"{count:,} of {count:,}".encode() not in shown:
        shown += os.read(main, 65_536)
    elapsed = time.perf_counter() - began
    ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    os.write(main, b"\x1b")
    _drain(main)
    process.wait(60)
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), elapsed


def _measured(
    commands: dict[str, Sequence[str]], environment: dict[str, str], repeat: int
) -> dict[str, list[float]]:
    """Seconds of processor time of each call; the first ones are not counted."""
    calls: dict[str, Callable[[], float]] = {
        _BASELINE: lambda: _seconds([sys.executable, "-c", "pass"], environment)
    }
    for name, words in commands.items():
        calls[name] = lambda name=name, words=words: _seconds(  # type: ignore[misc]
            _command(*words), environment, terminal="terminal" in name
        )
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(repeat + 1):
        for name, call in calls.items():
            seconds = call()
            if number:
                samples[name].append(seconds)
    return samples


def _command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "crystal_node", *words]


def _seconds(command: list[str], environment: dict[str, str], *, terminal: bool = False) -> float:
    """Processor time of one call. It reads a new text; at a terminal it prints to one of 80 columns."""
    main, side = pty.openpty() if terminal else (-1, -1)
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=side if terminal else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(f"The gauge {uuid.uuid4()} is read at noon.\n".encode())
    process.stdin.close()
    if terminal:
        os.close(side)
        _drain(main)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime + usage.ru_stime


def _drain(main: int) -> None:
    try:
        while os.read(main, 65_536):
            pass
    except OSError:
        pass  # the other side was closed: Linux says so by EIO
    finally:
        os.close(main)


def _await(socket: Path) -> None:
    deadline = time.monotonic() + _STARTS_SECONDS_MAX
    while not socket.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("the background service did not start")
        time.sleep(0.05)
