"""What each command of `crystal` and `crystal-relay` does stands in one line of at most twelve words, in the imperative."""

import re
from collections.abc import Iterator

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from crystal_node.surfaces.cli.app import COMMANDS, DAILY, Topic, build
from crystal_relay.cli.app import app as relay_app
from tests.support.machine import Machine

WORDS_MAX = 12
VERBS = frozenset(
    [
        "Add",
        "Allow",
        "Ask",
        "Back",
        "Begin",
        "Blank",
        "Bring",
        "Cancel",
        "Change",
        "Check",
        "Choose",
        "Compare",
        "Complete",
        "Confirm",
        "Copy",
        "Create",
        "Decrypt",
        "Delete",
        "Deny",
        "Encrypt",
        "Exclude",
        "Export",
        "Find",
        "Forget",
        "Hand",
        "Import",
        "Install",
        "Keep",
        "Leave",
        "Let",
        "Link",
        "List",
        "Make",
        "Move",
        "Open",
        "Pause",
        "Put",
        "Reactivate",
        "Read",
        "Rebuild",
        "Record",
        "Refuse",
        "Reject",
        "Remove",
        "Rename",
        "Repair",
        "Replace",
        "Restore",
        "Resume",
        "Retire",
        "Revoke",
        "Run",
        "Send",
        "Serve",
        "Set",
        "Show",
        "Start",
        "Stop",
        "Sync",
        "Take",
        "Test",
        "Upgrade",
        "Wake",
        "Weave",
        "Write",
    ]
)
NOT_FOR_PEOPLE = re.compile(
    r"\b(whoever|anew|alike|thereby|of which|texts?|chunks?|pieces?|operations?|entry|entries|daemon)\b",
    re.IGNORECASE,
)


def _all(name: str, command: object) -> Iterator[tuple[str, str]]:
    """The path of each command with its help."""
    yield name, getattr(command, "help", None) or ""
    if isinstance(command, TyperGroup):
        for each, below in command.commands.items():
            yield from _all(f"{name} {each}", below)


CRYSTAL = {name: text for name, text in _all("crystal", build(())) if name != "crystal"}
RELAY = dict(_all("crystal-relay", get_command(relay_app)))
del RELAY["crystal-relay"]
HELP = CRYSTAL | RELAY


@pytest.mark.parametrize("name", HELP)
def test_a_command_says_what_it_does_in_at_most_twelve_words(name: str) -> None:
    summary = HELP[name].split("\n\n")[0].strip()
    assert "\n" not in summary, f"{name}: one line"
    assert 0 < len(summary.split()) <= WORDS_MAX, f"{name}: {summary}"
    assert summary.split()[0].rstrip(",") in VERBS, f"{name}: {summary}"
    assert summary.endswith(".")


@pytest.mark.parametrize("name", HELP)
def test_help_has_one_word_for_one_thing(name: str) -> None:
    assert not NOT_FOR_PEOPLE.findall(HELP[name].split("\n\nExample:")[0]), name


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    listed = {f"crystal {command.name}": command.summary for command in COMMANDS}
    assert listed == {name: text.split("\n\n")[0].strip() for name, text in HELP.items() if name in listed}


def test_the_option_for_traces_stands_before_or_after_a_command(machine: Machine) -> None:
    for arguments in (
        ("--debug", "status"),
        ("status", "--debug"),
        ("--debug", "trash", "list"),
        ("trash", "list", "--debug"),
    ):
        failed = machine.call(*arguments, check=False)
        assert failed.code == machine.call("status", check=False).code, arguments
        assert "Traceback" in failed.err, arguments
    assert "Traceback" not in machine.call("status", check=False).err


def test_the_first_help_lists_ten_commands_and_the_others_are_by_topic(machine: Machine) -> None:
    ten = [name for name in DAILY if re.search(rf"^│ {name} ", machine.run("--help").out, re.MULTILINE)]
    assert len(ten) == len(DAILY) == 10
    everything = machine.run("help", "--all").out
    assert all(re.search(rf"^│ {command.name} ", everything, re.MULTILINE) for command in COMMANDS)
    for topic in Topic:
        listed = re.findall(r"^│ ([a-z][a-z-]*) +[A-Z]", machine.run("help", topic.value).out, re.MULTILINE)
        assert set(listed) == {command.name for command in COMMANDS if command.topic is topic}
    assert machine.run("help", "devices", "revoke").out == machine.run("devices", "revoke", "--help").out
    unknown = machine.run("help", "teapots", check=False)
    assert unknown.code == 2
    assert "machines" in unknown.err
