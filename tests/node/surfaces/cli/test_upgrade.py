"""`crystal upgrade` says what it would run, what failed, and what became of it; tests/house/test_install.py really upgrades."""

from pathlib import Path

import pytest

from crystal_node.device.installation import Installation, Installer
from crystal_node.surfaces.cli.upgrade import outcome
from tests.support.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Its PATH has a `git` that cannot reach its server, and no other program."""
    home = tmp_path / "home"
    folder = home / "bin"
    folder.mkdir(parents=True)
    git = folder / "git"
    git.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\necho "could not resolve host" >&2\nexit 128\n')
    git.chmod(0o755)
    return Machine(home, {"PATH": str(folder)})


def test_nothing_runs_where_nobody_can_answer(machine: Machine) -> None:
    said = machine.call("upgrade")
    assert "installed by a source checkout" in said.out
    assert "git -C" in said.out
    assert "crystal upgrade --yes" in said.err
    assert machine.call("upgrade", "--json").json["ran"] is False
    assert machine.call("upgrade", "--yes", "--dry-run", "--json").json["ran"] is False
    assert not (machine.root / "bin" / "asked").exists()


def test_a_step_that_fails_ends_the_upgrade_and_says_which(machine: Machine) -> None:
    failed = machine.run("upgrade", "--yes", "--json", check=False)
    assert failed.code == 8
    assert "pull --ff-only ended with exit code 128" in failed.error["error"]
    assert "memory is untouched" in failed.error["hint"]
    assert "could not resolve host" in failed.err
    assert len((machine.root / "bin" / "asked").read_text().splitlines()) == 1


def test_an_installer_that_is_not_there_is_named(machine: Machine) -> None:
    (machine.root / "bin" / "git").unlink()
    failed = machine.call("upgrade", "--yes", "--json", check=False)
    assert failed.code == 8
    assert failed.error["error"] == "git is not on the PATH"


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ("0.2.0", "upgraded from 0.2.0rc1 to 0.2.0"),
        ("0.2.0rc1", "0.2.0rc1 is the newest version that pipx offers"),
        ("0.1.9", "back to 0.1.9. A memory that the newer version has opened may be refused"),
        ("", "installed elsewhere"),
    ],
)
def test_what_became_of_it_is_said(after: str, words: str) -> None:
    installation = Installation(Installer.PIPX, "0.2.0rc1", (("pipx", "upgrade", "memory-crystal"),))
    assert words in outcome(installation, after)
