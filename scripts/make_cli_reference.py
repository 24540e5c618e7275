"""Write docs/cli.md from the command trees of `crystal` and `crystal-relay`.

`python -m scripts.make_cli_reference [--check]`: with `--check` nothing is written, and the exit code is 1 when the page
is not current. Hidden commands and options are left out.
"""

import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Protocol, cast

import typer
import typer.main
from typer.core import TyperGroup

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"

_HEAD = """# Command reference

Written by `make docs` from the programs themselves. Settings of `crystal` may also come from the environment or `config.json`;
`crystal config` shows each with its origin. Options of `crystal-relay` may come from the variables that are named with them; an
option that is given wins.

Exit codes, the same for every command of a program:

EXIT_CODES

With `--json` the result is one JSON document on standard output, and an error is one on standard error, with `error`, `hint`
and `exit_code`.
"""


class Context(Protocol):
    """What typer makes of one invocation; opaque here."""


class Parameter(Protocol):
    """One argument or option."""

    @property
    def param_type_name(self) -> str: ...

    opts: list[str]
    envvar: str | None
    help: str | None

    def get_help_record(self, ctx: Context) -> tuple[str, str] | None: ...


class Command(Protocol):
    """One command, as far as its description goes. A group has `commands` as well."""

    hidden: bool
    help: str | None

    def get_usage(self, ctx: Context) -> str: ...

    def get_params(self, ctx: Context) -> Sequence[Parameter]: ...


@dataclass(slots=True)
class OptionRow:
    """An option with its variable, in all the commands that take it."""

    name: str
    variable: str
    help: str
    commands: list[str]


def option_rows(program: str, app: typer.Typer) -> list[OptionRow]:
    """Every option of a program, in the order of its help. One that means something else in another command has two rows."""
    rows: dict[tuple[str, str], OptionRow] = {}
    for path, command in _commands(program, cast("Command", typer.main.get_command(app))):
        for parameter in command.get_params(_context(path, command)):
            name = parameter.opts[0]
            if parameter.param_type_name != "option" or name in ("--help", "-h", "--version"):
                continue
            key = (name, parameter.envvar or "")
            row = rows.setdefault(key, OptionRow(*key, " ".join((parameter.help or "").split()), []))
            row.commands.append(path.removeprefix(f"{program} "))
    return list(rows.values())


def options_table(program: str, app: typer.Typer, others: dict[str, str]) -> str:
    """The section with all options of a program and their variables. `others`: variables without an option."""
    found = option_rows(program, app)
    rows = [f"| `{each.name}` | `{each.variable}` | {each.help} |" for each in found if each.variable]
    rows += [f"| | `{variable}` | {text} |" for variable, text in others.items()]
    rest = [f"`{each.name}` ({', '.join(each.commands)})" for each in found if not each.variable]
    lines = [
        f"### Options and variables of {program}",
        "",
        "| option | variable | |",
        "|---|---|---|",
        *rows,
        "",
        "A switch is set by `1` and left by `0`. Only on the command line, since they say what one command shall do:",
        f"{', '.join(rest)}.",
    ]
    return "\n".join(lines) + "\n"


def reference(program: str, app: typer.Typer | TyperGroup) -> str:
    """The section about one program: its commands in the order of its help, each with usage, text and parameters."""
    command = typer.main.get_command(app) if isinstance(app, typer.Typer) else app
    return "\n".join(_command_lines(program, cast("Command", command), level=2)).rstrip() + "\n"


def page() -> str:
    """The whole of docs/cli.md."""
    from crystal_node.base.errors import ExitCode
    from crystal_node.surfaces.cli.app import COMMANDS, build
    from crystal_relay.cli.app import app as relay
    from crystal_relay.cli.failures import RelayExitCode
    from crystal_relay.cli.options import SECRET_VARIABLES

    codes = _exit_codes({"crystal": ExitCode, "crystal-relay": RelayExitCode})
    head = _HEAD.replace("EXIT_CODES", codes)
    crystal = build((), [command.name for command in COMMANDS])
    table = options_table("crystal-relay", relay, SECRET_VARIABLES)
    return f"{head}\n{reference('crystal', crystal)}\n{reference('crystal-relay', relay)}\n{table}"


def _exit_codes(programs: dict[str, type[IntEnum]]) -> str:
    """A row for each code, a column for each program."""
    codes = sorted({code.value for kinds in programs.values() for code in kinds})
    rows = [
        f"| | {' | '.join(f'`{program}`' for program in programs)} |",
        "|---:" + "|---" * len(programs) + "|",
    ]
    for code in codes:
        names = (next((kind.name for kind in kinds if kind == code), "") for kinds in programs.values())
        rows.append(f"| `{code}` | {' | '.join(name.lower().replace('_', ' ') for name in names)} |")
    return "\n".join(rows)


def main() -> int:
    current = page()
    if sys.argv[1:] == ["--check"]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == current:
            return 0
        print("docs/cli.md is not what the programs say: run `make docs`", file=sys.stderr)
        return 1
    PAGE.write_text(current, encoding="utf-8")
    print(f"Written: {PAGE.relative_to(PAGE.parent.parent)}")
    return 0


def _command_lines(path: str, command: Command, *, level: int) -> Iterator[str]:
    context = _context(path, command)
    subcommands = [(name, sub) for name, sub in _subcommands(command) if not sub.hidden]
    yield f"{'#' * level} {path}"
    yield ""
    # A group's usage says only that there are commands; they follow.
    if not subcommands:
        usage = " ".join(command.get_usage(context).removeprefix("Usage:").split())
        yield from ["```", usage, "```", ""]
    if command.help:
        yield from _text_lines(command.help)
        yield ""
    yield from _parameter_lines(command, context)
    for name, subcommand in subcommands:
        yield from _command_lines(f"{path} {name}", subcommand, level=level + 1)


def _commands(path: str, command: Command) -> Iterator[tuple[str, Command]]:
    yield path, command
    for name, subcommand in _subcommands(command):
        if not subcommand.hidden:
            yield from _commands(f"{path} {name}", subcommand)


def _context(path: str, command: Command) -> Context:
    factory = cast("type[typer.Context]", getattr(command, "context_class"))  # noqa: B009  not in typer's own types
    return factory(command, info_name=path)  # type: ignore[arg-type]


def _subcommands(command: Command) -> list[tuple[str, Command]]:
    return list(cast("dict[str, Command]", getattr(command, "commands", {})).items())


def _text_lines(text: str) -> Iterator[str]:
    # \b and \f are click's own marks: "don't wrap this" and "the help ends here".
    for line in inspect.cleandoc(text).split("\f")[0].splitlines():
        if line.strip() != "\b":
            yield line.rstrip()


def _parameter_lines(command: Command, context: Context) -> Iterator[str]:
    rows: list[str] = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or record[0].endswith("--help"):
            continue
        signature, description = (" ".join(part.split()).replace("|", "\\|") for part in record)
        rows.append(f"| `{signature}` | {description} |")
    if rows:
        yield from ["| | |", "|---|---|", *rows, ""]


if __name__ == "__main__":
    sys.exit(main())
