"""``crystal files``: which files of the home are synced, their status, and what needs a decision."""

from typing import Annotated

import msgspec
import typer

from crystal_mirror.files.tree import DeletionDirection
from crystal_node.base.errors import NoSuchEntry, NotSetUp, UsageError
from crystal_node.base.file_rules import allow_command, pattern_fault, with_rule
from crystal_node.base.obeyed_names import obeyed_part
from crystal_node.base.settings import Settings, resolve
from crystal_node.base.settings.checks import FILE_RULES_MAX
from crystal_node.base.wording import clock_time, counted, one_line, size
from crystal_node.device.device import opened
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, say
from crystal_node.surfaces.cli.console.prompts import confirm
from crystal_node.sync.files.rounds import open_disk, open_file_database
from crystal_node.sync.files.scan import is_closed_folder
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
ObeyedName = Annotated[
    str, typer.Argument(metavar="NAME", help="A name, such as .git, or the path of one place in the home.")
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


@group.command("allow")
def allow(name: ObeyedName, as_json: Json = False) -> None:
    """Let a name that programs execute or obey be synced here.

    Files of such names (.git, .envrc, .vscode, CLAUDE.md) make programs run or believe what they hold, so another device's
    are not applied here by themselves. A name counts at any depth, a path for that place alone, each with all that lies below.
    Look first at who sends it: `crystal files status` lists what waits.

    Example:

        crystal files allow work/blog/.git
    """
    settings, name = _set_up(), _relative(name)
    fault = pattern_fault(name) or ("a name has no stars" if set(name) & {"*", "?"} else None)
    if fault is not None:
        raise UsageError(f"{name[:80]!r} cannot be allowed: {fault}")
    names = (*(each for each in settings.config.files_allowed if each != name), name)
    if len(names) > FILE_RULES_MAX:
        raise UsageError(
            f"there are {FILE_RULES_MAX} of them already", hint="`crystal files status` lists them."
        )
    if obeyed_part(name) is None and not is_closed_folder(settings.home.root, name):
        raise UsageError(
            f"{name} is no name that programs execute or obey, and is synced as it is",
            hint="`crystal files status` lists what is held back.",
        )
    settings.save(msgspec.structs.replace(settings.config, files_allowed=names))
    settings.home.nudge()
    if as_json:
        emit({"allowed": list(names)})
    else:
        say(
            f"{name} is synced on this device, from the next `crystal sync` on: what others put there, programs may run."
        )


@group.command("deny")
def deny(name: ObeyedName, as_json: Json = False) -> None:
    """Leave a name out again that was allowed here.

    What is here stays; other devices' changes are not applied any more.

    Example:

        crystal files deny work/blog/.git
    """
    settings, name = _set_up(), _relative(name)
    names = tuple(each for each in settings.config.files_allowed if each != name)
    if names == settings.config.files_allowed:
        raise NoSuchEntry(f"{name} was not allowed here", hint="`crystal files status` lists what was.")
    settings.save(msgspec.structs.replace(settings.config, files_allowed=names))
    settings.home.nudge()
    if as_json:
        emit({"allowed": list(names)})
    else:
        say(f"{name} is held back on this device again. What is here stays.")


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


def _set_up() -> Settings:
    settings = resolve()
    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    return settings


def _relative(path: str) -> str:
    return path.removeprefix("./").rstrip("/")


def _change(pattern: str, *, exclude: bool, as_json: bool) -> None:
    settings, pattern = _set_up(), _relative(pattern)
    fault = pattern_fault(pattern)
    if fault is not None:
        raise UsageError(f"{pattern[:80]!r} is no pattern: {fault}")
    rules = with_rule(settings.config.files_rules, pattern, exclude=exclude)
    if len(rules) > FILE_RULES_MAX:
        raise UsageError(
            f"there are {FILE_RULES_MAX} rules already", hint="`crystal files status` lists them."
        )
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
    for name in found.allowed:
        say(f"allowed   {one_line(name, 200)}, which programs execute or obey")
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
    _list(
        f"! {counted(sum(found.held.values()), 'file')} of the vault not applied here, as programs execute or obey such names:",
        [f"{part} ({counted(count, 'file')}): {allow_command(part)}" for part, count in found.held.items()],
    )
    _list(
        f"! {counted(len(found.without_bit), 'file')} executable elsewhere and not here (`chmod u+x` on one sets it):",
        list(found.without_bit),
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
