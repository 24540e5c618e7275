"""Removal of orphaned files: made of conversations that no longer exist, and not listed in the catalog.

The catalog is of one machine and may be lost, while the files travel: files of another Core, or of a catalog before this one,
would keep forgotten text for ever. So every file that has the name of a made file, and is as it was made, is compared with the
catalog: after all rows were compared, and once a day. Agents with files still to be made, or in staging, are skipped.
"""

from collections.abc import Iterator
from pathlib import Path

from crystal_mirror.files.ports import FileTrouble
from crystal_node.base.agent_names import folder_name
from crystal_node.derive.artefacts.writer import ArtefactOutcome, ArtefactWriter
from crystal_node.derive.catalog.agents import StagingState, has_files
from crystal_node.derive.catalog.database import ORPHAN_CHECK, Catalog
from crystal_node.sync.files.artefacts import is_made_here

CHECK_EVERY_MS = 24 * 3_600_000
_KINDS = ("transcripts", "sessions", "daily")


def remove_orphans(catalog: Catalog, writer: ArtefactWriter, root: Path, now_ms: int) -> int:
    """Removes orphaned files if a check is due. Returns how many. Files that a person changed stay."""
    before = catalog.meta(ORPHAN_CHECK)
    if before is not None and abs(now_ms - int(before)) < CHECK_EVERY_MS:
        return 0
    waiting = {
        folder_name(agent)
        for agent, state, open_ in catalog.rows(
            "SELECT agent, state, EXISTS (SELECT 1 FROM conversation c WHERE c.agent = a.agent AND dirty_since > 0)"
            " OR EXISTS (SELECT 1 FROM stale_day s WHERE s.agent = a.agent) FROM agent a"
        )
        if open_ or not has_files(StagingState(state))
    }
    noted = {path for (path,) in catalog.rows("SELECT path FROM work")}
    gone = 0
    for path in _found(root, waiting):
        if path not in noted:
            try:
                gone += writer.remove(path) is ArtefactOutcome.WRITTEN
            except FileTrouble:  # a link on the way, or no right to: not ours
                continue
    if not waiting:
        catalog.set_meta(ORPHAN_CHECK, b"%d" % now_ms)
    return gone


def _found(root: Path, waiting: set[str]) -> Iterator[str]:
    """Paths below the home with names of made files. ``ArtefactWriter.remove`` checks what they are."""
    for agent in _names(root / "agents"):
        if agent in waiting:
            continue
        for kind in _KINDS:
            for name in _names(root / "agents" / agent / "memory" / kind):
                path = f"agents/{agent}/memory/{kind}/{name}"
                if is_made_here(path):
                    yield path


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []
