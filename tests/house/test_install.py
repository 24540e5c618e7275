"""The built files are installed as people install them, and what is then there works."""

import hashlib
import json
import os
import re
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.machine import Machine
from tests.support.release_files import (
    PROJECT,
    ReleaseFiles,
    build,
    index_answers,
    offline_environment,
    ran,
    tool,
    with_version,
)
from tests.support.user_manager import with_manager

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TESTED = PROJECT / "requirements" / "constraints.txt"
"""Versions: what others publish tomorrow fails none of these tests."""
OURS = {"crystal", "crystal-relay"}
INSTALL_MEGABYTES_MAX = 215
"""Files of a device's install on Linux x86-64, without bytecode: 200 as of this writing (docs/install.md)."""
_TURN = (
    '{"type":"user","uuid":"7d0c6f0e-0b5e-4d0e-9a52-0f3f9f0f0a01","parentUuid":null,'
    '"sessionId":"7d0c6f0e-0b5e-4d0e-9a52-0f3f9f0f0a00","timestamp":"2026-01-05T09:00:00.000Z","cwd":"/home/someone/work",'
    '"version":"2.0.0","isSidechain":false,'
    '"message":{"role":"user","content":"The retry budget of the importer is eleven attempts in an hour."}}\n'
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ReleaseFiles:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def python(files: ReleaseFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the wheel in it, installed by pip; no index is asked."""
    found = offline_environment(tmp_path_factory.mktemp("offline") / "venv")
    ran([str(found), "-m", "pip", "install", "--no-index", "--no-compile", str(files.wheel)])
    return found


def environment(machine: Machine, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in machine.environment.items() if name != "PYTHONPATH"}
    return kept | {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COMPILE": "1"} | more


def test_the_sdist_alone_builds_the_same_wheel(files: ReleaseFiles, tmp_path: Path) -> None:
    with tarfile.open(files.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (sources,) = tmp_path.iterdir()
    again = build(tmp_path / "again", sources)
    assert _contents(again.wheel) == _contents(files.wheel)
    assert (sources / "tests" / "house" / "test_install.py").exists()
    assert {"LICENSE", "README.md", "CHANGELOG.md", "Makefile"} <= {path.name for path in sources.iterdir()}


def _contents(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def test_a_machine_is_set_up_searched_and_upgraded_from_the_wheel(
    python: Path, files: ReleaseFiles, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "home")
    machine.root.mkdir()
    project = machine.projects / "-home-someone-work"
    project.mkdir(parents=True)
    (project / "7d0c6f0e-0b5e-4d0e-9a52-0f3f9f0f0a00.jsonl").write_text(_TURN, encoding="utf-8")
    manager = with_manager(machine)
    crystal = str(python.with_name("crystal"))
    try:
        ran([crystal, "up", "--yes"], env=environment(machine), cwd=tmp_path)
        said = _found_by_meaning(crystal, machine)
        assert "eleven attempts" in said["results"][0]["text"]
        before = manager.running()
        assert len(before) == 1
        _upgraded(crystal, machine, files.wheel, tmp_path)
        assert len(manager.running()) == 1
        assert manager.running() != before, "the background service runs the new version"
    finally:
        manager.stop_all()


def _found_by_meaning(crystal: str, machine: Machine) -> dict[str, Any]:
    """The result as soon as the background service has made the vectors: the model is part of what was installed."""
    said: dict[str, Any] = {}
    for _ in range(120):
        command = [crystal, "search", "--json", "how often does the importer try again"]
        said = json.loads(ran(command, env=environment(machine)))
        if said["mode"] == "hybrid":
            return said
        time.sleep(1)
    raise AssertionError(said)


def _upgraded(crystal: str, machine: Machine, wheel: Path, folder: Path) -> None:
    """`crystal upgrade`: only shown where nobody can answer; then to a newer release, which is then the newest."""
    assert "pip install --upgrade memory-crystal" in ran([crystal, "upgrade"], env=environment(machine))
    releases = with_version(wheel, "0.1.1", folder / "releases").parent
    variables = environment(machine, PIP_FIND_LINKS=str(releases))
    said = json.loads(ran([crystal, "upgrade", "--yes", "--json"], env=variables))
    assert (said["version"], said["version_after"], said["service_restarted"]) == ("0.1.0", "0.1.1", True)
    assert ran([crystal, "--version"], env=variables) == "crystal 0.1.1\n"
    assert "0.1.1 is the newest version that pip offers" in ran([crystal, "upgrade", "--yes"], env=variables)


def test_the_commands_are_two(python: Path) -> None:
    site = next(python.parents[1].glob("lib/python*/site-packages/memory_crystal-*.dist-info"))
    listed = re.findall(r"^([\w-]+) = ", (site / "entry_points.txt").read_text(), re.MULTILINE)
    assert set(listed) == OURS


# --- with an index ---


@pytest.fixture(scope="module")
def online(tmp_path_factory: pytest.TempPathFactory) -> None:
    if not index_answers(tmp_path_factory.mktemp("probe")):
        pytest.skip("no package index answers")


@pytest.mark.disk
@pytest.mark.usefixtures("online")
def test_uv_tool_installs_our_two_commands_and_nothing_else(files: ReleaseFiles, tmp_path: Path) -> None:
    """And overwrites no program of the same name."""
    uv = tool("uv")
    if not uv:
        pytest.skip("there is no uv")
    bin_folder = tmp_path / "bin"
    compiler = bin_folder / "crystal"
    bin_folder.mkdir()
    compiler.write_text("#!/bin/sh\necho the compiler\n")
    compiler.chmod(0o755)
    variables = os.environ | {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(bin_folder)}
    install = [
        uv,
        "tool",
        "install",
        "--python",
        sys.executable,
        "--constraints",
        str(TESTED),
        str(files.wheel),
    ]
    with pytest.raises(AssertionError, match="already exist"):
        ran(install, env=variables)
    assert ran([str(compiler)]) == "the compiler\n"
    compiler.unlink()

    ran(install, env=variables)
    assert {path.name for path in bin_folder.iterdir()} == OURS
    said = json.loads(ran([str(compiler), "upgrade", "--json"], env=variables))
    assert (said["installed_by"], said["commands"]) == ("uv tool", ["uv tool upgrade memory-crystal"])
    tools = [path for path in (tmp_path / "tools").rglob("*") if path.is_file() and not path.is_symlink()]
    sizes = sum(path.stat().st_size for path in tools if path.suffix != ".pyc") / 1e6
    assert sizes < INSTALL_MEGABYTES_MAX


@pytest.mark.disk
@pytest.mark.usefixtures("online")
def test_pipx_installs_our_two_commands_and_nothing_else(files: ReleaseFiles, tmp_path: Path) -> None:
    pipx = tool("pipx")
    if not pipx:
        pytest.skip("there is no pipx")
    variables = os.environ | {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    pip_args = f"--pip-args=--constraint {TESTED}"
    ran([pipx, "install", "--python", sys.executable, pip_args, str(files.wheel)], env=variables)
    assert {path.name for path in (tmp_path / "bin").iterdir()} == OURS
    said = json.loads(ran([str(tmp_path / "bin" / "crystal"), "upgrade", "--json"], env=variables))
    assert (said["installed_by"], said["commands"]) == ("pipx", ["pipx upgrade memory-crystal"])


@pytest.mark.disk
@pytest.mark.usefixtures("online")
def test_the_lock_of_a_device_installs_with_hashes_in_a_clean_environment(
    files: ReleaseFiles, tmp_path: Path
) -> None:
    ran([sys.executable, "-m", "venv", str(tmp_path / "venv")])
    pip = [str(tmp_path / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    ran([*pip, "--require-hashes", "--requirement", str(PROJECT / "requirements" / "device.txt")])
    ran([*pip, "--no-deps", "--no-index", str(files.wheel)])
    ran([str(tmp_path / "venv" / "bin" / "python"), "-m", "pip", "check"])
    variables = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    assert "crystal 0." in ran([str(tmp_path / "venv" / "bin" / "crystal"), "--version"], env=variables)
