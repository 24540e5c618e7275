"""The list of commands, and the parser that is built from it. A call loads the one command that it names."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name, the panel of the help that it stands in, and what it does in at most twelve words.

    Its module is named after it: ``dream-weave`` is in ``dream_weave.py``. It has a function ``run``, or a typer app ``group``
    for a command that has commands of its own. ``summary`` is the first line of the command's own help.
    """

    name: str
    panel: str
    summary: str
    package: str = "crystal_node.surfaces.cli"

    @property
    def module(self) -> str:
        """The full name of the module that holds it."""
        name = self.name.replace("-", "_")
        return f"{self.package}.{'import_' if name == 'import' else name}"


_SET_UP = "Set up"
_EVERY_DAY = "Every day"
_LOOK = "Look closer"
_PROTOTYPE = "crystal_prototype.cli"

COMMANDS = (
    Command("demo", _SET_UP, "Show everything at work: a relay, a Core and two Nodes."),
    Command("up", _SET_UP, "Set up this machine: vault, capture, hooks, MCP and background service."),
    Command("down", _SET_UP, "Stop recording and syncing; keep everything recorded."),
    Command("uninstall", _SET_UP, "Remove the background service, the hooks and the MCP server."),
    Command("takeover", _SET_UP, "Take over a home of the published prototype, in place.", _PROTOTYPE),
    Command("init", _SET_UP, "Set up this machine as a Core, or prepare a Node."),
    Command("pair", _SET_UP, "Bring another machine into the vault, or join one."),
    Command("recovery", _SET_UP, "Make, check and use the vault's recovery kit."),
    Command("capture", _EVERY_DAY, "Record new messages of this machine's conversations."),
    Command("backfill", _EVERY_DAY, "Record old conversations that are not in the memory yet."),
    Command("sync", _EVERY_DAY, "Send what this machine recorded, and fetch what others did."),
    Command("search", _EVERY_DAY, "Find what was said, remembered or decided, on any machine."),
    Command("show", _EVERY_DAY, "Show a question with its answer, or what was said around it."),
    Command("recall", _EVERY_DAY, "Show what hooks would tell an agent at a prompt."),
    Command("remember", _EVERY_DAY, "Keep a sentence as a memory, on every device."),
    Command("memories", _EVERY_DAY, "List, show and change memories."),
    Command("projects", _EVERY_DAY, "List projects, and link those that belong together."),
    Command("forget", _EVERY_DAY, "Forget messages on every device, for good."),
    Command("open", _EVERY_DAY, "Show the whole conversation around a message."),
    Command("sources", _EVERY_DAY, "Keep folders of documents and code in the memory."),
    Command("files", _EVERY_DAY, "Choose which files of the memory home are synced."),
    Command("trash", _EVERY_DAY, "List, restore and delete files that sync removed here."),
    Command("private", _EVERY_DAY, "Record nothing on this machine while private mode is on."),
    Command("agent", _EVERY_DAY, "Run and control the background service."),
    Command("mcp", _EVERY_DAY, "Serve the memory to agents over MCP."),
    Command("serve", _EVERY_DAY, "Serve this device's memory over HTTP, to this machine alone."),
    Command("status", _LOOK, "Show this device's status: what waits, and what is stuck."),
    Command("jobs", _LOOK, "List, pause and run the background service's jobs."),
    Command("run", _LOOK, "Ask another device of the vault to do something."),
    Command("commands", _LOOK, "List, show and cancel requests between devices; allow or deny them."),
    Command("staging", _LOOK, "List agents that are new to the Core, and decide."),
    Command("dream-weave", _LOOK, "Weave an agent's conversations into journals, pages and memories."),
    Command("devices", _LOOK, "List and manage the vault's devices."),
    Command("role", _LOOK, "Show which machine is the Core, and how far each is."),
    Command("promote", _LOOK, "Make this machine the vault's Core."),
    Command("demote", _LOOK, "Hand the Core's role to another machine, or to none."),
    Command("snapshot", _LOOK, "Make a snapshot of the memory on the relay now."),
    Command("prune", _LOOK, "Show or delete what the relay no longer needs to keep."),
    Command("embed", _LOOK, "Show or change the model that makes the vault's vectors."),
    Command("reembed", _LOOK, "Make missing or outdated vectors with the configured model."),
    Command("verify", _LOOK, "Compare every row of the memory with its digest."),
    Command("repair", _LOOK, "Repair this machine's memory and lost parts on the relay."),
    Command("restore", _LOOK, "Rebuild this machine's memory from the relay or a copy."),
    Command("backup", _LOOK, "Back up this device's home, and read the backup back."),
    Command("export", _LOOK, "Export the memory as JSON lines and files."),
    Command("import", _LOOK, "Import an export into this vault."),
    Command("migrate-db", _LOOK, "Import what the published prototype recorded and remembered.", _PROTOTYPE),
    Command(
        "migrate-embeddings",
        _LOOK,
        "Import the conversations of OpenClaw's context-embeddings.sqlite.",
        _PROTOTYPE,
    ),
    Command("config", _LOOK, "Show each setting and where it comes from, or change it."),
    Command("keys", _LOOK, "Show where this device's keys are stored, or move them."),
    Command("hooks", _LOOK, "Install, remove and check the hooks in Claude Code."),
    Command("nudge", _LOOK, "Wake the background service to read all transcripts at once."),
    Command("doctor", _LOOK, "Check this device, and fix what is safe to fix."),
)

_HELP = """End-to-end encrypted memory for AI agents, shared by all of your machines.

Try `crystal demo`: it shows everything at work on this machine within a minute, and leaves nothing behind.
"""

_DEBUG = TyperOption(
    param_decls=["--debug"],
    is_flag=True,
    default=False,
    expose_value=False,
    hidden=True,
    help="Show the trace of an error.",
)
"""Accepted before and after each command; ``main`` looks for it when an error is reported."""


def build(arguments: Sequence[str]) -> TyperGroup:
    """The command line for these arguments: with the one command that they name, or with the names of all.

    Without arguments every command is loaded.
    """
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
    named = [command for command in COMMANDS if command.name == asked]
    for command in named or COMMANDS:
        found = _loaded(command) if named or not arguments else _unloaded
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=command.name, rich_help_panel=command.panel)
        else:
            text = None if found is not _unloaded else command.summary
            app.command(command.name, help=text, rich_help_panel=command.panel)(found)
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup), "an app with a callback is a group"
    for each in _commands(root):
        each.params.append(_DEBUG)
        if each.help and {"-h", "--help"} & set(arguments):
            each.help = flowing(each.help)
    return root


def flowing(text: str) -> str:
    """A docstring with a line for each paragraph, for help that fills the terminal. Indented lines, such as examples, stay."""
    parts = cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith(" ") else part.replace("\n", " ") for part in parts)


def _commands(root: TyperCommand | TyperGroup) -> Iterator[TyperCommand | TyperGroup]:
    """The command itself and all below it."""
    yield root
    if isinstance(root, TyperGroup):
        for each in root.commands.values():
            assert isinstance(each, TyperCommand | TyperGroup), "typer makes its own kinds of commands"
            yield from _commands(each)


def _loaded(command: Command) -> typer.Typer | Callable[..., object]:
    module = import_module(command.module)
    found = getattr(module, "group", None) or module.run
    if not isinstance(found, typer.Typer) and not callable(found):
        raise TypeError(f"{command.module} holds no command")
    return found  # type: ignore[no-any-return]


def _unloaded() -> None:
    """Stands for a command in the list of all: the list is shown without loading any."""


def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and stop.", is_eager=True),
) -> None:
    if version:
        from importlib.metadata import version as installed  # 10 ms that no other command spends

        typer.echo(f"crystal {installed('memory-crystal')}")
        raise typer.Exit
