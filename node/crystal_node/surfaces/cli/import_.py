"""``crystal import``: bring an export into this vault."""

from pathlib import Path
from typing import Annotated

import typer

from crystal_node.base.errors import NoSuchEntry
from crystal_node.base.project import ProjectFinder
from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted, one_line
from crystal_node.capture.exclusions import Exclusions
from crystal_node.device.device import opened
from crystal_node.safekeeping.portable.chat_exports import ChatExport, import_chats
from crystal_node.safekeeping.portable.export_format import MANIFEST
from crystal_node.safekeeping.portable.importer import import_export
from crystal_node.safekeeping.portable.record_import import say_counts
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.progress import progress_shown

Source = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="What `crystal export` wrote, or chats of ChatGPT, claude.ai, Gemini, Cursor or Copilot.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would come in.")]


_SHOWN_MAX = 10


def run(source: Source, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Import an export into this vault.

    Of ChatGPT, claude.ai and Gemini, the ZIP that they or Google Takeout let you download, or the file of conversations in
    it. Of Cursor, its state.vscdb; of Copilot in VS Code, an exported chat; of both, also the folder that holds these. Run
    again, it continues, and imports nothing twice; what was forgotten here stays forgotten.

    Of a folder of `crystal export`, all of it is checked first. If a file differs from the one that is here, the imported one
    is put beside it. What programs execute or obey by its name (.git, .envrc, CLAUDE.md) is left out, and listed.

    Example:

        crystal import ~/crystal-2026-01 --dry-run
        crystal import ~/Downloads/chatgpt.zip
        crystal import ~/.config/Cursor/User/globalStorage/state.vscdb
    """
    if not source.is_dir() or (not (source / MANIFEST).exists() and any(source.iterdir())):
        _chats(source, dry_run=dry_run, as_json=as_json)
        return
    with opened(resolve()) as device, progress_shown("lines", quiet=as_json) as progress:
        done = import_export(device, source, dry_run=dry_run, progress=progress)
    if as_json:
        emit(
            {
                "dry_run": dry_run,
                **done.taken.document(),
                "documents": done.documents,
                "documents_known": done.documents_known,
                "sources_elsewhere": done.sources_elsewhere,
                "files": done.files,
                "files_known": done.files_known,
                "files_beside": done.beside,
                "files_held": done.held,
                "files_missing": done.missing,
            }
        )
        return

    say_counts(done.taken, dry_run=dry_run, say=say)
    say(f"  documents: {done.documents:,} new, {done.documents_known:,} known")
    say(
        f"  files: {done.files:,} new, {done.files_known:,} known, {len(done.beside):,} put beside another one"
    )
    if done.held:
        say(f"  ! {counted(len(done.held), 'file')} left out: programs execute or obey what has such a name:")
        for path in done.held[:_SHOWN_MAX]:
            say(f"      {one_line(path, 300)}")
        if len(done.held) > _SHOWN_MAX:
            say(f"      and {len(done.held) - _SHOWN_MAX:,} more (--json lists them)")
        say("    `crystal files allow NAME`, and the import again, takes those of that name.")
    if done.sources_elsewhere:
        note(
            f"Read in by other devices of this vault, and left to them: {', '.join(done.sources_elsewhere)}."
        )
    if done.missing:
        note(f"{counted(done.missing, 'file')} were not on the device that exported.")


def _chats(path: Path, *, dry_run: bool, as_json: bool) -> None:
    if not path.exists():
        raise NoSuchEntry(f"there is no {path}", hint="Give an export's file or folder.")
    settings = resolve()
    with opened(settings) as device, progress_shown(quiet=as_json) as progress:
        export = ChatExport(
            path,
            lambda done, total: progress("conversations", done, total),
            ProjectFinder(settings.person_home),
            Exclusions.read(settings.home.root, settings.person_home),
        )
        taken = import_chats(device, export, dry_run=dry_run)
    if as_json:
        skipped = dict(export.skipped)
        emit(
            {
                "dry_run": dry_run,
                **taken.document(),
                "conversations": export.conversations,
                "skipped": skipped,
            }
        )
        return
    say_counts(taken, dry_run=dry_run, say=say)
    for reason, count in export.skipped.most_common():
        note(f"Left out: {count:,} times {reason}.")
