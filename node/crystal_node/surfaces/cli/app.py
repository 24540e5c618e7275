"""The list of verbs, and the parser that is built from it: only the verb that is asked for is imported."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc

import typer


@dataclass(frozen=True, slots=True)
class _Verb:
    """One command: its name, the module that holds it, and the panel of the help it stands in.

    ``module`` is a name in this package, or a full name. It has a function ``run``, or a typer app ``group`` for a command that
    has commands of its own.
    """

    name: str
    module: str
    panel: str
    hidden: bool = False


_SET_UP = "Set up"
_EVERY_DAY = "Every day"
_LOOK = "Look closer"

VERBS = (
    _Verb("demo", "demo", _SET_UP),
    _Verb("up", "up", _SET_UP),
    _Verb("down", "down", _SET_UP),
    _Verb("uninstall", "uninstall", _SET_UP),
    _Verb("takeover", "crystal_prototype.cli.takeover", _SET_UP),
    _Verb("init", "init", _SET_UP),
    _Verb("pair", "pair", _SET_UP),
    _Verb("recovery", "recovery", _SET_UP),
    _Verb("capture", "capture", _EVERY_DAY),
    _Verb("backfill", "backfill", _EVERY_DAY),
    _Verb("sync", "sync", _EVERY_DAY),
    _Verb("search", "search", _EVERY_DAY),
    _Verb("show", "show", _EVERY_DAY),
    _Verb("recall", "recall", _EVERY_DAY),
    _Verb("remember", "remember", _EVERY_DAY),
    _Verb("memories", "memories", _EVERY_DAY),
    _Verb("forget", "forget", _EVERY_DAY),
    _Verb("open", "open", _EVERY_DAY),
    _Verb("sources", "sources", _EVERY_DAY),
    _Verb("files", "files", _EVERY_DAY),
    _Verb("trash", "trash", _EVERY_DAY),
    _Verb("private", "private", _EVERY_DAY),
    _Verb("agent", "agent", _EVERY_DAY),
    _Verb("mcp", "mcp", _EVERY_DAY),
    _Verb("serve", "serve", _EVERY_DAY),
    _Verb("status", "status", _LOOK),
    _Verb("jobs", "jobs", _LOOK),
    _Verb("run", "run", _LOOK),
    _Verb("commands", "commands", _LOOK),
    _Verb("staging", "staging", _LOOK),
    _Verb("dream-weave", "dream_weave", _LOOK),
    _Verb("devices", "devices", _LOOK),
    _Verb("role", "role", _LOOK),
    _Verb("promote", "promote", _LOOK),
    _Verb("demote", "demote", _LOOK),
    _Verb("snapshot", "snapshot", _LOOK),
    _Verb("prune", "prune", _LOOK),
    _Verb("embed", "embed", _LOOK),
    _Verb("reembed", "reembed", _LOOK),
    _Verb("verify", "verify", _LOOK),
    _Verb("repair", "repair", _LOOK),
    _Verb("restore", "remake", _LOOK),
    _Verb("backup", "backup", _LOOK),
    _Verb("export", "export", _LOOK),
    _Verb("import", "importing", _LOOK),
    _Verb("migrate-db", "crystal_prototype.cli.migrate_db", _LOOK),
    _Verb("migrate-embeddings", "crystal_prototype.cli.migrate_embeddings", _LOOK),
    _Verb("config", "config", _LOOK),
    _Verb("keys", "keys", _LOOK),
    _Verb("hooks", "hooks", _LOOK),
    _Verb("nudge", "nudge", _LOOK),
    _Verb("doctor", "doctor", _LOOK),
)

_HELP = """End-to-end encrypted memory for AI agents, shared by all of your machines.

Try `crystal demo`: it shows everything at work on this machine within a minute, and leaves nothing behind.
"""


def build(arguments: Sequence[str]) -> typer.Typer:
    """The command line for these arguments: with the one verb that they name, or with all of them."""
    app = typer.Typer(
        name="crystal",
        help=_HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    named = [verb for verb in VERBS if verb.name == asked]
    for verb in named or VERBS:
        found = _loaded(verb)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=verb.name, rich_help_panel=verb.panel, hidden=verb.hidden)
        else:
            app.command(verb.name, rich_help_panel=verb.panel, hidden=verb.hidden)(found)
    return _flowed(app) if {"-h", "--help"} & set(arguments) else app


def _flowed(app: typer.Typer) -> typer.Typer:
    """A copy of it whose help has paragraphs that fill the terminal's width, whatever that is, not the source's."""
    flowed = copy(app)
    flowed.registered_commands = [copy(command) for command in app.registered_commands]
    flowed.registered_callback = copy(app.registered_callback)
    flowed.registered_groups = [copy(group) for group in app.registered_groups]
    for command in (*flowed.registered_commands, flowed.registered_callback):
        if command is not None and command.callback is not None and command.callback.__doc__:
            command.help = flowing(command.callback.__doc__)
    for group in flowed.registered_groups:
        if group.typer_instance is not None:
            group.typer_instance = _flowed(group.typer_instance)
    return flowed


def flowing(text: str) -> str:
    """A docstring with a line for each paragraph. What is indented, such as an example, stays as it is."""
    parts = cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith(" ") else part.replace("\n", " ") for part in parts)


def _loaded(verb: _Verb) -> typer.Typer | Callable[..., object]:
    name = verb.module if "." in verb.module else f"crystal_node.surfaces.cli.{verb.module}"
    module = import_module(name)
    found = getattr(module, "group", None) or module.run
    if not isinstance(found, typer.Typer) and not callable(found):
        raise TypeError(f"{name} holds no command")
    return found  # type: ignore[no-any-return]


def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and stop.", is_eager=True),
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"crystal {installed('memory-crystal')}")
        raise typer.Exit
