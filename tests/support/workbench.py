"""A memory, and what makes files of it, without a relay: rows are applied as a Core applies them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from crystal_core.replica import Replica
from crystal_mirror.operations import Operation
from crystal_mirror.types import Position
from crystal_node.base.settings import Settings, resolve
from crystal_node.derive.artefacts.builder import ArtefactBuilder, is_known
from crystal_node.derive.artefacts.conversation_files import ConversationFiles, Made
from crystal_node.derive.artefacts.orphans import remove_orphans
from crystal_node.derive.artefacts.writer import ArtefactWriter
from crystal_node.derive.catalog.database import Catalog
from crystal_node.derive.catalog.index import CatalogIndex, IndexChanges
from tests.core.builders import DEVICE, NOW, apply, new_replica

LATER = NOW + 24 * 3_600_000
"""Long after everything that the builders date."""


@dataclass
class Workbench:
    """A Core's home at work. ``own``: the id of its device; rows come from another one unless a test says so."""

    root: Path
    zone: str = "Europe/Berlin"
    own: bytes = b"the Core itself.."[:16]
    told: list[str] = field(default_factory=list[str])
    now: int = LATER
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.settings.home.create()
        self.replica: Replica = new_replica(self.settings.home.database)

    @property
    def settings(self) -> Settings:
        return resolve(
            None, {"CRYSTAL_HOME": str(self.root), "HOME": str(self.root.parent), **self.environment}
        )

    def apply(self, *operations: Operation, device: bytes = DEVICE) -> None:
        apply(self.replica, *operations, device=device)
        position = self.replica.position()
        with self.replica.transaction() as transaction:
            transaction.set_position(Position(position.epoch, position.sequence + 1, position.previous))

    def shop(self) -> ArtefactBuilder:
        """Opened as a process opens it; close it."""
        settings = self.settings
        catalog, writer = Catalog.open(settings.home.works_database), ArtefactWriter(settings.home)
        writer.open()
        database = self.replica.database
        index = CatalogIndex(catalog, database, self.own, lambda agent: is_known(settings, agent))
        maker = ConversationFiles(
            catalog,
            database,
            writer,
            zone=ZoneInfo(self.zone),
            names={DEVICE: "laptop", self.own: "core"},
            tell=self.told.append,
        )
        return ArtefactBuilder(settings, catalog, database, writer, index, maker, self.told.append)

    def run(self) -> tuple[IndexChanges, Made]:
        """One run of the duty."""
        shop = self.shop()
        try:
            changes = shop.index.update(self.now)
            shop.files.prepare(self.now)
            total = Made()
            after = 0
            while due := shop.files.due(self.now, after=after):
                for one in due:
                    _add(total, shop.files.make(one.conversation, now_ms=self.now))
                after = due[-1].conversation
            _add(total, shop.files.make_days())
            total.removed += remove_orphans(shop.catalog, shop.writer, self.root, self.now)
            return changes, total
        finally:
            shop.catalog.close()

    def files(self, *folders: str) -> dict[str, str]:
        """All files below ``agents/`` and ``staging/`` (or those folders) by their paths."""
        found: dict[str, str] = {}
        for folder in folders or ("agents", "staging"):
            for path in sorted((self.root / folder).rglob("*")):
                if path.is_file():
                    found[path.relative_to(self.root).as_posix()] = path.read_text(encoding="utf-8")
        return found

    def everywhere(self) -> bytes:
        """All bytes of the home but for the memory's own database."""
        database = self.settings.home.database.name
        kept = [
            path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not path.name.startswith(database)
        ]
        return b"\0".join(kept)


def known(bench: Workbench, *agents: str) -> None:
    """As if these agents had files here already."""
    for agent in agents:
        (bench.root / "agents" / agent / "memory").mkdir(parents=True, exist_ok=True)


def _add(total: Made, made: Made) -> None:
    total.conversations += made.conversations
    total.written += made.written
    total.removed += made.removed


def texts_of(files: dict[str, str], needles: Sequence[str]) -> set[str]:
    """Which of the needles stand in any of the files."""
    return {needle for needle in needles if any(needle in text for text in files.values())}


def step_at_commits(step: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """For a process that is to die: each commit of works.db is a step, and so is each change that commits by itself."""
    run = Catalog.run
    alone = step(run)

    def stepped(catalog: Catalog, *arguments: Any) -> int:
        return run(catalog, *arguments) if catalog.in_transaction else alone(catalog, *arguments)

    Catalog.run = stepped  # type: ignore[method-assign, assignment]
    Catalog.commit = step(Catalog.commit)  # type: ignore[method-assign]


def quick_folder() -> Path | None:
    """Memory where the system offers it: what kills processes by the hundred need not wait for a disk."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and os.access(shared, os.W_OK) else None
