"""Import of a prototype's database, shared by `crystal migrate-db` and `crystal migrate-embeddings`."""

from pathlib import Path

from crystal_node.surfaces.cli.console.output import emit, note, say


def migrate(path: Path, *, dry_run: bool, as_json: bool) -> None:
    """Import a database of the prototype. Raises NotPublished, PrivateNow, and what a device raises."""
    from crystal_node.base.settings import resolve
    from crystal_node.base.wording import counted
    from crystal_node.device.device import opened
    from crystal_node.safekeeping.portable.record_import import RecordImporter, say_counts
    from crystal_prototype.home.database import opened as published

    settings = resolve()

    def progress(count: int) -> None:
        if not as_json and count % 10_000 < 256:
            note(f"{count:,} messages looked at")

    with published(path, settings.agent_id) as memory, opened(settings) as device:
        inventory = memory.inventory()
        taker = RecordImporter(device, dry_run=dry_run, progress=progress)
        taker.pieces(memory.pieces())
        taker.memories(memory.memories())
        taken = taker.taken
    if as_json:
        emit(
            {
                "path": str(path),
                "dry_run": dry_run,
                **taken.document(),
                "files": inventory.files,
                "collections": inventory.collections,
                "deleted": inventory.deleted,
            }
        )
        return
    say_counts(taken, dry_run=dry_run, say=say)
    if inventory.files:
        say(
            f"  {counted(inventory.files, 'passage')} of files were left out: they are read again from the files."
        )
    for name, root in inventory.collections.items():
        say(f"    crystal sources add {root} --name {name}")
