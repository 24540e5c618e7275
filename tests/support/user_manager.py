"""A user's service manager where there is none: `systemctl --user` as a small program, on the PATH of one machine.

It knows what `crystal_node.agent.service` and `crystal-relay up` ask of the real one, reads the same unit files, and really
starts what they say.
A test that uses it stops what it started: `UserManager.stop_all`.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.machine import Machine

_STOP_SECONDS = 30.0


@dataclass(frozen=True)
class UserManager:
    """The manager of the person whose home folder is `root`."""

    root: Path

    @property
    def units(self) -> Path:
        return self.root / ".config" / "systemd" / "user"

    def running(self) -> list[int]:
        """The processes that it has started and that still run."""
        found = (_pid(path) for path in sorted((self.root / "run").glob("*.pid")))
        return [pid for pid in found if _lives(pid)]

    def stop_all(self) -> None:
        for pid in self.running():
            _end(pid)


def with_manager(machine: Machine) -> UserManager:
    """Puts it on the machine's PATH."""
    folder = machine.root / "bin"
    folder.mkdir(exist_ok=True)
    (machine.root / "run").mkdir(exist_ok=True)
    program = folder / "systemctl"
    project = Path(__file__).resolve().parents[2]
    program.write_text(
        f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(project))} exec {shlex.quote(sys.executable)}"
        ' -m tests.support.user_manager "$@"\n'
    )
    program.chmod(0o755)
    machine.extra |= {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(machine.root / ".config"),
    }
    return UserManager(machine.root)


def main(words: list[str]) -> int:
    """What `systemctl` is asked."""
    verb, *more = [word for word in words if not word.startswith("--")]
    manager = UserManager(Path(os.environ["HOME"]))
    unit = more[0] if more else ""
    pid_file = manager.root / "run" / f"{unit}.pid"
    link = manager.units / "default.target.wants" / unit
    pid = _pid(pid_file)
    match verb:
        case "is-active":
            sys.stdout.write("active\n" if _lives(pid) else "inactive\n")
            return 0 if _lives(pid) else 3
        case "enable":
            link.parent.mkdir(exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(manager.units / unit)
        case "start" | "restart":
            if verb == "restart":
                _end(pid)
            if not _lives(pid):
                pid_file.write_text(str(_start(manager.units / unit)))
        case "stop":
            _end(pid)
        case "disable":
            link.unlink(missing_ok=True)
            if "--now" in words:
                _end(pid)
        case "show-environment" | "daemon-reload" | "reset-failed":
            pass
        case _:
            raise SystemExit(f"unknown: {verb}")
    return 0


def _start(unit: Path) -> int:
    variables = {name: os.environ[name] for name in ("HOME", "PATH")}
    command: list[str] = []
    for line in unit.read_text().splitlines():
        name, _, value = line.partition("=")
        words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(value)] if value else []
        if name == "Environment":
            variables |= dict(word.split("=", 1) for word in words)
        elif name == "ExecStart":
            command = words
    null = subprocess.DEVNULL
    started = subprocess.Popen(
        command, env=variables, cwd="/", stdin=null, stdout=null, stderr=null, start_new_session=True
    )
    return started.pid


def _end(pid: int) -> None:
    deadline = time.monotonic() + _STOP_SECONDS
    while _lives(pid):
        os.kill(pid, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
        time.sleep(0.05)


def _pid(path: Path) -> int:
    return int(path.read_text()) if path.exists() else 0


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return pid > 0 and state not in "ZX"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
