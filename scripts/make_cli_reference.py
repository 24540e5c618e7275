"""Write docs/cli.md from the command trees of `crystal` and `crystal-relay`.

`python -m scripts.make_cli_reference [--check]`: with `--check` nothing is written, and the exit code is 1 when the page
is not current. Hidden commands and options are left out.
"""

import inspect
import sys
from collections.abc import Iterator, Sequence
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

    def get_help_record(self, ctx: Context) -> tuple[str, str] | None: ...


class Command(Protocol):
    """One command, as far as its description goes. A group has `commands` as well."""

    hidden: bool
    help: str | None

    def get_usage(self, ctx: Context) -> str: ...

    def get_params(self, ctx: Context) -> Sequence[Parameter]: ...


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

    codes = _exit_codes({"crystal": ExitCode, "crystal-relay": RelayExitCode})
    head = _HEAD.replace("EXIT_CODES", codes)
    crystal = build((), [command.name for command in COMMANDS])
    return f"{head}\n{reference('crystal', crystal)}\n{reference('crystal-relay', relay)}"


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
