"""Hooks come into Claude Code's settings and out again, and nothing of anybody else is touched."""

import json
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crystal_node.agent.hooks.program import program
from tests.support.machine import Machine

CLAUDE_RECALLS = ("SessionStart", "UserPromptSubmit", "PostToolUseFailure", "SubagentStart")
CLAUDE_EVENTS = (*CLAUDE_RECALLS, "Stop", "SessionEnd")
_FOREIGN: dict[str, Any] = {
    "model": "opus",
    "cleanupPeriodDays": 30,
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "say 'done – really'", "timeout": 30}]}],
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "crystal-clear nudge"}]}],
        "SessionEnd": [],
        "SessionStart": [{"matcher": "startup", "hooks": [{"type": "command", "command": "crystal status"}]}],
    },
}


@pytest.fixture
def person(machine: Machine) -> Machine:
    (machine.root / ".claude").mkdir()
    return machine


def _file(machine: Machine) -> Path:
    return machine.root / ".claude" / "settings.json"


def _write(machine: Machine, value: object, *, indent: int = 4) -> bytes:
    data = json.dumps(value, indent=indent, ensure_ascii=False).encode()
    _file(machine).write_bytes(data)
    return data


def _commands(machine: Machine) -> list[str]:
    hooks: dict[str, list[Any]] = json.loads(_file(machine).read_bytes())["hooks"]
    return [entry["command"] for groups in hooks.values() for group in groups for entry in group["hooks"]]


def _look(machine: Machine) -> dict[str, Any]:
    (found,) = machine.call("hooks", "status", "claude-code", "--json").json["tools"]
    return dict(found)


def _states(machine: Machine) -> set[str]:
    return set(_look(machine)["events"].values())


def test_hooks_are_absolute_quoted_and_a_session_waits_for_those_alone_that_recall(
    person: Machine,
) -> None:
    person.call("hooks", "install", CRYSTAL_HOME=str(person.root / "my home; $(true)"))
    hooks = json.loads(_file(person).read_bytes())["hooks"]
    assert set(hooks) == set(CLAUDE_EVENTS)
    for event, [group] in hooks.items():
        [entry] = group["hooks"]
        words = shlex.split(entry["command"])
        assert Path(words[0]).is_absolute()
        assert words[-4:] == ["--home", str(person.root / "my home; $(true)"), "||", "true"]
        assert (entry["type"], entry["timeout"]) == ("command", 1)
        recalls = event in CLAUDE_RECALLS
        if words[1:4] == ["-P", "-m", "crystal_node"]:  # where no `crystal` stands beside this Python
            del words[1:4]
        assert words[1:-4] == (["recall", "--hook"] if recalls else ["nudge"])
        assert entry.get("async", False) is not (recalls or event == "SessionEnd")


def test_installing_twice_changes_nothing_and_uninstalling_gives_the_bytes_back(person: Machine) -> None:
    before = _write(person, _FOREIGN)
    _file(person).chmod(0o640)
    assert person.call("hooks", "install", "--json").json["changed"] is True
    once = _file(person).read_bytes()
    assert person.call("hooks", "install", "--json").json["changed"] is False
    assert _file(person).read_bytes() == once
    assert _file(person).stat().st_mode & 0o777 == 0o640
    assert (person.root / ".claude" / "settings.json.before-crystal").read_bytes() == before
    looked = _look(person)
    assert (looked["installed"], looked["others"]) == (True, 3)
    person.call("hooks", "uninstall")
    after = json.loads(_file(person).read_bytes())
    assert after.items() >= {"model": "opus", "cleanupPeriodDays": 30}.items()
    assert {name: groups for name, groups in after["hooks"].items() if groups} == {
        name: groups for name, groups in _FOREIGN["hooks"].items() if groups
    }
    assert person.call("hooks", "uninstall", "--json").json["changed"] is False


def test_of_a_file_that_only_hooks_made_nothing_is_left(person: Machine) -> None:
    person.call("hooks", "install")
    assert _states(person) == {"installed"}
    person.call("hooks", "uninstall")
    assert list((person.root / ".claude").iterdir()) == []


def test_of_a_file_that_was_there_the_same_bytes_are_left_and_no_copy(person: Machine) -> None:
    before = _write(person, {"model": "opus", "hooks": {"Stop": _FOREIGN["hooks"]["Stop"]}})
    person.call("hooks", "install")
    person.call("hooks", "uninstall")
    assert _file(person).read_bytes() == before
    assert [path.name for path in (person.root / ".claude").iterdir()] == ["settings.json"]


def test_the_copy_goes_although_more_has_changed_than_hooks(person: Machine) -> None:
    _write(person, {"apiKeyHelper": "cat key"})
    person.call("hooks", "install")
    settings = json.loads(_file(person).read_bytes())
    changed = json.dumps(settings | {"model": "opus"}, indent=4).encode()
    _file(person).write_bytes(changed)
    person.call("hooks", "uninstall")
    assert json.loads(_file(person).read_bytes()) == {"apiKeyHelper": "cat key", "model": "opus"}
    assert [path.name for path in (person.root / ".claude").iterdir()] == ["settings.json"]


def test_a_copy_that_was_left_behind_goes_with_an_uninstall(person: Machine) -> None:
    left = [
        person.root / ".claude" / "settings.json.before-crystal",
        person.root / ".claude.json.before-crystal",
    ]
    for path in left:
        path.write_text('{"env": {"TOKEN": "of another program"}}')
    steps = {step["name"]: step["state"] for step in person.call("uninstall", "--json").json["steps"]}
    assert {steps["hooks"], steps["mcp"]} == {"done"}
    assert [path for path in left if path.exists()] == []


def test_a_hook_of_an_earlier_version_at_a_compaction_is_removed(person: Machine) -> None:
    person.call("hooks", "install")
    settings = json.loads(_file(person).read_bytes())
    foreign = {"hooks": [{"type": "command", "command": "mine"}]}
    settings["hooks"]["PreCompact"] = [settings["hooks"]["Stop"][0], foreign]
    _write(person, settings)
    assert _look(person)["installed"] is False
    assert person.call("hooks", "install", "--json").json["changed"] is True
    hooks = json.loads(_file(person).read_bytes())["hooks"]
    assert hooks["PreCompact"] == [foreign]
    assert set(hooks) == {"PreCompact", *CLAUDE_EVENTS}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"model": "opus",,}', "line 1, column"),
        ("[]", "no object"),
        ('{"hooks": []}', '"hooks" is no object'),
        ('{"hooks":\n {"Stop": "x"}}', "line 2, column 11"),
        ('{"a": 1, "a": 2}', "twice"),
        ("\xff", "UTF-8"),
    ],
)
def test_damaged_settings_are_refused_with_the_place_and_left_alone(
    person: Machine, text: str, said: str
) -> None:
    _file(person).write_bytes(text.encode("latin-1"))
    for command in ("install", "uninstall"):
        refused = person.call("hooks", command, "--json", check=False)
        assert refused.code == 8
        assert said in refused.error["error"]
        assert str(_file(person)) in refused.error["error"]
    assert _file(person).read_bytes() == text.encode("latin-1")
    assert len(list((person.root / ".claude").iterdir())) == 1


def test_a_link_stays_and_what_it_names_is_changed(person: Machine) -> None:
    dotfiles = person.root / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "claude.json").write_text("\ufeff{}")
    _file(person).symlink_to(dotfiles / "claude.json")
    person.call("hooks", "install")
    assert _file(person).is_symlink()
    assert (dotfiles / "claude.json").read_text().startswith('\ufeff{\n  "hooks"')
    assert [path.name for path in dotfiles.iterdir()] == ["claude.json"]
    person.call("hooks", "uninstall")
    assert _file(person).is_symlink()


def test_a_pipe_or_a_folder_in_the_files_place_is_refused(person: Machine) -> None:
    os.mkfifo(_file(person))
    assert person.call("hooks", "install", check=False).code == 8
    _file(person).unlink()
    _file(person).mkdir()
    assert person.call("hooks", "install", check=False).code == 8


def test_hooks_of_an_earlier_place_are_replaced_and_those_of_another_home_stay(person: Machine) -> None:
    other = str(person.root / "other")
    person.call("hooks", "install", CRYSTAL_HOME=other)
    old = {"type": "command", "command": f"/old/bin/crystal nudge --home {person.home} || true", "timeout": 9}
    settings = json.loads(_file(person).read_bytes())
    settings["hooks"]["Stop"] += [{"hooks": [old, old]}]
    settings["hooks"]["Notification"] = [{"matcher": "x", "hooks": [old]}]
    _write(person, settings)
    assert _look(person)["events"]["Stop"] == "outdated"
    person.call("hooks", "install")
    assert "/old/bin/crystal" not in str(_commands(person))
    assert "Notification" not in json.loads(_file(person).read_bytes())["hooks"]
    assert len(_commands(person)) == 2 * len(CLAUDE_EVENTS)
    person.call("hooks", "uninstall")
    assert all(other in command for command in _commands(person))
    assert len(_commands(person)) == len(CLAUDE_EVENTS)


def test_what_a_person_put_beside_our_hook_stays(person: Machine) -> None:
    person.call("hooks", "install")
    settings = json.loads(_file(person).read_bytes())
    mine = {"type": "command", "command": "mine"}
    settings["hooks"]["Stop"][0]["hooks"].insert(0, mine)
    settings["hooks"]["SessionEnd"][0]["note"] = "keep this group"
    settings["hooks"]["SessionStart"][0]["matcher"] = "*"
    _write(person, settings)
    assert person.call("hooks", "install", "--json").json["changed"] is False
    person.call("hooks", "uninstall")
    assert json.loads(_file(person).read_bytes())["hooks"] == {
        "Stop": [{"hooks": [mine]}],
        "SessionEnd": [{"hooks": [], "note": "keep this group"}],
    }


@pytest.mark.slow
def test_two_installs_at_once_and_an_uninstall_between_leave_a_sound_file(person: Machine) -> None:
    _write(person, _FOREIGN)
    commands = ["install", "install", "uninstall", "install"]
    processes = [person.start("hooks", command) for command in commands]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert _states(person) <= {"installed", "missing"}
    assert len(_states(person)) == 1
    person.call("hooks", "install")
    assert len(_commands(person)) == 3 + len(CLAUDE_EVENTS)


def test_without_claude_code_it_says_so_and_makes_nothing(machine: Machine) -> None:
    refused = machine.call("hooks", "install", "--json", check=False)
    assert refused.code == 10
    assert "Claude Code" in refused.error["error"]
    assert machine.call("hooks", "uninstall", "--json").json["changed"] is False
    assert list(machine.root.iterdir()) == []


def test_a_file_that_turns_hooks_off_is_told(person: Machine) -> None:
    _write(person, {"disableAllHooks": True})
    assert "turns all hooks off" in person.call("hooks", "install").out


def test_the_hook_as_a_shell_runs_it_says_nothing_reads_nothing_and_never_fails(person: Machine) -> None:
    person.call("hooks", "install")
    command = _commands(person)[0]
    trap = person.root / "project"
    trap.mkdir()
    for name in ("crystal_node.py", "re.py", "json.py"):
        (trap / name).write_text("raise SystemExit(2)")
    for shell_command in (command, command.replace(shlex.split(command)[0], "/gone/bin/crystal")):
        done = subprocess.run(
            ["/bin/sh", "-c", shell_command],
            cwd=trap,
            env=person.environment,
            input=b"{" * 100_000,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, b"")
    assert not person.home.exists(), "a nudge makes nothing"


@pytest.mark.parametrize(
    "arguments",
    [("--home",), ("--home", "/no/where"), ("--home=a\tb",), ("--of-a-later-version", "x"), ("--home", "")],
)
def test_a_nudge_succeeds_whatever_it_is_given(machine: Machine, arguments: tuple[str, ...]) -> None:
    done = machine.call("nudge", *arguments)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert machine.call("nudge", "--home", "with\0zero").code == 0


def test_a_nudge_takes_less_than_a_tenth_of_a_second(person: Machine) -> None:
    def cost() -> float:
        """In time of a processor: how many others want it is not the nudge's doing."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        person.run("nudge", "--home", str(person.home))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(cost() for _ in range(3)) < 0.1


def test_a_nudge_reads_no_standard_input(person: Machine) -> None:
    nudge = subprocess.Popen(
        [sys.executable, "-m", "crystal_node", "nudge", "--home", str(person.home)],
        env=person.environment,
        stdin=subprocess.PIPE,
    )
    assert nudge.wait(30) == 0, "it would wait for an end that never comes"
    assert nudge.stdin is not None
    nudge.stdin.close()


def test_a_compiler_of_the_same_name_beside_the_interpreter_is_not_taken_for_this_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    (tmp_path / "crystal").write_bytes(b"\x7fELF a compiler")
    (tmp_path / "crystal").chmod(0o755)
    assert program() == (str(tmp_path / "python3"), "-P", "-m", "crystal_node")
    (tmp_path / "crystal").write_text("#!/usr/bin/python3\nfrom crystal_node.surfaces.cli import main\n")
    assert program() == (str(tmp_path / "crystal"),)


def test_a_home_whose_path_is_no_text_is_refused_and_nothing_is_written(person: Machine) -> None:
    before = _write(person, _FOREIGN)
    home = os.fsdecode(os.fsencode(person.root) + b"/\xff")
    refused = person.call("hooks", "install", check=False, CRYSTAL_HOME=home)
    assert refused.code == 8
    assert "UTF-8" in refused.err
    assert _file(person).read_bytes() == before
