"""What a person does with sources, on several devices; and what a killed process leaves."""

import signal
import time
from pathlib import Path

import pytest

from crystal_node.base.home import Home
from crystal_node.base.locking import FileLock
from crystal_node.derive.sources.service import sync_sources
from tests.support.machine import Machine, Vault
from tests.support.recovery import kit_of

FOX = "# Animals\n\nThe arctic fox changes its coat in October.\n"
CODE = "def retry_budget():\n    return 'eleven attempts'\n"


def notes(machine: Machine, **files: str) -> Path:
    root = machine.root / "notes"
    root.mkdir(exist_ok=True)
    for name, text in files.items():
        (root / name.replace("_", ".")).write_text(text)
    return root


def test_a_folder_is_read_when_it_is_added(vault: Vault) -> None:
    core = vault.core
    root = notes(core, animals_md=FOX, budget_py=CODE)
    told = core.call("sources", "add", str(root))
    assert "2 new, 0 changed, 0 removed" in told.out
    assert core.found("arctic fox")[0] == FOX.strip()
    (root / "animals.md").write_text(FOX.replace("October", "November"))
    again = core.call("sources", "add", str(root), "--exclude", "*.py", "--json").json
    assert (again["changed"], again["synced"]["changed"], again["synced"]["removed"]) == (True, 1, 1)
    later = core.call("sources", "add", "--later", str(root), "--json").json
    assert later["synced"] is None


def test_a_folder_that_is_added_while_others_are_read_waits_its_turn(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = vault.core
    root = notes(core, animals_md=FOX)
    assert sync_sources.__kwdefaults__ is not None
    monkeypatch.setitem(sync_sources.__kwdefaults__, "wait_seconds", 0.1)
    with FileLock(Home(core.home).sources_lock, purpose="reading sources"):
        told = core.call("sources", "add", str(root))
    assert "reads it next" in told.out
    assert core.call("sources", "sync", "--json").json["sources"][0]["new"] == 1


def test_a_folder_of_one_device_is_found_on_all_and_gone_from_all_when_it_is_removed(vault: Vault) -> None:
    laptop = vault.add()
    root = notes(laptop, animals_md=FOX, budget_py=CODE)
    (root / "secret.env").write_text("PASSWORD=hunter2hunter2")
    added = laptop.call("sources", "add", "--later", str(root), "--name", "notes", "--json").json
    assert (added["name"], added["path"], added["changed"]) == ("notes", str(root), False)
    (synced,) = laptop.call("sources", "sync", "--json").json["sources"]
    assert (synced["new"], synced["skipped"]) == (2, {"secret": 1})
    assert laptop.found("arctic fox")[0] == FOX.strip()
    vault.settle()
    assert len(vault.digests()) == 1
    assert vault.core.found("arctic fox")[0] == FOX.strip()
    (status,) = vault.core.call("sources", "status", "--json").json["sources"]
    assert (status["here"], status["documents"], status["path"], status["folder"]) == (
        False,
        2,
        None,
        "notes",
    )
    assert vault.core.call("sources", "sync", "--json").json["elsewhere"] == ["notes"]
    refused = vault.core.call("sources", "sync", "notes", "--json", check=False)
    assert refused.code == 2
    assert "its files are there" in refused.error["error"]

    (root / "animals.md").write_text(FOX.replace("October", "November"))
    laptop.call("sources", "sync", "notes")
    vault.settle()
    assert vault.core.found("arctic fox")[0] == FOX.replace("October", "November").strip()
    assert not any("October" in text for text in vault.core.found("arctic fox coat"))

    assert vault.core.call("sources", "remove", "notes", typed="no\n", check=False).code == 2
    removed = vault.core.call("sources", "remove", "notes", "--yes", "--json").json
    assert (removed["documents"], removed["here"]) == (2, False)
    vault.settle()
    assert len(vault.digests()) == 1
    for machine in vault.machines:
        assert machine.found("arctic fox") == []
    assert laptop.call("sources", "sync", "--json").json["sources"] == []
    assert (root / "animals.md").exists()


def test_a_name_of_another_device_is_taken_until_that_device_is_out(vault: Vault) -> None:
    laptop = vault.add()
    laptop.call("sources", "add", "--later", str(notes(laptop, animals_md=FOX)), "--name", "notes")
    laptop.call("sources", "sync")
    vault.settle()
    root = notes(vault.core, animals_md=FOX)
    refused = vault.core.call("sources", "add", "--later", str(root), "--name", "notes", check=False)
    assert refused.code == 2
    assert "already" in refused.err
    laptop_id = str(laptop.call("status", "--json").json["device"])
    vault.core.call("devices", "revoke", laptop_id, "--yes")
    vault.core.call("sources", "add", "--later", str(root), "--name", "notes")
    (synced,) = vault.core.call("sources", "sync", "--json").json["sources"]
    assert (synced["new"], synced["changed"], synced["removed"]) == (0, 0, 0), "it is there already"
    (status,) = vault.core.call("sources", "status", "--json").json["sources"]
    assert (status["here"], status["documents"]) == (True, 1)


def test_of_two_devices_that_take_one_name_at_once_one_keeps_it_and_the_other_is_told(vault: Vault) -> None:
    laptop = vault.add()
    folders = {
        "penguin": notes(vault.core, animals_md=FOX, core_md="The penguin is no fish."),
        "walrus": notes(laptop, animals_md=FOX, laptop_md="The walrus is no fish."),
    }
    for machine, folder in zip((vault.core, laptop), folders.values(), strict=True):
        machine.call("sources", "add", "--later", str(folder), "--name", "notes")
        machine.call("sources", "sync")
    vault.settle()
    (status,) = laptop.call("sources", "status", "--json").json["sources"]
    # Which of them is later in the log is theirs to settle; it is the same for all.
    animals = list(folders) if status["here"] else list(folders)[::-1]
    loser, keeper = (vault.core, laptop) if status["here"] else (laptop, vault.core)
    told = loser.call("sources", "sync").out
    assert f"has taken the name notes: {folders[animals[0]]} is not read any more" in told
    assert "has taken the name" not in loser.call("sources", "sync").out, "it is said once"
    assert keeper.call("sources", "sync", "--json").json["let_go"] == []
    vault.settle()
    for machine in (loser, keeper):
        (status,) = machine.call("sources", "status", "--json").json["sources"]
        assert (status["here"], status["documents"]) == (machine is keeper, 2)
        found = machine.found("is no fish", "--kind", "document")
        assert any(animals[1] in text for text in found)
        assert not any(animals[0] in text for text in found)


def test_a_text_of_a_source_that_is_forgotten_is_gone_everywhere(vault: Vault) -> None:
    root = notes(vault.core, animals_md=FOX)
    vault.core.call("sources", "add", "--later", str(root))
    vault.core.call("sources", "sync")
    vault.settle()
    (hit,) = vault.core.call("search", "--json", "arctic fox").json["results"]
    assert hit["kind"] == "document"
    assert hit["source"] == "notes"
    vault.core.call("forget", hit["id"])
    vault.core.call("sources", "sync")
    vault.settle()
    assert vault.core.found("arctic fox") == []
    (root / "animals.md").touch()
    vault.core.call("sources", "sync")
    vault.settle()
    assert vault.core.found("arctic fox") == []


def test_a_sync_that_is_killed_is_taken_up_and_nothing_is_doubled(vault: Vault) -> None:
    root = vault.core.root / "many"
    root.mkdir()
    for number in range(1500):
        (root / f"{number}.md").write_text(f"# Note {number}\n\n" + f"Reading {number} of the gauge. " * 20)
    vault.core.call("sources", "add", "--later", str(root))
    process = vault.core.start("sources", "sync")
    book = vault.core.home / "state" / "sources.db-wal"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if book.exists() and book.stat().st_size > 40_000:
            break
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    vault.core.call("sources", "sync")
    (again,) = vault.core.call("sources", "sync", "--json").json["sources"]
    assert (again["new"], again["changed"], again["removed"]) == (0, 0, 0)
    (status,) = vault.core.call("sources", "status", "--json").json["sources"]
    assert status["documents"] == 1500
    assert status["pieces"] == 1500


def test_what_is_missing_or_wrong_is_said(machine: Machine, vault: Vault, tmp_path: Path) -> None:
    core = vault.core
    assert machine.call("sources", "status", check=False).code == 3
    assert core.call("sources", "add", "--later", str(tmp_path / "nowhere"), check=False).code == 2
    assert core.call("sources", "add", "--later", str(core.home), check=False).code == 2
    assert "whole disk" in core.call("sources", "add", "--later", "/", check=False).err
    assert "say which of its commands" in core.call("sources", check=False).err
    assert core.call("sources", "sync", "nothing", check=False).code == 10
    assert core.call("sources", "remove", "nothing", "--yes", check=False).code == 10
    root = notes(core, animals_md=FOX)
    assert core.call("sources", "add", "--later", str(root), "--exclude", "#x", check=False).code == 2
    core.call("sources", "add", "--later", str(root))
    root.rename(root.with_name("away"))
    gone = core.call("sources", "sync", check=False)
    assert gone.code == 8
    assert "Nothing was removed" in gone.out


def test_private_mode_keeps_sources_unread(vault: Vault) -> None:
    vault.core.call("sources", "add", "--later", str(notes(vault.core, animals_md=FOX)))
    vault.core.call("private", "on")
    refused = vault.core.call("sources", "sync", check=False)
    assert refused.code == 2
    assert "private" in refused.err
    vault.core.call("private", "off")
    assert vault.core.call("sources", "sync", "--json").json["sources"][0]["new"] == 1


def test_the_duty_of_the_agent_reads_sources_and_is_not_due_without_any(vault: Vault) -> None:
    core = vault.core
    idle = core.call("jobs", "run", "sources", "--json").json
    assert "not due" in idle["said"]
    root = notes(core, animals_md=FOX)
    core.call("sources", "add", "--later", str(root))
    done = core.call("jobs", "run", "sources", "--json").json
    assert (done["by"], done["outcome"], done["said"]) == ("here", "done", "notes: 1 document put, 0 removed")
    assert core.call("jobs", "run", "sources", "--json").json["outcome"] == "nothing"
    assert core.found("arctic fox") == [FOX.strip()]


def test_adding_a_source_tells_which_secrets_it_leaves_out_and_reads_none_of_them(vault: Vault) -> None:
    machine = vault.core
    root = notes(machine, animals_md=FOX)
    hidden = "the green door behind the mill"
    names = (
        "client_secret_1.apps.googleusercontent.com.json",
        "github-recovery-codes.txt",
        "keys.kdbx",
        "wallet.dat",
    )
    for name in names:
        (root / name).write_text(hidden)
    for name in ("old-home", "deep/er/home"):
        (root / name / "memory").mkdir(parents=True)
        (root / name / ".crystal-root").write_text("{}")
        (root / name / "memory" / "note.md").write_text(hidden)
    kit = kit_of(machine)
    (root / "printed.md").write_text(f"# My kit\n\n{kit}\n")
    (root / "export.csv").write_text(f"name,url,username,password\nShop,https://shop,me,{hidden}\n")
    added = machine.call("sources", "add", "--later", str(root), "--name", "notes", "--json").json
    assert (added["files"], added["skipped"]) == (3, {"secret": 6})
    assert added["secrets"] == sorted((*names, "old-home/", "deep/er/home/"))
    told = machine.call("sources", "add", "--later", str(root), "--name", "notes", "--include", "*").out
    assert "6 files and folders left out as secrets by their names" in told
    assert "    keys.kdbx\n" in told
    (synced,) = machine.call("sources", "sync", "--json").json["sources"]
    assert (synced["new"], synced["skipped"]) == (1, {"secret": 6, "secret by what it holds": 2})
    assert sorted(synced["skipped_paths"]) == ["export.csv", "printed.md"]
    assert not machine.found("green door mill")
    assert machine.found("arctic fox")
    refused = machine.call("sources", "add", "--later", str(root / "old-home" / "memory"), check=False)
    assert refused.code == 2
    assert "home of Crystal" in refused.err
