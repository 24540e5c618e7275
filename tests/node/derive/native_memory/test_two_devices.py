"""Two devices and the files of their AI tools, over a real relay: what travels, and what stays."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from crystal_node.derive.native_memory.replicated_text import is_mark
from tests.support.machine import Machine, Vault
from tests.support.workbench import quick_folder

TOOL_FILES = {
    "claude-code": ".claude/CLAUDE.md",
    "codex": ".codex/AGENTS.md",
    "gemini-cli": ".gemini/GEMINI.md",
    "qwen-code": ".qwen/QWEN.md",
}
REMOTE = '[remote "origin"]\n\turl = https://example.org/me/shop.git\n'


@pytest.fixture
def laptop(vault: Vault) -> Machine:
    node = vault.add()
    vault.settle()
    return node


def write(machine: Machine, name: str, *lines: str) -> Path:
    path = machine.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines))
    return path


def read(machine: Machine, name: str) -> list[str]:
    return (machine.root / name).read_text().splitlines()


def words(machine: Machine, name: str) -> list[str]:
    return [line for line in read(machine, name) if line and not is_mark(line)]


def turn_on(*machines: Machine) -> None:
    for machine in machines:
        machine.call("native", "on", "--yes", "--json")


def settle(vault: Vault) -> None:
    for _ in range(2):
        for machine in vault.machines:
            machine.call("native", "sync", "--json")
        vault.settle()
    for machine in vault.machines:
        machine.call("native", "sync", "--json")


def status(machine: Machine, name: str) -> dict[str, Any]:
    files = machine.call("native", "status", "--json").json["files"]
    found: dict[str, Any] = next(each for each in files if each["path"] == str(machine.root / name))
    return found


def project(machine: Machine, folder: str, *, remote: bool = True) -> str:
    """A project that Claude Code knows on this machine; the folder of its memory."""
    place = machine.root / folder
    (place / ".git").mkdir(parents=True)
    (place / ".git" / "config").write_text(REMOTE if remote else "")
    slug = "".join(char if char.isalnum() else "-" for char in str(place))
    record = {
        "type": "user",
        "uuid": "1",
        "sessionId": "s",
        "cwd": str(place),
        "timestamp": "2026-03-01T10:00:00Z",
        "message": {"role": "user", "content": f"Hello from {folder}."},
    }
    write(machine, f".claude/projects/{slug}/s.jsonl", json.dumps(record))
    machine.call("capture", "--json")
    return f".claude/projects/{slug}/memory"


def test_nothing_is_touched_until_a_person_turns_it_on_on_both_devices(vault: Vault, laptop: Machine) -> None:
    core = vault.core
    write(core, ".claude/CLAUDE.md", "# Mine", "- of the core")
    write(laptop, ".claude/CLAUDE.md", "# Mine", "- of the laptop")
    settle(vault)
    assert not (core.home / "native").exists()
    turn_on(core)
    settle(vault)
    assert (laptop.home / "native").is_dir()
    assert read(laptop, ".claude/CLAUDE.md") == ["# Mine", "- of the laptop"]
    assert read(core, ".claude/CLAUDE.md") == ["# Mine", "- of the core"]


def test_turning_it_on_warns_and_needs_a_yes(vault: Vault) -> None:
    refused = vault.core.call("native", "on", "codex", typed="no\n", check=False)
    assert refused.code == 2
    assert "obey these files" in refused.err
    assert vault.core.call("native", "status", "--json").json["tools"] == []
    vault.core.call("native", "on", "codex", typed="yes\n")
    assert vault.core.call("native", "status", "--json").json["tools"] == ["codex"]


@pytest.mark.parametrize("tool", TOOL_FILES)
def test_each_tools_file_for_the_person_is_kept_in_step(vault: Vault, laptop: Machine, tool: str) -> None:
    name = TOOL_FILES[tool]
    write(vault.core, name, "# How I work", "- tabs", "- tests first")
    (laptop.root / name).parent.mkdir(parents=True, exist_ok=True)
    for machine in vault.machines:
        machine.call("native", "on", tool, "--yes", "--json")
    settle(vault)
    assert read(laptop, name) == ["# How I work", "- tabs", "- tests first"]
    write(laptop, name, "# How I work", "- spaces", "- tests first", "", "# Names", "- British")
    settle(vault)
    assert read(vault.core, name) == ["# How I work", "- spaces", "- tests first", "", "# Names", "- British"]


def test_two_files_that_began_apart_are_put_together_by_section_and_the_first_is_kept_aside(
    vault: Vault, laptop: Machine
) -> None:
    name = ".claude/CLAUDE.md"
    mine = ["# Style", "", "- tabs", "- short names", "", "# Git", "", "- small commits"]
    write(vault.core, name, *mine)
    write(laptop, name, "# Style", "", "- tabs", "- no jargon", "", "# Mail", "", "- never send")
    turn_on(*vault.machines)
    settle(vault)
    assert read(vault.core, name) == read(laptop, name)
    found = words(laptop, name)
    assert sorted(found) == sorted(
        [line for line in mine if line] + ["- no jargon", "# Mail", "- never send"]
    )
    style = found[found.index("# Style") + 1 :]
    following = next(index for index, line in enumerate(style) if line.startswith("# "))
    assert sorted(style[:following]) == ["- no jargon", "- short names", "- tabs"]
    (kept,) = (vault.core.home / "state" / "native-memory").glob("*.original")
    assert kept.read_text().splitlines() == mine


def test_a_line_changed_on_both_is_kept_twice_noted_and_settled_by_deleting_the_note(
    vault: Vault, laptop: Machine
) -> None:
    name = ".claude/CLAUDE.md"
    write(vault.core, name, "# Style", "- indent by 2", "- end")
    (laptop.root / ".claude").mkdir(exist_ok=True)
    turn_on(*vault.machines)
    settle(vault)
    write(vault.core, name, "# Style", "- indent by 4", "- end")
    write(laptop, name, "# Style", "- indent by tabs", "- end")
    settle(vault)
    assert sorted(words(laptop, name)) == ["# Style", "- end", "- indent by 4", "- indent by tabs"]
    marks = [line for line in read(laptop, name) if is_mark(line)]
    assert len(marks) == 1
    assert marks[0].endswith("-->")
    (conflict,) = status(laptop, name)["conflicts"]
    assert sorted(conflict["texts"]) == ["- indent by 4", "- indent by tabs"]
    assert len(conflict["devices"]) == 2
    assert read(laptop, name)[conflict["line"] - 1] == conflict["texts"][0]
    write(laptop, name, "# Style", "- indent by 4", "- end")
    settle(vault)
    for machine in vault.machines:
        assert read(machine, name) == ["# Style", "- indent by 4", "- end"]
        assert status(machine, name)["conflicts"] == []


def test_a_cut_off_device_brings_nothing_back_and_loses_nothing(vault: Vault, laptop: Machine) -> None:
    name = ".codex/AGENTS.md"
    write(vault.core, name, "# Old", "- one", "- two", "", "# Stays", "- three")
    (laptop.root / ".codex").mkdir()
    turn_on(*vault.machines)
    settle(vault)
    write(vault.core, name, "# Stays", "- three")
    vault.core.call("native", "sync", "--json")
    vault.core.call("sync", "--json")
    write(laptop, name, "# Old", "- one", "- two", "", "# Stays", "- three", "- written far away")
    settle(vault)
    assert read(vault.core, name) == read(laptop, name)
    assert words(laptop, name) == ["# Stays", "- three", "- written far away"]


def test_a_section_that_one_device_removed_and_another_wrote_in_stays_with_that_line(
    vault: Vault, laptop: Machine
) -> None:
    name = ".codex/AGENTS.md"
    write(vault.core, name, "# First", "- one", "# Second", "- two")
    (laptop.root / ".codex").mkdir()
    turn_on(*vault.machines)
    settle(vault)
    write(vault.core, name, "# First", "- one")
    write(laptop, name, "# First", "- one", "# Second", "- two", "- new")
    settle(vault)
    assert words(vault.core, name) == words(laptop, name) == ["# First", "- one", "# Second", "- new"]
    assert status(laptop, name)["conflicts"][0]["removed_heading"]
    # A person who deletes the note keeps the heading.
    write(laptop, name, "# First", "- one", "# Second", "- new")
    settle(vault)
    assert read(vault.core, name) == ["# First", "- one", "# Second", "- new"]
    assert status(vault.core, name)["conflicts"] == []


def test_a_projects_memory_is_found_by_its_repository_under_another_path(
    vault: Vault, laptop: Machine
) -> None:
    here, there = project(vault.core, "code/shop"), project(laptop, "code/shop")
    assert here != there
    write(vault.core, f"{here}/MEMORY.md", "# Shop", "- [prices](prices.md)")
    write(vault.core, f"{here}/prices.md", "Prices are in cents.")
    turn_on(*vault.machines)
    settle(vault)
    assert read(laptop, f"{there}/MEMORY.md") == ["# Shop", "- [prices](prices.md)"]
    assert read(laptop, f"{there}/prices.md") == ["Prices are in cents."]
    (laptop.root / there / "prices.md").unlink()
    settle(vault)
    assert not (vault.core.root / here / "prices.md").exists()
    assert read(vault.core, f"{here}/MEMORY.md") == ["# Shop", "- [prices](prices.md)"]


def test_a_main_file_that_is_missing_is_written_again_and_never_taken_for_removed(
    vault: Vault, laptop: Machine
) -> None:
    name = ".claude/CLAUDE.md"
    write(vault.core, name, "# Style", "- tabs")
    (laptop.root / ".claude").mkdir(exist_ok=True)
    turn_on(*vault.machines)
    settle(vault)
    (laptop.root / name).unlink()
    settle(vault)
    assert read(vault.core, name) == read(laptop, name) == ["# Style", "- tabs"]


def test_what_is_private_secret_or_excluded_does_not_leave_the_device(vault: Vault, laptop: Machine) -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    folder = project(vault.core, "work/diary")
    vault.core.call("capture", "exclude", str(vault.core.root / "work/diary"))
    write(vault.core, f"{folder}/MEMORY.md", "Dear diary.")
    name = ".claude/CLAUDE.md"
    mine = ["# Keys", f"- the token is {token}", "<private>", "- my own affair", "</private>", "- for all"]
    write(vault.core, name, *mine)
    (laptop.root / ".claude").mkdir(exist_ok=True)
    turn_on(*vault.machines)
    settle(vault)
    assert read(vault.core, name) == mine
    assert words(laptop, name) == ["# Keys", "- for all"]
    copies = b"".join(path.read_bytes() for path in vault.core.home.glob("native/*/*.json"))
    assert b"for all" in copies
    for secret in (token, "my own affair", "Dear diary"):
        assert secret.encode() not in copies
    assert status(vault.core, name)["lines_of_this_device_alone"] == 4
    write(laptop, name, "# Keys", "- for all", "- from the laptop")
    settle(vault)
    assert [line for line in read(vault.core, name) if line not in mine] == ["- from the laptop"]
    assert [line for line in read(vault.core, name) if line in mine] == mine


def test_private_mode_takes_and_gives_nothing(vault: Vault, laptop: Machine) -> None:
    name = ".claude/CLAUDE.md"
    write(vault.core, name, "- before")
    (laptop.root / ".claude").mkdir(exist_ok=True)
    turn_on(*vault.machines)
    vault.core.call("private", "on")
    write(vault.core, name, "- before", "- while private")
    settle(vault)
    assert words(laptop, name) == ["- before"]


def test_what_would_be_over_a_tools_cap_stays_in_the_vault_and_is_said(vault: Vault, laptop: Machine) -> None:
    here, there = project(vault.core, "code/shop"), project(laptop, "code/shop")
    write(vault.core, f"{here}/MEMORY.md", *(f"- core {number}" for number in range(150)))
    write(laptop, f"{there}/MEMORY.md", *(f"- laptop {number}" for number in range(100)))
    turn_on(*vault.machines)
    settle(vault)
    for machine, folder, count in ((vault.core, here, 150), (laptop, there, 100)):
        found = status(machine, f"{folder}/MEMORY.md")
        assert found["state"] == "held"
        assert "250 lines, and the tool reads 200" in found["reason"]
        assert len(read(machine, f"{folder}/MEMORY.md")) == count
    write(laptop, f"{there}/MEMORY.md", *(f"- laptop {number}" for number in range(20)))
    settle(vault)
    assert len(read(vault.core, f"{here}/MEMORY.md")) == 170
    assert sorted(read(laptop, f"{there}/MEMORY.md")) == sorted(read(vault.core, f"{here}/MEMORY.md"))


def test_links_modes_and_line_ends_stay(vault: Vault, laptop: Machine) -> None:
    dotfiles = write(vault.core, "dotfiles/claude.md", "- mine")
    dotfiles.write_bytes(b"- mine\r\n- two\r\n")
    dotfiles.chmod(0o640)
    (vault.core.root / ".claude").mkdir(exist_ok=True)
    link = vault.core.root / ".claude" / "CLAUDE.md"
    link.symlink_to(dotfiles)
    codex = vault.core.root / ".codex"
    codex.mkdir()
    (codex / "AGENTS.md").symlink_to(dotfiles)
    (laptop.root / ".claude").mkdir(exist_ok=True)
    turn_on(*vault.machines)
    settle(vault)
    write(laptop, ".claude/CLAUDE.md", "- mine", "- two", "- three")
    settle(vault)
    assert link.is_symlink()
    assert dotfiles.read_bytes() == b"- mine\r\n- two\r\n- three\r\n"
    assert dotfiles.stat().st_mode & 0o777 == 0o640
    assert "same file" in status(vault.core, ".codex/AGENTS.md")["reason"]


@pytest.mark.parametrize("how", ["read-only", "no text", "dangling link", "hard link", "links in a circle"])
def test_a_file_that_cannot_be_kept_in_step_is_left_alone_and_said(vault: Vault, how: str) -> None:
    path = write(vault.core, ".claude/CLAUDE.md", "- mine")
    if how == "read-only":
        path.chmod(0o400)
    elif how == "no text":
        path.write_bytes(b"\xff\xfe\x00")
    elif how == "links in a circle":
        path.unlink()
        path.symlink_to(path.with_name("other.md"))
        path.with_name("other.md").symlink_to(path)
    elif how == "hard link":
        os.link(path, path.with_name("other.md"))
    else:
        path.unlink()
        path.symlink_to(path.with_name("nowhere.md"))
    turn_on(vault.core)
    found = status(vault.core, ".claude/CLAUDE.md")
    assert found["state"] == "held"
    assert found["reason"]


def test_off_leaves_the_files_as_they_are(vault: Vault, laptop: Machine) -> None:
    name = ".claude/CLAUDE.md"
    write(vault.core, name, "- mine")
    (laptop.root / ".claude").mkdir(exist_ok=True)
    turn_on(*vault.machines)
    settle(vault)
    laptop.call("native", "off", "--json")
    write(vault.core, name, "- mine", "- more")
    settle(vault)
    assert read(laptop, name) == ["- mine"]
    assert "stay as they are" in laptop.call("native", "off").out


def test_a_copy_that_another_device_damaged_is_left_out_and_said(vault: Vault) -> None:
    name = ".claude/CLAUDE.md"
    write(vault.core, name, "- mine")
    turn_on(vault.core)
    (own,) = vault.core.home.glob("native/*/*.json")
    own.with_name("a" * 32 + ".json").write_text("{")
    (own.with_name("b" * 32 + ".json")).write_text(own.read_text().replace('"seen":{', '"seen":{"EVIL..":1,'))
    own.with_name("c" * 32 + ".json").mkdir()
    vault.core.call("native", "sync", "--json")
    assert len(status(vault.core, name)["problems"]) == 3
    assert read(vault.core, name) == ["- mine"]


def test_killed_at_any_step_the_next_run_has_every_line_once(vault: Vault, laptop: Machine) -> None:
    name = ".claude/CLAUDE.md"
    write(vault.core, name, "# Style", "- tabs")
    (laptop.root / ".claude").mkdir(exist_ok=True)
    turn_on(*vault.machines)
    settle(vault)
    write(vault.core, name, "# Style", "- tabs", "- from there")
    vault.core.call("native", "sync", "--json")
    vault.settle()
    write(laptop, name, "# Style", "- from here", "- tabs")
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        result = subprocess.run(
            [sys.executable, "-m", "tests.node.derive.native_memory.killed_runs", folder, str(laptop.root)],
            capture_output=True,
            encoding="utf-8",
            timeout=110,
            check=False,
        )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 10


def test_taking_crystal_down_leaves_the_files_and_says_so(vault: Vault) -> None:
    path = write(vault.core, ".claude/CLAUDE.md", "- mine")
    turn_on(vault.core)
    assert "Memory files of AI tools stay as they are" in vault.core.call("down").out
    assert "Memory files of AI tools stay as they are" in vault.core.call("uninstall").out
    assert path.read_text() == "- mine\n"


def test_a_line_that_the_other_devices_would_refuse_is_said(vault: Vault) -> None:
    desktop = vault.core
    write(desktop, TOOL_FILES["codex"], "Short.", "x" * 100_001)
    turn_on(desktop)
    found = status(desktop, TOOL_FILES["codex"])
    assert found["state"] == "held"
    assert found["reason"] == "its line 2 has more than 100,000 characters"
    assert not list((desktop.home / "native").glob("*/*.json"))


@pytest.mark.parametrize("padding", [0, 600_000], ids=["short", "long"])
def test_a_session_of_another_machines_path_does_not_hide_its_project(
    vault: Vault, laptop: Machine, padding: int
) -> None:
    desktop = vault.core
    memory = project(desktop, "src/shop")
    resumed = (desktop.root / memory).parent / "resumed.jsonl"
    elsewhere = {"type": "user", "cwd": "/Users/me/elsewhere/shop", "more": "x" * padding}
    here = {"type": "user", "cwd": str(desktop.root / "src/shop")}
    resumed.write_text(f"{json.dumps(elsewhere)}\n{json.dumps(here)}\n")
    for other in resumed.parent.glob("*.jsonl"):
        if other != resumed:
            other.unlink()
    write(desktop, f"{memory}/MEMORY.md", "The tides are in the almanac.")
    turn_on(desktop)
    assert status(desktop, f"{memory}/MEMORY.md")["state"] == "in-step"
