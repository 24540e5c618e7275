"""The list of commands, and the parser that is built from it. A call loads the one command that it names."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from inspect import cleandoc

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption


class Topic(Enum):
    """What a group of commands is about: a panel of `crystal help --all`, and a word for `crystal help`."""

    SET_UP = "setup"
    FINDING = "finding"
    REMEMBERING = "remembering"
    RECORDING = "recording"
    MACHINES = "machines"
    SAFETY = "safety"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name, its topic, and what it does in at most twelve words.

    Its module is named after it: ``dream-weave`` is in ``dream_weave.py``. It has a function ``run``, or a typer app ``group``
    for a command that has commands of its own. ``summary`` is the first line of the command's own help.
    """

    name: str
    topic: Topic
    summary: str
    package: str = "crystal_node.surfaces.cli"

    @property
    def module(self) -> str:
        """The full name of the module that holds it."""
        name = self.name.replace("-", "_")
        return f"{self.package}.{'import_' if name == 'import' else name}"


_PROTOTYPE = "crystal_prototype.cli"

DAILY = ("up", "search", "show", "remember", "memories", "forget", "private", "pair", "status", "doctor")
"""The ten for every day; `crystal --help` lists these alone."""
COMMANDS = (
    Command("up", Topic.SET_UP, "Set up this machine: vault, capture, hooks, MCP and background service."),
    Command("down", Topic.SET_UP, "Stop recording and syncing; keep everything recorded."),
    Command("uninstall", Topic.SET_UP, "Remove the background service, the hooks and the MCP server."),
    Command("upgrade", Topic.SET_UP, "Upgrade Crystal with its installer; restart the background service."),
    Command("demo", Topic.SET_UP, "Show everything at work: a relay, a Core and two Nodes."),
    Command("init", Topic.SET_UP, "Set up this machine as a Core, or prepare a Node."),
    Command("config", Topic.SET_UP, "Show each setting and where it comes from, or change it."),
    Command("keys", Topic.SET_UP, "Show where this device's keys are stored, move them, encrypt databases."),
    Command("hooks", Topic.SET_UP, "Install, remove and check the hooks in AI tools."),
    Command("completion", Topic.SET_UP, "Complete commands and options in bash, zsh and fish."),
    Command("takeover", Topic.SET_UP, "Take over a home of the published prototype, in place.", _PROTOTYPE),
    Command("help", Topic.SET_UP, "Show the help of a topic, of a command, or of all."),
    Command("search", Topic.FINDING, "Find what was said, remembered or decided, on any machine."),
    Command("show", Topic.FINDING, "Show a question with its answer, or what was said around it."),
    Command("open", Topic.FINDING, "Show the whole conversation around a message."),
    Command("sessions", Topic.FINDING, "List, read, write out and restore conversations of all machines."),
    Command("resume", Topic.FINDING, "Resume a session of any machine here, in its own tool."),
    Command("handoff", Topic.FINDING, "Hand a session over to another tool, with what it needs."),
    Command("recall", Topic.FINDING, "Show what hooks would tell an agent at a prompt."),
    Command("serve", Topic.FINDING, "Serve this device's memory over HTTP, to this machine alone."),
    Command("mcp", Topic.FINDING, "Serve the memory to agents over MCP."),
    Command("sources", Topic.FINDING, "Keep folders of documents and code in the memory."),
    Command("remember", Topic.REMEMBERING, "Keep a sentence as a memory, on every device."),
    Command("memories", Topic.REMEMBERING, "List, show and change memories."),
    Command("native", Topic.REMEMBERING, "Keep AI tools' own memory files in step between devices."),
    Command("projects", Topic.REMEMBERING, "List projects, and link those that belong together."),
    Command("forget", Topic.REMEMBERING, "Forget messages on every device, for good."),
    Command("redact", Topic.REMEMBERING, "Blank stored credentials that newer rules find."),
    Command("capture", Topic.RECORDING, "Record new messages of this machine's conversations."),
    Command("backfill", Topic.RECORDING, "Record old conversations that are not in the memory yet."),
    Command("private", Topic.RECORDING, "Record nothing on this machine while private mode is on."),
    Command("agent", Topic.RECORDING, "Run and control the background service."),
    Command("jobs", Topic.RECORDING, "List, pause and run the background service's jobs."),
    Command("nudge", Topic.RECORDING, "Wake the background service to read all transcripts at once."),
    Command("staging", Topic.RECORDING, "List agents that are new to the Core, and decide."),
    Command(
        "dream-weave", Topic.RECORDING, "Weave an agent's conversations into journals, pages and memories."
    ),
    Command("pair", Topic.MACHINES, "Bring another machine into the vault, or join one."),
    Command("sync", Topic.MACHINES, "Send what this machine recorded, and fetch what others did."),
    Command("devices", Topic.MACHINES, "List and manage the vault's devices."),
    Command("role", Topic.MACHINES, "Show which machine is the Core, and how far each is."),
    Command("promote", Topic.MACHINES, "Make this machine the vault's Core."),
    Command("demote", Topic.MACHINES, "Hand the Core's role to another machine, or to none."),
    Command("run", Topic.MACHINES, "Ask another device of the vault to do something."),
    Command(
        "commands", Topic.MACHINES, "List, show and cancel requests between devices; allow or deny them."
    ),
    Command("bridge", Topic.MACHINES, "Take in what the published prototype's devices drop.", _PROTOTYPE),
    Command("files", Topic.MACHINES, "Choose which files of the memory home are synced."),
    Command("trash", Topic.MACHINES, "List, restore and delete files that sync removed here."),
    Command("status", Topic.SAFETY, "Show this device's status: what waits, and what is stuck."),
    Command("doctor", Topic.SAFETY, "Check this device, and fix what is safe to fix."),
    Command("verify", Topic.SAFETY, "Compare every row of the memory with its digest."),
    Command("repair", Topic.SAFETY, "Repair this machine's memory and lost parts on the relay."),
    Command("recovery", Topic.SAFETY, "Make, check and use the vault's recovery kit."),
    Command("vault", Topic.SAFETY, "Delete the vault at its relay, or call that off."),
    Command("backup", Topic.SAFETY, "Back up this device's home, and read the backup back."),
    Command("restore", Topic.SAFETY, "Rebuild this machine's memory from the relay or a copy."),
    Command("snapshot", Topic.SAFETY, "Make a snapshot of the memory on the relay now."),
    Command("prune", Topic.SAFETY, "Show or delete what the relay no longer needs to keep."),
    Command("export", Topic.DATA, "Export the memory as JSON lines and files."),
    Command("import", Topic.DATA, "Import an export into this vault."),
    Command("embed", Topic.DATA, "Show or change the model that makes the vault's vectors."),
    Command(
        "migrate-db", Topic.DATA, "Import what the published prototype recorded and remembered.", _PROTOTYPE
    ),
    Command(
        "migrate-embeddings",
        Topic.DATA,
        "Import the conversations of OpenClaw's context-embeddings.sqlite.",
        _PROTOTYPE,
    ),
)

_ABOUT = "End-to-end encrypted memory for AI agents, shared by all of your machines."
_HELP = f"""{_ABOUT}

These are the ten commands for every day; `crystal help --all` lists all. `crystal help TOPIC` lists those of one topic:
setup, finding, remembering, recording, machines, safety or data. `crystal demo` shows everything at work.
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


def build(arguments: Sequence[str], listed: Collection[str] = DAILY) -> TyperGroup:
    """The command line for these arguments: with the one command that they name, or with the names of all.

    Without arguments every command is loaded. ``listed``: which ones the help of all lists.
    """
    app = typer.Typer(
        name="crystal",
        help=_HELP if listed == DAILY else _ABOUT,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    named = [command for command in COMMANDS if command.name == asked]
    for command in named or sorted(
        COMMANDS, key=lambda each: DAILY.index(each.name) if each.name in DAILY else len(DAILY)
    ):
        found = _loaded(command) if named or not arguments else _unloaded
        # A list that is that of people's daily commands needs no topics.
        panel = "Commands" if listed == DAILY else command.topic.value.capitalize()
        hidden = command.name not in listed
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=command.name, rich_help_panel=panel, hidden=hidden)
        else:
            text = None if found is not _unloaded else command.summary
            app.command(command.name, help=text, rich_help_panel=panel, hidden=hidden)(found)
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
