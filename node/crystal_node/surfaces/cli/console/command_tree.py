"""The tree of a program's commands as plain values, for completion scripts and man pages. Hidden ones are left out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from typer.core import TyperArgument, TyperGroup


@dataclass(frozen=True, slots=True)
class Option:
    """``names``: with short forms. ``value``: what it takes, "" for a switch. ``choices``: its values, if they are few."""

    names: tuple[str, ...]
    value: str
    choices: tuple[str, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class Argument:
    """``name`` as the usage shows it."""

    name: str
    choices: tuple[str, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class CommandNode:
    """``path``: the words that call it, the program first. ``text``: its whole help; the first paragraph is the summary."""

    path: tuple[str, ...]
    text: str
    options: tuple[Option, ...]
    arguments: tuple[Argument, ...]
    commands: tuple["CommandNode", ...]

    @property
    def summary(self) -> str:
        """The first paragraph of the help, as one line."""
        return " ".join(self.text.split("\n\n")[0].split())

    def walk(self) -> Iterator["CommandNode"]:
        """It and all below it."""
        yield self
        for each in self.commands:
            yield from each.walk()


def tree(program: str, group: TyperGroup) -> CommandNode:
    """The tree of a program whose commands are all loaded."""
    return _node((program,), group)


def _node(path: tuple[str, ...], command: Any) -> CommandNode:
    below = [(name, each) for name, each in getattr(command, "commands", {}).items() if not each.hidden]
    options: list[Option] = []
    arguments: list[Argument] = []
    for parameter in command.params:
        choices = tuple(getattr(parameter.type, "choices", ()))
        summary = " ".join((getattr(parameter, "help", None) or "").split())
        if getattr(parameter, "hidden", False):
            continue
        if isinstance(parameter, TyperArgument):
            arguments.append(Argument(parameter.make_metavar(_context(command)), choices, summary))
            continue
        value = "" if parameter.is_flag or parameter.count else _value(parameter, choices)
        options.append(Option((*parameter.opts, *parameter.secondary_opts), value, choices, summary))
    options.append(Option(("--help", "-h"), "", (), "Show the help and stop."))
    text = (command.help or "").split("\f")[0].strip()
    return CommandNode(
        path,
        text,
        tuple(options),
        tuple(arguments),
        tuple(_node((*path, name), each) for name, each in below),
    )


def _context(command: Any) -> Any:
    return command.context_class(command)


def _value(parameter: Any, choices: tuple[str, ...]) -> str:
    return str(parameter.metavar or "|".join(choices) or parameter.type.name.upper())
