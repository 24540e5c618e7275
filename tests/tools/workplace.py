"""A person's home with AI programs, Crystal set up in it by `crystal up`, its background service, and a scripted model."""

import itertools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scripts.install_test_tools import PROGRAMS, Tools
from tests.support.machine import Machine
from tests.support.scripted_model import ScriptedModel
from tests.support.watchers import until

RUN_SECONDS_MAX = 300.0
RECORDED_SECONDS_MAX = 120.0
_OFF = {
    "CI": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "NO_COLOR": "1",
    "NO_UPDATE_NOTIFIER": "1",
}
"""What keeps programs from asking for updates and reporting their use. Each adds what is its own."""
_exports = itertools.count()


@dataclass(frozen=True, slots=True)
class Row:
    """A message of the memory."""

    role: str
    text: str
    session: str
    project: str
    source: str
    created_at: int
    message: str
    model: str


@dataclass
class Workplace:
    """See the module. ``folders``: of the programs, made before Crystal is set up."""

    machine: Machine
    model: ScriptedModel
    tools: Tools = field(default_factory=lambda: Tools.of(os.environ))

    @property
    def home(self) -> Path:
        return self.machine.root

    def project(self, name: str) -> Path:
        """A folder to work in."""
        folder = self.home / "work" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def program(self, name: str) -> str:
        """The command of a program. Skips the test if it is not there."""
        pinned = PROGRAMS[name]
        if why_not := self.tools.missing(pinned):
            pytest.skip(f"{pinned.name} {pinned.version}: {why_not}")
        return str(self.tools.command(pinned))

    def environment(self, folder: Path, **variables: str) -> dict[str, str]:
        """Of a program: nothing of this process but the language and where programs are."""
        path = f"{self.tools.node_folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        own = {"HOME": str(self.home), "PWD": str(folder), "PATH": path, "TERM": "dumb", "LANG": "C.UTF-8"}
        return own | {"CRYSTAL_KEY_STORE": "file"} | _OFF | variables

    def run(
        self, command: Sequence[str], folder: Path, *, typed: str | None = None, **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end in a folder; it has to succeed."""
        done = subprocess.run(
            command,
            cwd=folder,
            env=self.environment(folder, **variables),
            input=typed,
            stdin=subprocess.DEVNULL if typed is None else None,
            capture_output=True,
            encoding="utf-8",
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done

    @contextmanager
    def started(
        self, command: Sequence[str], folder: Path, **variables: str
    ) -> "Generator[subprocess.Popen[str]]":
        """A program that goes on; it is killed at the end, with all that it started."""
        with (self.home / "started.txt").open("a") as output:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=self.environment(folder, **variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                encoding="utf-8",
                start_new_session=True,
            )
            try:
                yield process
            finally:
                kill_all(process.pid)
                process.wait()

    def rows(self, project: str = "") -> list[Row]:
        """What the memory holds of a project, in the order of time; thoughts of a message before its words."""
        folder = self.home / f"export-{next(_exports)}"
        self.machine.call("export", str(folder), "--no-files")
        lines = (folder / "conversations.jsonl").read_text("utf-8").splitlines()
        shutil.rmtree(folder)
        names = Row.__dataclass_fields__
        rows = [
            Row(**{name: value for name, value in json.loads(line).items() if name in names})
            for line in lines
        ]
        wanted = [row for row in rows if not project or row.project == f"work/{project}"]
        return sorted(wanted, key=lambda row: row.created_at)

    def recorded(self, project: str, holds: Callable[[list[Row]], bool]) -> list[Row]:
        """The rows of a project, once this is true of them. Then nothing more comes: the service has looked again."""
        found: list[Row] = []

        def enough() -> bool:
            found[:] = self.rows(project)
            return holds(found)

        until(enough, f"the messages of {project}", seconds=RECORDED_SECONDS_MAX)
        self.machine.run("capture")
        return self.rows(project)


def kill_all(process: int) -> None:
    """Kill a process with all that it started, also what has a process group of its own."""
    found = [process]
    for each in found:
        with suppress(OSError):  # it has ended
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    for each in found:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def said(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Who said what."""
    return [(row.role, row.text) for row in rows]
