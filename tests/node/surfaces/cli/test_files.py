"""`crystal files`, `crystal trash` and `crystal open` on real homes at a real relay."""

import json
import random

from tests.support.machine import Machine, Vault, transcript
from tests.support.watchers import until, watchers

MIB = 1024 * 1024


def write(machine: Machine, path: str, content: bytes) -> None:
    file = machine.home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_bytes(content)


def status(machine: Machine) -> dict[str, object]:
    return machine.call("files", "status", "--json").json


def test_files_go_round_by_sync_and_status_tells_how_they_stand(vault: Vault) -> None:
    laptop = vault.add()
    write(vault.core, "agents/cc/notes.md", b"notes")
    write(laptop, "plan.md", b"a plan")
    (laptop.home / "link").symlink_to("plan.md")
    vault.settle()
    assert (laptop.home / "agents/cc/notes.md").read_bytes() == b"notes"
    assert (vault.core.home / "plan.md").read_bytes() == b"a plan"
    found = status(laptop)
    assert (found["tree"], found["synced"], found["waiting"], found["halted"]) == (2, 2, 0, None)
    assert found["refused"] == [
        {"path": "link", "why": "it is a link, which is never followed and never synced"}
    ]
    assert laptop.call("status", "--json").json["files"] == found
    assert "2 of 2 synced, 1 not synced" in laptop.call("status").out
    assert "link: it is a link" in laptop.call("files", "status").out
    assert len(vault.digests()) == 1


def test_one_byte_in_a_big_file_moves_a_few_parts_over_the_line_and_a_rename_none(vault: Vault) -> None:
    laptop = vault.add()
    data = bytearray(random.Random(3).randbytes(64 * MIB))
    write(vault.core, "big.bin", bytes(data))
    vault.settle()
    data[20 * MIB] ^= 1
    write(vault.core, "big.bin", bytes(data))
    up = vault.core.call("sync", "--json").json
    down = laptop.call("sync", "--json").json
    assert (laptop.home / "big.bin").read_bytes() == bytes(data)
    assert 0 < up["bytes_up"] < 12 * MIB
    assert 0 < down["bytes_down"] < 12 * MIB
    assert up["files"]["parts_put"] <= 3
    (vault.core.home / "big.bin").rename(vault.core.home / "renamed.bin")
    up = vault.core.call("sync", "--json").json
    down = laptop.call("sync", "--json").json
    assert (laptop.home / "renamed.bin").read_bytes() == bytes(data)
    assert not (laptop.home / "big.bin").exists()
    # The list of a thousand parts, no content.
    assert up["bytes_up"] < 128 * 1024
    assert down["bytes_down"] < 128 * 1024


def test_a_deleted_file_is_in_the_trash_until_it_is_restored_or_emptied(vault: Vault) -> None:
    laptop = vault.add()
    for name in ("one", "two"):
        write(vault.core, name, name.encode())
    vault.settle()
    (vault.core.home / "one").unlink()
    (vault.core.home / "two").unlink()
    vault.settle()
    listed = laptop.call("trash", "list", "--json").json["files"]
    assert sorted(item["path"] for item in listed) == ["one", "two"]
    assert laptop.call("trash", "restore", "one", "--json").json["restored"] == "one"
    assert laptop.call("trash", "restore", "one", check=False).code == 10
    vault.settle()
    assert (vault.core.home / "one").read_bytes() == b"one"
    assert laptop.call("trash", "empty", typed="no\n", check=False).code == 2
    assert laptop.call("trash", "empty", "--yes", "--json").json == {"deleted": 1}
    assert laptop.call("trash", "list", "--json").json["files"] == []
    assert not any((laptop.home / ".trash").iterdir())


def test_many_deletions_wait_until_they_are_confirmed_or_taken_back(vault: Vault) -> None:
    for number in range(30):
        write(vault.core, f"file-{number}", b"x%d" % number)
    vault.core.call("sync")
    for number in range(25):
        (vault.core.home / f"file-{number}").unlink()
    result = vault.core.call("sync")
    assert "25 deletions of files wait for `crystal files confirm`" in result.out
    assert status(vault.core)["synced"] == 5  # not those that wait: they are not here
    assert vault.core.call("files", "confirm", "--keep", "--json").json["kept"] == 25
    vault.core.call("sync")
    assert (vault.core.home / "file-7").read_bytes() == b"x7"
    for number in range(25):
        (vault.core.home / f"file-{number}").unlink()
    vault.core.call("sync")
    for typed in ("", "yes\n", "keep\n"):
        refused = vault.core.call("files", "confirm", typed=typed, check=False)
        assert refused.code == 2, "nobody deletes by looking"
        assert "25 files deleted on this device; everywhere else they would go to the trash" in refused.err
        assert "    file-0\n" in refused.err
        assert "    and 5 more" in refused.err
        assert "`crystal files confirm --keep`" in refused.err
    vault.core.call("sync")
    assert status(vault.core)["tree"] == 30
    assert vault.core.call("files", "confirm", "--json", typed="delete\n").json["confirmed"] == 25
    vault.core.call("sync")
    assert status(vault.core)["tree"] == 5
    assert vault.core.call("files", "confirm", "--yes", "--json").json["confirmed"] == 0


def test_what_a_person_excludes_stays_where_it_is_and_comes_when_included_again(vault: Vault) -> None:
    laptop = vault.add()
    assert laptop.call("files", "exclude", "cache/**", "--json").json == {"rules": ["-cache/**"]}
    write(vault.core, "cache/deep/one", b"1")
    write(laptop, "cache/mine", b"2")
    vault.settle()
    assert not (laptop.home / "cache/deep").exists()
    assert not (vault.core.home / "cache/mine").exists()
    laptop.call("files", "include", "cache/**")
    vault.settle()
    assert (laptop.home / "cache/deep/one").read_bytes() == b"1"
    assert (vault.core.home / "cache/mine").read_bytes() == b"2"
    assert laptop.call("files", "exclude", "../outside", check=False).code == 2


def test_a_home_that_lost_its_marker_says_so_and_is_adopted(vault: Vault) -> None:
    write(vault.core, "plan.md", b"a plan")
    vault.core.call("sync")
    (vault.core.home / ".crystal-root").unlink()
    (vault.core.home / "plan.md").unlink()
    assert "root marker is missing" in vault.core.call("sync").out
    assert "root marker is missing" in vault.core.call("status").out
    assert "crystal files adopt" in vault.core.call("files", "status").out
    vault.core.call("files", "adopt")
    vault.core.call("sync")
    assert (vault.core.home / "plan.md").read_bytes() == b"a plan"


def test_a_conversation_opens_on_a_machine_where_it_never_took_place_and_offline(vault: Vault) -> None:
    laptop = vault.add()
    transcript(laptop, "What is the retry budget?", "It is eleven attempts.", "Thanks, noted.")
    transcript(laptop, "Of something else entirely.", name="other")
    laptop.call("capture")
    pending = laptop.call("search", "--json", "eleven attempts").json["results"][0]["id"]
    assert laptop.call("open", pending, "--json").json["pieces"][1]["provisional"]
    vault.settle()
    hit = vault.core.call("search", "--json", "eleven attempts").json["results"][0]["id"]
    vault.relay.stop()
    try:
        found = vault.core.call("open", hit[:8], "--json").json
        text = vault.core.call("open", hit[:12], "--around", "1").out
    finally:
        vault.relay.start()
    assert [piece["text"] for piece in found["pieces"]] == [
        "What is the retry budget?",
        "It is eleven attempts.",
        "Thanks, noted.",
    ]
    assert [piece["hit"] for piece in found["pieces"]] == [False, True, False]
    assert found["session"] == "session"
    assert {piece["device_name"] for piece in found["pieces"]} == {
        laptop.call("status", "--json").json["name"]
    }
    assert "> 2026-01-05 09:00:00  user on " in text
    assert "Of something else" not in json.dumps(found) + text
    assert vault.core.call("open", "0" * 16, check=False).code == 10


def test_watchers_carry_files_as_they_change(vault: Vault) -> None:
    laptop = vault.add()
    with watchers(vault.core, laptop):
        write(vault.core, "notes/plan.md", b"a plan")
        until((laptop.home / "notes/plan.md").exists, "the file")
        write(laptop, "notes/plan.md", b"a better plan")
        until(lambda: (vault.core.home / "notes/plan.md").read_bytes() == b"a better plan", "the edit")
        (vault.core.home / "notes/plan.md").unlink()
        until(lambda: not (laptop.home / "notes/plan.md").exists(), "the deletion")
    assert [item["path"] for item in laptop.call("trash", "list", "--json").json["files"]] == [
        "notes/plan.md"
    ]


def test_what_programs_obey_waits_for_a_person_of_the_receiving_device(vault: Vault) -> None:
    laptop = vault.add()
    vault.core.call("files", "allow", ".envrc")
    vault.core.call("files", "allow", "work/.vscode")
    write(vault.core, "work/.envrc", b"export A=b")
    write(vault.core, "work/.vscode/tasks.json", b"{}")
    write(vault.core, "work/.vscode/settings.json", b"{}")
    write(vault.core, "tool.sh", b"#!/bin/sh\n")
    (vault.core.home / "tool.sh").chmod(0o700)
    write(laptop, "CLAUDE.md", b"obey")
    vault.settle()
    found = status(laptop)
    assert found["held"] == [
        {"path": "work/.envrc", "files": 1, "allow": "crystal files allow work/.envrc"},
        {"path": "work/.vscode", "files": 2, "allow": "crystal files allow work/.vscode"},
    ]
    assert found["without_execute_bit"] == ["tool.sh"]
    assert found["tree"] == 4
    assert not (laptop.home / "work").exists()
    shown = laptop.call("files", "status").out
    assert "work/.vscode (2 files): `crystal files allow work/.vscode`" in shown
    assert (
        "CLAUDE.md: programs execute or obey what has such a name; `crystal files allow CLAUDE.md`" in shown
    )
    assert "tool.sh" in shown
    assert "3 held back" in laptop.call("status").out
    laptop.call("sync", "--json")
    assert status(laptop)["held"] == found["held"]
    assert laptop.call("files", "allow", "./work/.vscode/", "--json").json == {"allowed": ["work/.vscode"]}
    laptop.call("sync")
    assert (laptop.home / "work/.vscode/tasks.json").read_bytes() == b"{}"
    assert [each["path"] for each in laptop.call("files", "status", "--json").json["held"]] == ["work/.envrc"]
    assert laptop.call("files", "deny", "work/.vscode", "--json").json == {"allowed": []}
    write(vault.core, "work/.vscode/tasks.json", b'{"run": 1}')
    vault.settle()
    assert (laptop.home / "work/.vscode/tasks.json").read_bytes() == b"{}"
    assert len(vault.digests()) == 1


def test_only_a_name_that_is_held_back_can_be_allowed(vault: Vault) -> None:
    write(vault.core, "notes/plan.md", b"a plan")
    for name in ("notes", "notes/plan.md", "Makefile", "*", "**/.git", "../.git", "/etc/.git"):
        outcome = vault.core.call("files", "allow", name, check=False)
        assert outcome.code == 2, name
    assert vault.core.call("files", "deny", ".git", check=False).code == 10
    for part in ("HEAD", "objects/x", "refs/x", "config"):
        write(vault.core, f"work.git/{part}", b"x")
    vault.settle()
    assert status(vault.core)["tree"] == 1
    assert vault.core.call("files", "allow", "work.git", "--json").json == {"allowed": ["work.git"]}
    vault.settle()
    assert status(vault.core)["tree"] == 5
