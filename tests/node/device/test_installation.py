"""Each way in which Crystal is installed is recognised by the marks that its installer leaves."""

import json
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from crystal_node.device.installation import Installer, Interpreter, find_installation

PYTHON = "/tool/bin/python"


def installed(folder: Path, origin: object = None) -> Distribution:
    """The package's metadata as an installer writes it. ``origin``: what ``direct_url.json`` holds."""
    info = folder / "memory_crystal-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: memory-crystal\nVersion: 0.1.0\n")
    if origin is not None:
        (info / "direct_url.json").write_text(origin if isinstance(origin, str) else json.dumps(origin))
    return Distribution.at(info)


def environment(prefix: Path, *, venv: bool = True, pip: bool = True) -> Interpreter:
    prefix.mkdir(parents=True, exist_ok=True)
    return Interpreter(
        PYTHON, prefix, Path("/usr") if venv else prefix, pip, prefix.parent / "person" / "site"
    )


@pytest.mark.parametrize(
    ("place", "mark", "installer", "command"),
    [
        ("tools/memory-crystal", "uv-receipt.toml", Installer.UV_TOOL, "uv tool upgrade memory-crystal"),
        ("venvs/memory-crystal", "pipx_metadata.json", Installer.PIPX, "pipx upgrade memory-crystal"),
        ("venvs/memory-crystal-two", "pipx_metadata.json", Installer.PIPX, "pipx upgrade memory-crystal-two"),
        ("Cellar/memory-crystal/0.1.0/libexec", "", Installer.HOMEBREW, "brew upgrade memory-crystal"),
        ("venv", "", Installer.PIP, f"{PYTHON} -P -m pip install --upgrade memory-crystal"),
    ],
)
def test_a_tools_environment_is_upgraded_by_that_tool(
    place: str, mark: str, installer: Installer, command: str, tmp_path: Path
) -> None:
    python = environment(tmp_path / place)
    if mark:
        (python.prefix / mark).write_text("")
    found = find_installation(python, installed(tmp_path / "site"))
    assert (found.installer, found.version) == (installer, "0.1.0")
    assert [" ".join(each) for each in found.commands] == [command]


def test_a_checkout_is_pulled_and_installed_again(tmp_path: Path) -> None:
    folder = tmp_path / "a clone"
    folder.mkdir()
    origin = {"url": folder.as_uri(), "dir_info": {"editable": True}}
    found = find_installation(environment(tmp_path / "venv"), installed(tmp_path / "site", origin))
    assert found.installer is Installer.CHECKOUT
    assert found.folder == folder
    assert found.commands == (
        ("git", "-C", str(folder), "pull", "--ff-only"),
        (PYTHON, "-P", "-m", "pip", "install", "--editable", str(folder)),
    )


def test_what_was_installed_from_a_folder_is_installed_from_it_again(tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    folder.mkdir()
    origin: dict[str, object] = {"url": folder.as_uri(), "dir_info": {}}
    found = find_installation(environment(tmp_path / "venv"), installed(tmp_path / "site", origin))
    assert found.installer is Installer.FOLDER
    assert found.commands[1] == (PYTHON, "-P", "-m", "pip", "install", "--upgrade", str(folder))


@pytest.mark.parametrize(
    "origin",
    [
        {"url": "file:///somewhere/memory_crystal-0.1.0-py3-none-any.whl", "archive_info": {}},
        {"url": "https://example.org/memory_crystal-0.1.0.tar.gz"},
        {"url": 7},
        [],
        "{",
    ],
)
def test_a_wheel_from_a_file_and_an_unreadable_mark_are_upgraded_from_the_index(
    origin: object, tmp_path: Path
) -> None:
    found = find_installation(environment(tmp_path / "venv"), installed(tmp_path / "site", origin))
    assert found.installer is Installer.PIP


def test_an_environment_without_pip_is_upgraded_by_uv(tmp_path: Path) -> None:
    found = find_installation(environment(tmp_path / "venv", pip=False), installed(tmp_path / "site"))
    assert found.installer is Installer.UV_PIP
    assert found.commands == (
        ("uv", "pip", "install", "--no-config", "--python", PYTHON, "--upgrade", "memory-crystal"),
    )


@pytest.mark.parametrize(
    ("place", "venv", "more"),
    [("person/site", False, ("--user",)), ("usr/site", False, ()), ("person/site", True, ())],
)
def test_only_what_a_person_installed_for_themselves_is_upgraded_there(
    place: str, more: tuple[str, ...], tmp_path: Path, *, venv: bool
) -> None:
    found = find_installation(environment(tmp_path / "usr", venv=venv), installed(tmp_path / place))
    assert found.commands == ((PYTHON, "-P", "-m", "pip", "install", "--upgrade", *more, "memory-crystal"),)
