"""`crystal upgrade` says what it would run, what failed, and what became of it; tests/house/test_install.py really upgrades."""

import subprocess
import sys
import zipfile
from pathlib import Path
from shutil import which

import pytest

from crystal_node.device.installation import Installation, Installer, Interpreter, find_installation
from crystal_node.surfaces.cli.upgrade import UpgradeFailed, carry_out, neutral_folder, outcome
from tests.node.device.test_installation import installed
from tests.support.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Its PATH has a `git` that cannot reach its server, and no other program."""
    home = tmp_path / "home"
    folder = home / "bin"
    folder.mkdir(parents=True)
    git = folder / "git"
    git.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/asked\npwd > {folder}/where\necho "could not resolve host" >&2\nexit 128\n'
    )
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
    assert (machine.root / "bin" / "where").read_text().strip() == sys.prefix, "there is no home yet"


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


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: its uv.toml would have another Crystal installed, and it has a program named like an installer."""
    folder = tmp_path / "project"
    folder.mkdir()
    info = "memory_crystal-9999.dist-info"
    with zipfile.ZipFile(folder / "memory_crystal-9999-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: memory-crystal\nVersion: 9999\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    (folder / "uv.toml").write_text(f'no-index = true\nfind-links = ["{folder}"]\n')
    program = folder / "installer"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.chdir(folder)
    return folder


def test_the_working_directory_chooses_nothing(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "installer"
    program.write_text(f'#!/bin/sh\npwd > {folder}/where\necho "$@" > {folder}/asked\n')
    program.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("CRYSTAL_HOME", str(home))
    monkeypatch.setenv("PATH", f".::{project.name}:{folder}")
    neutral = neutral_folder(Interpreter.current())
    assert neutral == home
    carry_out(("installer", "upgrade", "memory-crystal"), neutral)
    assert (folder / "where").read_text().strip() == str(home)
    assert (folder / "asked").read_text() == "upgrade memory-crystal\n"
    program.unlink()
    with pytest.raises(UpgradeFailed, match="not on the PATH"):
        carry_out(("installer",), neutral)
    home.rmdir()
    assert neutral_folder(Interpreter.current()) == Path(sys.prefix)


UV = which("uv", path=str(Path(sys.executable).parent)) or which("uv")


@pytest.mark.skipif(UV is None, reason="there is no uv here")
def test_uv_heeds_no_settings_of_the_folder_that_it_runs_in(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert UV is not None
    for name, value in (("OFFLINE", "1"), ("CACHE_DIR", str(tmp_path / "cache"))):
        monkeypatch.setenv(f"UV_{name}", value)
    monkeypatch.delenv("UV_NO_CONFIG", raising=False)
    monkeypatch.setenv("PATH", str(Path(UV).parent))
    tool = tmp_path / "tool"
    subprocess.run(
        [UV, "venv", "-q", "--no-config", "--python", sys.executable, tool], check=True, timeout=120
    )
    python = Interpreter(str(tool / "bin" / "python"), tool, Path("/usr"), has_pip=False, user_site=tmp_path)
    (command,) = find_installation(python, installed(tmp_path / "site")).commands
    with pytest.raises(UpgradeFailed):  # no index can be asked here
        carry_out(command, project)
    assert list(tool.glob("lib/*/site-packages/memory_crystal-*")) == []
    carry_out(tuple(word for word in command if word != "--no-config"), project)
    assert list(tool.glob("lib/*/site-packages/memory_crystal-9999*")), "that folder would have chosen"
