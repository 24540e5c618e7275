"""What the README tells people to type works, in the order in which it stands there."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.machine import Machine as SupportMachine
from tests.support.s3_servers.daemons import free_port
from tests.support.user_manager import with_manager

PROJECT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
_BLOCK = re.compile(r"^```sh (?P<machine>[a-z]+)\n(?P<script>.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"MC2:[A-Z2-7]+")
_DIGITS = re.compile(r"\d{3} \d{3}")
_SECONDS_MAX = 60
_TRANSCRIPT_TURN = (
    '{"type":"user","uuid":"7d0c6f0e-0b5e-4d0e-9a52-0f3f9f0f0a01","parentUuid":null,'
    '"sessionId":"7d0c6f0e-0b5e-4d0e-9a52-0f3f9f0f0a00","timestamp":"2026-01-05T09:00:00.000Z","cwd":"/home/someone/work",'
    '"version":"2.0.0","isSidechain":false,'
    '"message":{"role":"user","content":"The retry budget of the importer is eleven attempts in an hour."}}\n'
)


class Machine:
    """One home folder, as a machine would have it."""

    def __init__(self, home: Path, port: int) -> None:
        self.home = home
        self.port = port
        home.mkdir()
        stand_in = SupportMachine(home)
        self.manager = with_manager(stand_in)
        """Its service manager: the agent that `crystal up` installs really runs."""
        self.extra = stand_in.extra

    def environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("CRYSTAL_", "CLAUDE_"))
        }
        return kept | {
            "HOME": str(self.home),
            "PATH": f"{BIN}{os.pathsep}{self.extra['PATH']}",
            "XDG_CONFIG_HOME": self.extra["XDG_CONFIG_HOME"],
            "CRYSTAL_KEY_STORE": "file",
            "CRYSTAL_OWN_RELAY_PORT": str(self.port),
        }

    def start(self, command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["bash", "-c", "exec " + command],
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str, typed: str = "") -> str:
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            env=self.environment(),
            input=typed,
            capture_output=True,
            text=True,
            timeout=_SECONDS_MAX,
            check=False,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
        return result.stdout


def _commands(machine: str) -> list[str]:
    """The commands of the blocks for one machine, a line each, without comments."""
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    blocks = [match["script"] for match in _BLOCK.finditer(text) if match["machine"] == machine]
    lines = [re.sub(r"\s+# .*$", "", line) for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_what_the_readme_says_works(tmp_path: Path) -> None:
    port = free_port()
    core, node = (Machine(tmp_path / name, port) for name in ("core", "node"))
    project = core.home / ".claude" / "projects" / "-home-someone-work"
    project.mkdir(parents=True)
    (project / "7d0c6f0e-0b5e-4d0e-9a52-0f3f9f0f0a00.jsonl").write_text(_TRANSCRIPT_TURN, encoding="utf-8")

    try:
        joining, *using = _commands("node")
        for command in _commands("core"):
            if command.startswith("crystal pair"):
                _pair(core, command, node, joining)
            else:
                core.run(_once(command))
        for command in using:
            _until_it_finds(node, command, "eleven attempts")
        for machine in (core, node):
            assert len(machine.manager.running()) == 1
            machine.run("crystal down")
            assert machine.manager.running() == []
    finally:
        for machine in (core, node):
            machine.manager.stop_all()


def _pair(core: Machine, inviting: str, node: Machine, joining: str) -> None:
    """Two persons in front of two machines; the one at the new machine cannot be asked, and has said yes before."""
    inviter, newcomer = core.start(inviting), node.start(f"{joining} --yes")
    try:
        _type(newcomer, _shown(inviter, _CODE))
        _type(inviter, _shown(newcomer, _DIGITS))
        for process in (inviter, newcomer):
            _, errors = process.communicate(timeout=_SECONDS_MAX)
            assert process.returncode == 0, errors
    finally:
        for process in (inviter, newcomer):
            process.kill()
            process.communicate()


def _shown(process: "subprocess.Popen[str]", what: re.Pattern[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if what.fullmatch(line.strip()):
            return line
    raise AssertionError(f"it ended before it showed {what.pattern}")


def _type(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def _once(command: str) -> str:
    """The command as a test can run it: nobody is there to confirm."""
    return f"{command} --yes" if command.startswith("crystal up") else command


def _until_it_finds(machine: Machine, command: str, words: str) -> None:
    """The agents bring it there by themselves."""
    deadline = time.monotonic() + _SECONDS_MAX
    while words not in machine.run(command):
        assert time.monotonic() < deadline, f"{command} does not find {words!r}"
        time.sleep(0.2)


def test_the_readme_shows_what_each_machine_types() -> None:
    assert {name: len(_commands(name)) > 0 for name in ("core", "node")} == {
        "core": True,
        "node": True,
    }
