"""``crystal sources``: folders of documents and code that are kept in the memory."""

import asyncio
import shlex
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from crystal_node.base.errors import ExitCode, HomeBusy
from crystal_node.base.settings import Settings, resolve
from crystal_node.base.wording import clock_time, counted, one_line, size
from crystal_node.derive import sources
from crystal_node.derive.sources.extraction import INSTALL
from crystal_node.derive.sources.filetypes import Skipped
from crystal_node.derive.sources.results import SourcesStatus, SourcesSynced, SourceStatus, SourceSynced
from crystal_node.derive.sources.service import source_owner
from crystal_node.device.device import opened
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.progress import progress_shown
from crystal_node.surfaces.cli.console.prompts import confirm

group = typer.Typer(
    help="Keep folders of documents and code in the memory.",
    no_args_is_help=True,
    add_completion=False,
)

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="A folder, or one file.")]
NameOption = Annotated[
    str, typer.Option("--name", "-n", metavar="NAME", help="What to call it; the folder's name if left out.")
]
Include = Annotated[
    list[str] | None,
    typer.Option(
        "--include",
        metavar="PATTERN",
        help="Read only what matches, as in an ignore file: docs/ or *.md. May be given again.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="PATTERN", help="Leave out what matches. May be given again."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The source's name.")]
MaybeName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="One source; all of this device's if left out.")
]
Confirm = Annotated[
    bool,
    typer.Option("--confirm", help="Remove documents whose files are gone, however many they are."),
]
Later = Annotated[bool, typer.Option("--later", help="Only add it; the background service reads it.")]
_SHOWN_MAX = 10


@group.command("add")
def add(
    path: PathArgument,
    name: NameOption = "",
    include: Include = None,
    exclude: Exclude = None,
    later: Later = False,
    as_json: Json = False,
) -> None:
    """Add a folder of documents and code to the memory.

    It is read at once; after Ctrl-C the background service goes on later. Every device can search it; this one keeps it up
    to date. Ignore files are honoured. Secrets (listed here), binaries, lock files and generated files
    are never read. Adding the same name again changes its patterns.

    Example:

        crystal sources add ~/notes --name notes --exclude "drafts/"
    """
    settings = resolve()
    added = sources.add(settings, path, name=name, include=include or (), exclude=exclude or ())
    if as_json:
        synced = None if later else _read_first(settings, added.name, as_json=True)
        emit({**msgspec.to_builtins(added), "synced": msgspec.to_builtins(synced)})
        return
    say(f"{added.name} is {added.path}." if not added.changed else f"{added.name} is changed.")
    say(f"  {counted(added.files, 'file')} to read; not read: {_reasons(added.skipped) or 'nothing'}")
    if added.secrets:
        count = added.skipped[Skipped.SECRET.value]
        say(
            f"  ! {counted(count, 'file or folder', 'files and folders')} left out as secrets by their names:"
        )
        _print_paths(list(added.secrets), count)
    if later:
        say(
            f"`crystal sources sync {_quoted(added.name)}` reads it now; the background service does within 15 minutes."
        )
        return
    read = _read_first(settings, added.name, as_json=False)
    if read is None:
        say("Other sources are being read; the background service reads it next.")
        return
    _print_synced(read)
    if read.problem:
        raise typer.Exit(ExitCode.STORAGE)


def _read_first(settings: Settings, name: str, *, as_json: bool) -> SourceSynced | None:
    """Read a source that was added; None while another process reads sources."""
    try:
        return _read(settings, name, as_json=as_json).sources[0]
    except HomeBusy:
        return None


def _read(settings: Settings, name: str | None, *, confirmed: bool = False, as_json: bool) -> SourcesSynced:
    with progress_shown("files", quiet=as_json) as progress:
        return asyncio.run(sources.sync(settings, name, confirmed=confirmed, progress=progress))


@group.command("sync")
def sync(name: MaybeName = None, confirm: Confirm = False, as_json: Json = False) -> None:
    """Read new and changed documents, and remove deleted ones.

    Files that did not change are not opened.

    Example:

        crystal sources sync notes
    """
    synced = _read(resolve(), name, confirmed=confirm, as_json=as_json)
    if as_json:
        emit(msgspec.to_builtins(synced))
    else:
        for each in synced.sources:
            _print_synced(each)
        for gone in synced.let_go:
            say(
                f"{_shown(gone.device)} has taken the name {_shown(gone.name)}: {_shown(gone.path)} is not read any more."
            )
            note("`crystal sources add` with that folder and another --name reads it again.")
        if not synced.sources:
            say("This device has no sources. `crystal sources add FOLDER` adds one.")
        for other in synced.elsewhere:
            say(f"{_shown(other)} belongs to another device, which reads it.")
    if any(each.problem for each in synced.sources):
        raise typer.Exit(ExitCode.STORAGE)


@group.command("status")
def status(as_json: Json = False) -> None:
    """Show the vault's sources, and what of them is in the memory.

    Also shows what is not, and why. No network.

    Example:

        crystal sources status
    """
    found = sources.status(resolve())
    if as_json:
        emit(msgspec.to_builtins(found))
    else:
        _print_status(found)


@group.command("remove")
def remove(name: Name, yes: Yes = False, as_json: Json = False) -> None:
    """Remove a source and its documents, on every device.

    The files themselves stay.

    Example:

        crystal sources remove notes
    """
    settings = resolve()
    if not yes:
        with opened(settings) as device:
            owner = source_owner(device, name)
        if owner is not None:
            confirm(
                "Type yes to remove it: ",
                expect="yes",
                about=f"{_shown(name)} belongs to {_shown(owner)}, which will not read it any more.",
                as_json=as_json,
            )
    removed = sources.remove(settings, name)
    if as_json:
        emit(msgspec.to_builtins(removed))
    else:
        say(
            f"Removed {_shown(removed.name)} with {counted(removed.documents, 'document')}. Its files stay as they are."
        )


def _print_synced(each: SourceSynced) -> None:
    name = _shown(each.name)
    if each.problem:
        say(f"! {name}: {_shown(each.problem)}. Nothing was removed.")
        return
    if each.new or each.changed or each.removed:
        text = f"{each.new:,} new, {each.changed:,} changed, {each.removed:,} removed"
        say(f"{name}: {text}; {counted(each.pieces, 'part')} to find, on every device after the next sync.")
    else:
        say(f"{name}: nothing new in {counted(each.files, 'file')}.")
    if each.redacted:
        say(f"  {counted(each.redacted, 'credential')} blanked out.")
    _print_waiting(each.name, each.waiting, each.waiting_paths)
    _print_skipped(each.skipped, each.skipped_paths)


def _print_waiting(name: str, waiting: int, paths: tuple[str, ...]) -> None:
    if not waiting:
        return
    say(
        f"! The files of {counted(waiting, 'document')} are gone. Was a disk not there? They stay until you confirm:"
    )
    say(f"    crystal sources sync {_quoted(name)} --confirm")
    _print_paths(list(paths), waiting)


def _print_skipped(skipped: dict[str, int] | None, paths: dict[str, str] | None) -> None:
    if not skipped:
        return
    say(f"  not read: {_reasons(skipped)}")
    _print_paths([f"{path}: {why}" for path, why in sorted((paths or {}).items())], len(paths or {}))
    if skipped.get(Skipped.NO_EXTRACTOR.value):
        say(f"  PDF and HTML need a package more: {INSTALL}")


def _reasons(skipped: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {why}" for why, count in sorted(skipped.items()))


def _print_paths(lines: list[str], count: int) -> None:
    for line in lines[:_SHOWN_MAX]:
        say(f"    {_shown(line)}")
    if count > _SHOWN_MAX:
        say(f"    and {count - _SHOWN_MAX:,} more (--json lists them)")


def _print_status(found: SourcesStatus) -> None:
    if not found.sources:
        say("There are no sources. `crystal sources add FOLDER` adds one.")
    for each in found.sources:
        _print_source(each)


def _print_source(each: SourceStatus) -> None:
    where = _shown(each.path or each.folder)
    say(f"{_shown(each.name)}  {where}" + ("" if each.here else f"  (on {_shown(each.device)})"))
    line = f"  {counted(each.documents, 'document')} in {counted(each.pieces, 'part')}"
    if each.bytes:
        line += f", {size(each.bytes)}"
    if each.pending:
        line += f"; {each.pending:,} not shared yet"
    say(line)
    for what, patterns in (("only", each.include), ("without", each.exclude)):
        if patterns:
            say(f"  {what}: {_shown(', '.join(patterns))}")
    if each.problem:
        say(f"  ! {_shown(each.problem)}")
    if each.here:
        unfinished = (
            " (not finished: the next one goes on)" if each.complete is False and each.last_sync else ""
        )
        say(f"  last sync: {_moment(each.last_sync)}{unfinished}")
        _print_waiting(each.name, each.waiting, each.waiting_paths)
        _print_skipped(each.skipped, each.skipped_paths)


def _moment(text: str | None) -> str:
    """The time on this machine's clock."""
    return clock_time(int(datetime.fromisoformat(text).timestamp() * 1000)) if text else "not yet"


def _shown(text: str) -> str:
    return one_line(text, 300)


def _quoted(name: str) -> str:
    return shlex.quote(_shown(name))
