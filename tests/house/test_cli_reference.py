"""docs/cli.md is what the programs say, and the generator leaves out only what is hidden."""

import re
from pathlib import Path
from typing import Annotated

import pytest
import typer

from crystal_node.surfaces.cli.app import build
from crystal_relay.cli.app import app as relay
from scripts.make_cli_reference import PAGE, option_rows, page, reference

COMMANDS = (
    "init",
    "pair",
    "capture",
    "sync",
    "search",
    "remember",
    "forget",
    "status",
    "devices",
    "verify",
    "role",
    "demo",
)
RELAY_COMMANDS = ("serve", "check", "sweep")
RELAY_GROUPS = {
    "vaults": ("list", "quota", "suspend", "read-only", "resume", "export", "delete", "restore"),
    "tokens": ("create", "list", "revoke", "close", "open"),
    "v1": ("add", "list", "revoke"),
}


def test_every_command_for_the_relays_operator_is_described() -> None:
    for group, commands in RELAY_GROUPS.items():
        for command in commands:
            assert f"#### crystal-relay {group} {command}\n" in page()


def test_the_exit_codes_of_both_programs_stand_side_by_side() -> None:
    assert "| `3` | not set up | cannot listen |" in page()


def test_the_command_reference_is_current() -> None:
    build(("devices", "--help"))  # which is of no consequence for who asks after it
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


@pytest.mark.parametrize(
    "command",
    [*(f"crystal {name}" for name in COMMANDS), *(f"crystal-relay {name}" for name in RELAY_COMMANDS)],
)
def test_every_command_is_described(command: str) -> None:
    section = page().split(f"### {command}\n", 1)[1].split("\n### ", 1)[0]
    _, usage, description = section.split("```", 2)
    assert usage.startswith(f"\n{command} ")
    assert len(description.split("| | |")[0].strip()) > 20, "a command says what it does"


def test_every_option_of_a_running_relay_and_of_several_commands_has_one_variable() -> None:
    rows = option_rows("crystal-relay", relay)
    assert len(rows) > 20
    for row in rows:
        if {"serve", "up"} & set(row.commands) or len(row.commands) > 3:
            assert row.variable == f"CRYSTAL_RELAY_{row.name.removeprefix('--').replace('-', '_').upper()}"
            assert f"| `{row.name}` | `{row.variable}` | {row.help} |" in page()
    with_variable = [row.name for row in rows if row.variable]
    assert len(with_variable) == len(set(with_variable)), "an option has one variable in all commands"


def test_every_variable_that_the_relay_reads_stands_in_the_table() -> None:
    table = page().split("### Options and variables of crystal-relay\n")[1]
    sources = Path(PAGE.parent.parent, "relay", "crystal_relay").rglob("*.py")
    read = {
        name for path in sources for name in re.findall(r"\bCRYSTAL_RELAY_[A-Z0-9_]+\b", path.read_text())
    }
    assert len(read) > 20
    assert sorted(name for name in read if f"| `{name}` |" not in table) == []


def test_a_reference_lists_what_can_be_used_and_nothing_hidden() -> None:
    app = typer.Typer(add_completion=False)

    @app.command("find")
    def find(
        words: Annotated[str, typer.Argument(help="What to look for.")],
        limit: Annotated[int, typer.Option("--limit", "-n", help="How many | at most.")] = 10,
        trace: Annotated[bool, typer.Option("--trace", hidden=True)] = False,
    ) -> None:
        """Find things.

        Slowly.
        """

    @app.command("secret", hidden=True)
    def secret() -> None:
        """Not for people."""

    text = reference("tool", app)
    assert "### tool find\n\n```\ntool find [OPTIONS]" in text
    assert "\nFind things.\n\nSlowly.\n" in text
    assert "What to look for.  [required]".replace("  ", " ") in text
    assert "How many \\| at most. [default: 10]" in text
    assert "trace" not in text
    assert "secret" not in text
    assert [find.__name__, secret.__name__] == ["find", "secret"]
