"""A gigabyte of transcripts is recorded: `crystal capture` as a process, into a home of its own; no vectors are made.

The transcripts are made as Claude Code's are: of eight lines that belong to a turn, five are calls and what tools answered,
which is most of the bytes. Beside it a process that only parses each line, with the parser that capture uses: the least that
reading them takes.
"""

import json
import os
import random
import sys
import tempfile
import threading
import uuid
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import Row, timed_process, value_at_most
from bench.memories import sentences
from crystal_node.base.settings import child_environment
from crystal_node.capture.tools import TOOLS
from crystal_node.surfaces.demo.machines import DemoDevice, DemoRelay, command_of

MB = 1_000_000
BYTES = 1_000 * MB
FILES = 200
OUTPUT_BYTES = 9_000
"""Average size of what a tool answers: a file that was read, a test run."""
SECONDS_MAX = 25.0
MEMORY_MB_MAX = 150.0
_TOOL = "claude-code"
_MEMORY = "/proc/{}/smaps_rollup"
_PARSE = """
import sys
from pathlib import Path
import msgspec
for path in Path(sys.argv[1]).rglob("*.jsonl"):
    with path.open("rb") as lines:
        for line in lines:
            msgspec.json.decode(line)
"""


def run(quick: bool) -> list[Row]:
    size, files = (10 * MB, 4) if quick else (BYTES, FILES)
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as name, _device(Path(name)) as device:
        written = sum(_write(device.projects, number, size // files) for number in range(files))
        os.sync()
        parsed = timed_process([sys.executable, "-c", _PARSE, str(device.projects)], device.environment())
        with _resident() as peak:
            recorded = timed_process(command_of("capture"), device.environment())
        again = timed_process(command_of("capture"), device.environment())
    counts = json.loads(recorded.output)
    assert counts["messages"] > 3 * counts["files"] == 3 * files, counts
    name = f"{written / MB:,.0f} MB of transcripts recorded"
    return [
        Row(
            name=name,
            value=recorded.seconds,
            unit="s",
            baseline="each line parsed",
            baseline_value=parsed.seconds,
            target=None if quick else value_at_most(SECONDS_MAX),
            note=f"{counts['messages']:,} messages and {counts['actions']:,} tool calls, without vectors",
        ),
        Row(
            name=f"{name}: processor time",
            value=recorded.processor,
            unit="s",
            baseline="each line parsed",
            baseline_value=parsed.processor,
        ),
        Row(
            name=f"{name}: peak of memory (PSS) of all its processes",
            value=peak.bytes / MB,
            unit="MB",
            target=value_at_most(MEMORY_MB_MAX),
            note="proportional set size, read five times a second: a page that several processes share counts in part for each",
        ),
        Row(name="a second look at them, nothing new", value=again.seconds, unit="s"),
    ]


class _Device(DemoDevice):
    """A device that Claude Code is used on. Nothing else of this machine is read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "crystal")
        self._folder = folder
        self.projects = folder / ".claude" / "projects"

    def environment(self, token: str = "") -> dict[str, str]:
        mine = {
            "HOME": str(self._folder),
            "CLAUDE_CONFIG_DIR": str(self._folder / ".claude"),
            "CRYSTAL_CAPTURE_WITHOUT": ",".join(name for name in TOOLS if name != _TOOL),
        }
        return child_environment(super().environment(token) | mine)


@contextmanager
def _device(folder: Path) -> Generator[_Device]:
    """The Core of a vault whose relay has been stopped."""
    relay = DemoRelay(folder / "relay")
    relay.start()
    device = _Device(folder)
    try:
        device.run("init", "--role", "core", "--relay", relay.url, "--yes", token=relay.token)
    finally:
        relay.stop()
    yield device


@dataclass
class _Peak:
    bytes: int = 0


@contextmanager
def _resident() -> Generator[_Peak]:
    """The peak of the memory of all processes that this one starts meanwhile: the sum of their proportional set sizes, read
    five times a second. Raises OSError: the system does not tell these sizes."""
    peak, ended, here = _Peak(), threading.Event(), os.getpid()
    # Raises if the system has no such files: below, a missing one means that its process has ended.
    Path(_MEMORY.format(here)).read_bytes()

    def look() -> None:
        while not ended.wait(0.2):
            peak.bytes = max(peak.bytes, sum(map(_proportional, _descendants(here))))

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield peak
        finally:
            ended.set()
        looking.result()
    assert peak.bytes, "no process was seen"


def _descendants(process: int) -> list[int]:
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _proportional(process: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        found = Path(_MEMORY.format(process)).read_text()
        return int(found.partition("\nPss:")[2].split()[0]) * 1024
    return 0


def _write(projects: Path, number: int, size: int) -> int:
    """A transcript of that size, made from its number. Returns its bytes."""
    rng, said = random.Random(number), sentences()
    session, work = str(uuid.UUID(int=rng.getrandbits(128))), f"/home/someone/work/{number % 16}"
    path = projects / work.replace("/", "-") / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with path.open("w", encoding="utf-8") as file:
        for at, message in enumerate(_messages(rng, said)):
            record = {
                "type": message["role"],
                "uuid": str(uuid.UUID(int=rng.getrandbits(128))),
                "parentUuid": str(uuid.UUID(int=rng.getrandbits(128))),
                "isSidechain": False,
                "sessionId": session,
                "timestamp": f"2026-{1 + number % 9:02d}-{1 + at // 1440 % 28:02d}T{at // 60 % 24:02d}:{at % 60:02d}:00.000Z",
                "cwd": work,
                "gitBranch": "main",
                "version": "2.1.330",
                "userType": "external",
                "message": message,
            }
            written += file.write(json.dumps(record, ensure_ascii=False) + "\n")
            if written >= size:
                return path.stat().st_size
    raise AssertionError("messages never end")


def _messages(rng: random.Random, said: list[str]) -> Generator[dict[str, Any]]:
    """A prompt, thoughts and words, calls with what tools answered, the last words; and so on."""

    def words(count: int) -> str:
        return " ".join(rng.choice(said) for _ in range(count))

    def lines(size: int) -> str:
        found: list[str] = []
        while size > 0:
            found.append(f"{len(found) + 1:6d}\t{' ' * rng.randrange(0, 16, 4)}{rng.choice(said)}")
            size -= len(found[-1])
        return "\n".join(found)

    def answer(*blocks: dict[str, Any]) -> dict[str, Any]:
        return {"role": "assistant", "model": "claude-opus-5-5", "content": list(blocks)}

    while True:
        yield {"role": "user", "content": words(2)}
        yield answer({"type": "thinking", "thinking": words(4), "signature": "c" * 400})
        yield answer({"type": "text", "text": words(3)})
        for tool in ("Read", "Bash", "Edit"):
            call = f"toolu_{rng.getrandbits(96):024x}"
            given = {
                "Read": {"file_path": f"/home/someone/work/src/part{rng.randrange(99)}.py"},
                "Bash": {"command": f"make test ARGS=part{rng.randrange(99)}", "description": words(1)},
                "Edit": {
                    "file_path": f"/home/someone/work/src/part{rng.randrange(99)}.py",
                    "old_string": lines(600),
                    "new_string": lines(700),
                },
            }[tool]
            yield answer({"type": "tool_use", "id": call, "name": tool, "input": given})
            output = lines(rng.randrange(2 * OUTPUT_BYTES)) if tool != "Edit" else "The file was updated."
            yield {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": call, "content": output, "is_error": False}
                ],
            }
        yield answer({"type": "text", "text": words(5)})
