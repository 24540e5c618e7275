"""Uninstalling leaves nothing of ours behind and touches nothing of others; the home goes only from who knows the price."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from crystal_node.base.home import Home
from crystal_node.base.locking import is_held
from crystal_node.surfaces.setup.removal import left_over, mark_of
from tests.support.machine import Machine, Vault, transcript
from tests.support.user_manager import with_manager

_OTHER = {"type": "stdio", "command": "npx", "args": ["crystal", "mcp"]}
_OURS: dict[str, Any] = {"type": "stdio", "command": "/opt/bin/crystal", "args": ["mcp"], "env": {}}


@pytest.fixture
def person(vault: Vault) -> Machine:
    """A Core whose recovery kit was typed back, and that owes nothing."""
    _verify_kit(vault.core)
    vault.core.call("sync")
    return vault.core


def _verify_kit(machine: Machine) -> None:
    machine.call("recovery", "verify", typed=machine.call("recovery", "show", "--yes").out)


def _mcp(machine: Machine, value: object) -> Path:
    path = machine.root / ".claude.json"
    path.write_text(json.dumps(value, indent=2))
    return path


def test_nothing_of_ours_is_left_in_other_programs_and_the_home_stays(person: Machine) -> None:
    manager = with_manager(person)
    (person.root / ".claude").mkdir()
    try:
        person.call("up", "--json")
        assert len(manager.running()) == 1
        path = _mcp(person, {"numStartups": 3, "mcpServers": {"crystal": _OURS, "other": _OTHER}})
        steps = person.call("uninstall", "--json").json["steps"]
        assert {step["name"]: step["state"] for step in steps} == {
            "service": "done",
            "agent": "was-so",
            "hooks": "done",
            "mcp": "done",
        }
        assert manager.running() == []
    finally:
        manager.stop_all()
    assert json.loads(path.read_text()) == {"numStartups": 3, "mcpServers": {"other": _OTHER}}
    assert list((person.root / ".claude").iterdir()) == []
    assert [path for path in (person.root / ".config").rglob("*") if not path.is_dir()] == []
    assert person.call("status", "--json").json["role"] == "core"
    assert {step["state"] for step in person.call("uninstall", "--json").json["steps"]} == {"was-so"}


@pytest.mark.parametrize(
    "entry",
    [
        _OTHER,
        {"command": "crystal", "args": ["serve-something"]},
        {"command": "/opt/other-crystal", "args": ["mcp"]},
        {"type": "http", "url": "http://127.0.0.1:1"},
        _OURS | {"env": {"CRYSTAL_HOME": "/another/home"}},
        _OURS | {"env": {"CRYSTAL_HOME": "~nobody/x"}},
        {"command": ["crystal"], "args": "mcp", "env": 3},
    ],
)
def test_an_mcp_server_of_that_name_that_is_not_ours_stays(machine: Machine, entry: dict[str, Any]) -> None:
    path = _mcp(
        machine, {"mcpServers": {"crystal": entry}, "projects": {"/p": {"mcpServers": {"crystal": _OURS}}}}
    )
    assert machine.call("uninstall", "--json").json["steps"][-1]["state"] == "done"
    assert json.loads(path.read_text()) == {
        "mcpServers": {"crystal": entry},
        "projects": {"/p": {"mcpServers": {}}},
    }


def test_a_damaged_file_is_told_left_alone_and_keeps_the_home(person: Machine) -> None:
    (person.root / ".claude.json").write_text('{"mcpServers": {"crystal": ')
    outcome = person.call("uninstall", "--purge", "--yes", "--json", check=False)
    assert (outcome.code, outcome.json["purged"]) == (8, False)
    assert person.home.is_dir()


def test_what_no_other_device_has_keeps_the_home(vault: Vault) -> None:
    transcript(vault.core, "Only here.")
    vault.core.call("capture")
    (vault.core.home / "notes.md").write_text("A file that was not shared.")
    refused = vault.core.call("uninstall", "--purge", "--yes", "--json", check=False)
    assert refused.code == 2
    for what in ("1 change", "1 file", "recovery kit"):
        assert what in refused.error["error"]
    assert vault.core.found("only here") == ["Only here."]
    about = vault.core.run("uninstall", "--purge", "--yes-lose-it", typed="no\n", check=False)
    assert about.code == 2
    assert about.err.count("LOST FOR GOOD") == 3
    assert vault.core.home.is_dir()


def test_a_purge_is_confirmed_by_a_typed_word_and_leaves_nothing(person: Machine) -> None:
    assert person.run("uninstall", "--purge", typed="yes\n", check=False).code == 2
    assert person.home.is_dir()
    done = person.run("uninstall", "--purge", typed="remove\n")
    assert "Core" in done.err
    assert not person.home.exists()
    assert [path.name for path in person.root.iterdir() if path.name.startswith(".ldm")] == []
    again = person.call("uninstall", "--purge", "--yes", "--json").json
    assert {step["state"] for step in again["steps"]} == {"was-so"}


def test_a_node_that_is_purged_is_named_to_those_who_list_it(vault: Vault) -> None:
    node = vault.add()
    node.call("sync")
    device = node.call("status", "--json").json["device"]
    done = node.run("uninstall", "--purge", "--yes")
    assert f"crystal devices revoke {device[:8]}" in done.out
    vault.core.call("sync")
    listed = [entry["id"] for entry in vault.core.call("devices", "--json").json["devices"]]
    assert device in listed


def test_a_purge_that_was_killed_half_way_goes_on(person: Machine) -> None:
    aside = left_over(Home(person.home))
    mark_of(aside).touch()
    person.home.rename(aside)
    (aside / "memory" / "crystal.db").unlink()
    person.call("uninstall", "--purge", "--yes")
    assert not aside.exists()
    assert not mark_of(aside).exists()


def test_a_folder_beside_the_home_that_is_somebodys_own_stays(person: Machine) -> None:
    aside = left_over(Home(person.home))
    aside.mkdir()
    (aside / "thesis.txt").write_text("mine")
    assert "in the way" in person.call("uninstall", "--purge", "--yes", check=False).err
    assert person.home.is_dir()
    person.home.rename(person.root / "elsewhere")
    person.call("uninstall", "--purge", "--yes", check=False)
    assert (aside / "thesis.txt").read_text() == "mine"


def test_a_link_to_the_home_goes_with_it_and_links_in_it_lead_nowhere_else(person: Machine) -> None:
    outside = person.root / "outside"
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    real = person.root / "disk" / "memory-home"
    real.parent.mkdir()
    person.home.rename(real)
    person.home.symlink_to(real)
    (real / "logs" / "link").symlink_to(outside)
    person.call("uninstall", "--purge", "--yes")
    assert not person.home.is_symlink()
    assert not real.exists()
    assert (outside / "kept.txt").read_text() == "kept"


def test_what_is_no_crystal_home_is_never_removed(machine: Machine) -> None:
    (machine.root / "precious").mkdir()
    for home in (machine.root, machine.root / "precious", machine.root.parent):
        refused = machine.call(
            "uninstall", "--purge", "--yes-lose-it", "--yes", check=False, CRYSTAL_HOME=str(home)
        )
        assert refused.code == 2
    assert (machine.root / "precious").is_dir()


def test_a_home_that_somebody_works_in_stays(person: Machine) -> None:
    watcher = person.start("sync", "--watch", "--json")
    try:
        deadline = time.monotonic() + 30
        while not is_held(person.home / "state" / "watch.lock"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        outcome = person.call("uninstall", "--purge", "--yes", "--json", check=False)
        assert outcome.code == 9
        assert person.home.is_dir()
    finally:
        watcher.terminate()
        watcher.communicate(timeout=60)


def test_keys_in_a_keyring_go_too(person: Machine, tmp_path: Path) -> None:
    kept = tmp_path / "keyring.json"
    person.extra |= {
        "PYTHON_KEYRING_BACKEND": "tests.support.kept_keyring.Keyring",
        "KEPT_KEYRING": str(kept),
    }
    person.call("keys", "move", "--to", "keyring")
    assert json.loads(kept.read_text()) != {}
    person.call("uninstall", "--purge", "--yes")
    assert json.loads(kept.read_text()) == {}


def test_where_there_is_no_home_no_memory_is_said_to_stay(machine: Machine) -> None:
    for verb in ("down", "uninstall"):
        told = machine.call(verb).out
        assert f"no home {machine.home}" in told
        assert "memory" not in told
        assert "stays" not in told
    assert not machine.home.exists()
