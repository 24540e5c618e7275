"""Removing files that were made of conversations which are there no more, and that nobody notes.

``works.db`` knows which files were made, but it is of one machine and may be lost, while the files travel: those of another
Core, or of a book before this one, hold texts that have been forgotten since and would stay for ever. So all that is found in
the places of such files, and is as it was made, is compared with what is noted: when all rows were compared, and once a day.
An agent of which something is not made yet is left for the next time, and so is one whose files stand elsewhere (staging).
"""

from collections.abc import Iterator
from pathlib import Path

from crystal_mirror.files.ports import FileTrouble
from crystal_node.base.agent_names import folder_name
from crystal_node.derive.artefacts.writer import ArtefactOutcome, ArtefactWriter
from crystal_node.derive.catalog.agents import StagingState, has_files
from crystal_node.derive.catalog.database import Catalog
from crystal_node.sync.files.artefacts import is_made_here

SWEEP_MS = 24 * 3_600_000
_KINDS = ("transcripts", "sessions", "daily")
_META = "swept"


def ask_for_sweep(works: Catalog) -> None:
    """The next run sweeps."""
    works.set_meta(_META, b"0")


def remove_orphans(works: Catalog, writer: ArtefactWriter, root: Path, now_ms: int) -> int:
    """Removes what is left, if it is time to look. Returns how many files went. What a person has changed stays."""
    before = works.meta(_META)
    if before is not None and abs(now_ms - int(before)) < SWEEP_MS:
        return 0
    waiting = {
        folder_name(agent)
        for agent, state, open_ in works.rows(
            "SELECT agent, state, EXISTS (SELECT 1 FROM conversation c WHERE c.agent = a.agent AND dirty_since > 0)"
            " OR EXISTS (SELECT 1 FROM stale_day s WHERE s.agent = a.agent) FROM agent a"
        )
        if open_ or not has_files(StagingState(state))
    }
    noted = {path for (path,) in works.rows("SELECT path FROM work")}
    gone = 0
    for path in _found(root, waiting):
        if path not in noted:
            try:
                gone += writer.remove(path) is ArtefactOutcome.WRITTEN
            except FileTrouble:  # a link on the way, or no right to: not ours
                continue
    if not waiting:
        works.set_meta(_META, b"%d" % now_ms)
    return gone


def _found(root: Path, waiting: set[str]) -> Iterator[str]:
    """Paths below the home that have the names of files that are made. ``remove`` looks what they are, and for links."""
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
