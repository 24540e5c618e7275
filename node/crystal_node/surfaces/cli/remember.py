"""``crystal remember``: keep a sentence as a memory, on every device."""

import sys
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from crystal_core.memories import Category
from crystal_mirror.operations import PIECE_BYTES_MAX
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import Flags, resolve
from crystal_node.device.device import opened
from crystal_node.search.memories.changes import Choose, remember_text
from crystal_node.search.memories.documents import AlikeDocument, NewMemory, WhenAlike
from crystal_node.surfaces.cli.console.options import Agent, Json
from crystal_node.surfaces.cli.console.output import emit
from crystal_node.surfaces.cli.console.place import ProjectOption, ScopeOption, given_place
from crystal_node.surfaces.cli.console.prompts import ask
from crystal_node.surfaces.cli.console.remembered import note_alike, show_remembered
from crystal_node.surfaces.cli.console.terminal import is_terminal

Text = Annotated[
    str, typer.Argument(metavar="TEXT", help="What to remember; - reads it from standard input.")
]
CategoryOption = Annotated[Category, typer.Option("--category", help="What kind of thing it is.")]
Confidence = Annotated[
    int, typer.Option("--confidence", min=0, max=100, help="How sure that is, from 0 to 100.")
]
Supersedes = Annotated[
    list[str] | None,
    typer.Option(
        "--supersedes", metavar="ID", help="A memory whose place this one takes. May be given again."
    ),
]
Merge = Annotated[
    bool, typer.Option("--merge", help="Take the place of memories that say almost the same, without asking.")
]
KeepBoth = Annotated[
    bool,
    typer.Option("--keep-both", help="Keep it beside memories that say almost the same, without asking."),
]


def run(
    text: Text,
    category: CategoryOption = Category.FACT,
    confidence: Confidence = 100,
    supersedes: Supersedes = None,
    merge: Merge = False,
    keep_both: KeepBoth = False,
    scope: ScopeOption = None,
    project: ProjectOption = None,
    agent: Agent = None,
    as_json: Json = False,
) -> None:
    """Keep a sentence as a memory, on every device.

    It lifts an earlier forget of the same words. A memory of the same words is not kept twice. If another one says almost
    the same, you are asked whether this one takes its place; without a terminal both are kept, and the other one is named.

    Agents are given it in the project whose folder this is, a preference everywhere, unless --scope or --project says
    otherwise. A memory that takes another one's place is for the same project as that one.

    Example:

        crystal remember "The staging database is restored every night at two." --category fact
        crystal remember "It is restored at three now." --supersedes 3f9a0c12d4e5
        crystal remember "Releases are tagged on Fridays." --scope everywhere
    """
    if merge and keep_both:
        raise UsageError("--merge and --keep-both exclude each other")
    settings = resolve(Flags(agent=agent))
    choose: Choose | None = None
    if merge:
        choose = _merge
    elif is_terminal() and not as_json and text != "-":
        choose = _asked
    with opened(settings) as device:
        scope, name, place = given_place(device, scope, project)
        new = NewMemory(
            text=_given(text),
            category=category,
            confidence=confidence,
            supersedes=supersedes or [],
            scope=scope,
            project=name,
        )
        done = remember_text(device, new, keep_both=keep_both, choose=choose, place=place)
    document = msgspec.to_builtins(done)
    if as_json:
        emit(document)
    else:
        show_remembered(document, asked=choose is not None)


def _merge(_alike: Sequence[AlikeDocument]) -> WhenAlike:
    return WhenAlike.MERGE


def _asked(alike: Sequence[AlikeDocument]) -> WhenAlike:
    """Ask at a terminal whether to merge."""
    for each in alike:
        note_alike(each.id, each.text)
    merged = ask("Shall there be one memory, in the new words? [y/N] ")
    return WhenAlike.MERGE if merged else WhenAlike.KEEP_BOTH


def _given(text: str) -> str:
    if text != "-":
        return text

    return sys.stdin.read(PIECE_BYTES_MAX + 1)
