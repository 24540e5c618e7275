"""``crystal files``: which files of the home are synced, their status, and what needs a decision."""

from typing import Annotated

import msgspec
import typer

from crystal_mirror.files.tree import DeletionDirection
from crystal_node.base.errors import NotSetUp, UsageError
from crystal_node.base.file_rules import RULES_MAX, pattern_fault, with_rule
from crystal_node.base.settings import resolve
from crystal_node.base.wording import clock_time, counted, one_line, size
from crystal_node.device.device import opened
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, say
from crystal_node.surfaces.cli.console.prompts import confirm
from crystal_node.sync.files.rounds import open_disk, open_file_database
from crystal_node.sync.files.status import FilesStatus, files_document, files_status

group = typer.Typer(
    help="Choose which files of the memory home are synced.",
    no_args_is_help=True,
    add_completion=False,
)

Pattern = Annotated[
    str,
    typer.Argument(
        metavar="PATTERN",
        help="A file or folder of the home, with * and ? within a name and ** across folders.",
    ),
]
Keep = Annotated[
    bool, typer.Option("--keep", help="Take the deletions back: the files stay or come back, everywhere.")
]
_SHOWN_MAX = 20


@group.command("status")
def status(as_json: Json = False) -> None:
    """Show how the home's files are synced.

    Lists what is synced, what waits, conflicts, and what is refused and why. No network.

    Example:

        crystal files status
    """
    with opened(resolve()) as device:
        found = files_status(device)
    if as_json:
        emit(files_document(found))
    else:
        _print(found)


@group.command("exclude")
def exclude(pattern: Pattern, as_json: Json = False) -> None:
    """Leave files out of the sync on this device.

    Nothing is deleted anywhere: what is here stays, and what is not here is not fetched.

    Example:

        crystal files exclude "agents/*/cache"
    """
    _change(pattern, exclude=True, as_json=as_json)


@group.command("include")
def include(pattern: Pattern, as_json: Json = False) -> None:
    """Sync files again that were excluded on this device.

    The next sync fetches what is missing here.

    Example:

        crystal files include "agents/*/cache"
    """
    _change(pattern, exclude=False, as_json=as_json)


@group.command("confirm")
def confirm_deletions(keep: Keep = False, yes: Yes = False, as_json: Json = False) -> None:
    """Confirm many deletions at once, or take them back.

    Deletions wait when there are many. They are listed, and carried out once you have typed delete. With --keep they are
    taken back without asking.

    Example:

        crystal files confirm
        crystal files confirm --keep
    """
    with opened(resolve()) as device:
        book = open_file_database(device)
        try:
            waiting = book.waiting()
            if waiting and not keep and not yes:
                confirm("Type delete to go on: ", expect="delete", about=_asked(waiting), as_json=as_json)
                if book.waiting() != waiting:
                    raise UsageError(
                        "other deletions wait by now; nothing was done", hint="Look at them again."
                    )
            count = book.keep() if keep else book.confirm()
            book.meta_set("settled", None)
        finally:
            book.close()
        device.settings.home.nudge()
    if as_json:
        emit(
            {
                "kept" if keep else "confirmed": count,
                "deletions": [{"path": path, "direction": each.value} for path, each in waiting],
            }
        )
    elif not count:
        say("No deletion waits to be confirmed.")
    elif keep:
        say(f"Kept {counted(count, 'file')}; the next `crystal sync` brings back what is missing.")
    else:
        say(f"Confirmed {counted(count, 'deletion')}; the next `crystal sync` carries them out.")


def _asked(waiting: list[tuple[str, DeletionDirection]]) -> str:
    """What would be deleted where, for the question."""
    lines: list[str] = []
    for direction, what in (
        (DeletionDirection.HERE, "deleted on other devices; here they would go to the trash for 30 days:"),
        (
            DeletionDirection.EVERYWHERE,
            "deleted on this device; everywhere else they would go to the trash for 30 days:",
        ),
    ):
        paths = [path for path, each in waiting if each is direction]
        if paths:
            lines.append(f"{counted(len(paths), 'file')} {what}")
            lines += [f"    {one_line(path, 300)}" for path in paths[:_SHOWN_MAX]]
        if len(paths) > _SHOWN_MAX:
            lines.append(f"    and {len(paths) - _SHOWN_MAX} more (`crystal files status --json` lists them)")
    lines.append("To have them stay, or come back: `crystal files confirm --keep`.\n")
    return "\n".join(lines) + "\n"


@group.command("adopt")
def adopt(as_json: Json = False) -> None:
    """Let this home be synced without its own root marker.

    For a home whose marker is missing or belongs to another device. What was known of its files is dropped: the next sync
    deletes nothing, and keeps both versions of files that differ.

    Example:

        crystal files adopt
    """
    with opened(resolve()) as device:
        book = open_file_database(device)
        try:
            open_disk(device, book).adopt()
        finally:
            book.close()
        device.settings.home.nudge()
        root = str(device.settings.home.root)
    if as_json:
        emit({"adopted": root})
    else:
        say(f"{root} is this device's home now. The next `crystal sync` compares every file again.")


def _change(pattern: str, *, exclude: bool, as_json: bool) -> None:
    settings = resolve()
    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    pattern = pattern.removeprefix("./").rstrip("/")
    fault = pattern_fault(pattern)
    if fault is not None:
        raise UsageError(f"{pattern[:80]!r} is no pattern: {fault}")
    rules = with_rule(settings.config.files_rules, pattern, exclude=exclude)
    if len(rules) > RULES_MAX:
        raise UsageError(f"there are {RULES_MAX} rules already", hint="`crystal files status` lists them.")
    settings.save(msgspec.structs.replace(settings.config, files_rules=rules))
    settings.home.nudge()
    if as_json:
        emit({"rules": list(rules)})
    elif exclude:
        say(f"{pattern} is left out on this device. What is here stays, and nothing is deleted elsewhere.")
    else:
        say(f"{pattern} is synced on this device again, from the next `crystal sync` on.")


def _print(found: FilesStatus) -> None:
    last = found.last
    if last.halted:
        say(f"! Files are not synced: {last.halted}.")
        say("  Look at the home first. Then `crystal files adopt` lets it be synced; it deletes nothing.")
    say(f"tree      {counted(found.tree, 'file')} in the vault, {found.synced:,} of them synced here")
    say(f"waiting   {counted(found.offered, 'change')} of this device for the Core")
    say(f"trash     {counted(found.trash_files, 'file')}, {size(found.trash_bytes)}")
    say(f"looked    {clock_time(last.at) if last.at else 'not yet'}")
    for rule in found.rules:
        say(f"rule      {'leave out' if rule.startswith('-') else 'sync'} {one_line(rule[1:], 200)}")
    here = [path for path, direction in found.withheld if direction is DeletionDirection.HERE]
    everywhere = [path for path, direction in found.withheld if direction is DeletionDirection.EVERYWHERE]
    _list(
        f"! {counted(len(here), 'file')} deleted on other devices, waiting for `crystal files confirm`:", here
    )
    _list(
        f"! {counted(len(everywhere), 'file')} deleted on this device, waiting for `crystal files confirm`:",
        everywhere,
    )
    _list(f"! {counted(len(found.conflicts), 'conflict copy', 'conflict copies')}:", list(found.conflicts))
    _list(
        f"! {counted(last.refused_count, 'file')} not synced:",
        [f"{path}: {why}" for path, why in last.refused.items()],
    )
    _list("! Not complete on the relay:", [f"{path}: {why}" for path, why in last.lacking.items()])


def _list(head: str, lines: list[str]) -> None:
    if not lines:
        return
    say(head)
    for line in lines[:_SHOWN_MAX]:
        say(f"    {one_line(line, 300)}")
    if len(lines) > _SHOWN_MAX:
        say(f"    and {len(lines) - _SHOWN_MAX} more (--json lists them)")
