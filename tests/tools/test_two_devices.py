"""Projects that a person excludes on one device are not recorded on another device, which runs the same program."""

import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.machine import Machine
from tests.support.relay_process import RelayProcess, running_relay
from tests.tools.conftest import Bare
from tests.tools.programs import ClaudeCode, Codex, Program
from tests.tools.workplace import Row, said

REPOSITORY = "example.org/plovers/nests"


@pytest.fixture
def relay(tmp_path: Path) -> Generator[RelayProcess]:
    with running_relay(tmp_path / "relay") as running:
        yield running


def vault(relay: RelayProcess, laptop: Machine, desktop: Machine) -> None:
    """Set up Crystal on both: a Core, and a Node of its vault."""
    bare = ("--yes", "--no-service", "--no-hooks", "--no-mcp")
    token = relay.enroll_token
    laptop.run("up", "--role", "core", "--relay", relay.url, *bare, CRYSTAL_RELAY_ENROLL_TOKEN=token)
    code = laptop.run("pair", "--offline", "--yes", "--json").json["code"]
    join = ("pair", "--code", "-", "--relay", relay.url, "--name", "desktop")
    desktop.run(*join, typed=f"{code}\n")
    settle(laptop, desktop)


def settle(laptop: Machine, desktop: Machine) -> None:
    for machine in (desktop, laptop, desktop, laptop):
        machine.run("sync")


def recorded(program: Program) -> list[Row]:
    program.workplace.machine.run("capture")
    return [row for row in program.workplace.rows() if "plover" in row.text]


@pytest.mark.parametrize("kind", [ClaudeCode, Codex], ids=lambda kind: kind.name)
def test_a_project_that_one_device_keeps_out_is_not_recorded_on_another(
    relay: RelayProcess, bare: Bare, kind: type[Program]
) -> None:
    laptop, desktop = bare(kind), bare(kind)
    vault(relay, laptop.workplace.machine, desktop.workplace.machine)
    prompts = [
        desktop.workplace.model.script.says(
            f"What about plover nest {number}?", f"The plover nest {number} is empty."
        )
        for number in range(2)
    ]
    diary, clone, kept = map(desktop.workplace.project, ("diary", "a clone with another name", "kept"))
    subprocess.run(["git", "init", "--quiet", str(clone)], check=True)
    subprocess.run(
        ["git", "-C", str(clone), "remote", "add", "origin", f"https://{REPOSITORY}.git"], check=True
    )
    for folder in (diary, clone, kept):
        desktop.ask(folder, prompts[0])
    assert {row.project for row in recorded(desktop)} == {
        "work/diary",
        "work/a clone with another name",
        "work/kept",
    }
    own = laptop.workplace.project("diary")
    laptop.workplace.machine.run("capture", "exclude", str(own), REPOSITORY)
    settle(laptop.workplace.machine, desktop.workplace.machine)
    for folder in (diary, clone, kept):
        desktop.ask(folder, prompts[1])
    said_then = [("user", prompts[1]), ("assistant", "The plover nest 1 is empty.")]
    rows = [row for row in recorded(desktop) if "nest 1" in row.text]
    assert said(rows) == said_then
    assert {row.project for row in rows} == {"work/kept"}
    settle(laptop.workplace.machine, desktop.workplace.machine)
    there = [row for row in laptop.workplace.rows() if "nest 1" in row.text]
    assert (said(there), {row.project for row in there}) == (said_then, {"work/kept"})
