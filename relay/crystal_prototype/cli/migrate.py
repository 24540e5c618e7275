"""Import of what the prototype recorded, shared by `crystal migrate-db` and `crystal migrate-embeddings`."""

from collections.abc import Sequence
from pathlib import Path

from crystal_node.surfaces.cli.console.output import emit, note, say


def migrate(databases: Sequence[Path], staging: Sequence[Path] = (), *, dry_run: bool, as_json: bool) -> None:
    """Import databases of the prototype, and the conversations in its folders `staging`, in this order.

    Raises NotPublished, PrivateNow, LocalStorage, and what a device raises.
    """
    from crystal_node.base.settings import resolve
    from crystal_node.base.wording import counted
    from crystal_node.capture.exclusions import Exclusions
    from crystal_node.device.device import opened
    from crystal_node.safekeeping.portable.record_import import RecordImporter, say_counts
    from crystal_prototype.home.database import Inventory
    from crystal_prototype.home.database import opened as published
    from crystal_prototype.home.staged import Staged

    settings = resolve()

    def progress(count: int) -> None:
        if not as_json and count % 10_000 < 256:
            note(f"{count:,} messages looked at")

    inventories: list[Inventory] = []
    unread = excluded = 0
    with opened(settings) as device:
        taker = RecordImporter(device, dry_run=dry_run, progress=progress)
        for path in databases:
            with published(path, settings.agent_id) as memory:
                inventories.append(memory.inventory())
                taker.pieces(memory.pieces())
                taker.memories(memory.memories())
        for folder in staging:
            kept_out = Exclusions.read(settings.home.root, settings.person_home)
            staged = Staged(folder, settings.agent_id, settings.person_home, kept_out)
            taker.pieces(staged.records())
            unread += staged.unread
            excluded += staged.excluded
        taken = taker.taken
    files = sum(each.files for each in inventories)
    collections = {name: root for each in inventories for name, root in each.collections.items()}
    if as_json:
        emit(
            {
                "paths": [str(each) for each in (*databases, *staging)],
                "dry_run": dry_run,
                **taken.document(),
                "files": files,
                "collections": collections,
                "deleted": sum(each.deleted for each in inventories),
                "unread": unread,
                "excluded": excluded,
            }
        )
        return
    if len(databases) + len(staging) > 1:
        for each in (*databases, *staging):
            say(f"From {each}")
    say_counts(taken, dry_run=dry_run, say=say)
    if excluded:
        say(f"  {counted(excluded, 'message')} of excluded projects were left out")
    if unread:
        say(f"  {counted(unread, 'line')} of staged conversations could not be read in full")
    if files:
        say(f"  {counted(files, 'passage')} of files were left out: they are read again from the files.")
    for name, root in collections.items():
        say(f"    crystal sources add {root} --name {name}")
