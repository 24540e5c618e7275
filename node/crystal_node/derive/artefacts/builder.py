"""Builder of the files made from the memory: opens what is needed, updates the index, and makes all files that are due.

One process at a time (``state/works.lock``). The databases belong to one run and are used by one thread at a time.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from crystal_core.database import Database
from crystal_core.llm.errors import LlmError
from crystal_core.llm.port import Llm
from crystal_mirror.membership.cursors import seen_cursors
from crystal_mirror.membership.status import device_name
from crystal_mirror.replication.rebuild import rebuild_pending
from crystal_mirror.snapshots.restore import restore_pending
from crystal_node.base.agent_names import agent_alias, agent_folder
from crystal_node.base.home import Home
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import Settings
from crystal_node.base.wording import counted
from crystal_node.derive.artefacts.conversation_files import ConversationFiles, Made
from crystal_node.derive.artefacts.model_summaries import ModelSummaries
from crystal_node.derive.artefacts.orphans import remove_orphans
from crystal_node.derive.artefacts.writer import ArtefactWriter
from crystal_node.derive.catalog.database import Catalog
from crystal_node.derive.catalog.index import CatalogIndex, IndexChanges
from crystal_node.device.device import Device
from crystal_node.models.llm.discovery import find_llm

LOCK_NAME = "works.lock"

Tell = Callable[[str], None]


def unheard(_text: str) -> None:
    """Discards the text."""


@dataclass
class ArtefactBuilder:
    """Open databases, the index and the files made of them. Made by ``artefact_builder``."""

    settings: Settings
    catalog: Catalog
    database: Database
    writer: ArtefactWriter
    index: CatalogIndex
    files: ConversationFiles
    tell: Tell
    complete: bool = True
    """The memory is not being rebuilt: what is not in it is gone."""

    async def update(self, now_ms: int) -> IndexChanges:
        changes = await asyncio.to_thread(self.index.update, now_ms)
        for agent in changes.agents:
            self.tell(f"{agent[:60]!r} is new here: it waits in staging (`crystal staging list`)")
        return changes

    async def make(self, now_ms: int, progress: Tell = unheard) -> Made:
        """Makes all files that are due. Raises NoRoom, and what the databases raise."""
        total = Made()
        await asyncio.to_thread(self.files.prepare, now_ms)
        async with self._model_summaries() as summaries:
            after = 0
            while due := await asyncio.to_thread(self.files.due, now_ms, after=after):
                for one in due:
                    summary = None
                    if (
                        summaries is not None
                        and (pieces := self.files.conversation(one.conversation)) is not None
                    ):
                        summary = await summaries.summary_of(one.conversation, pieces, quiet=one.quiet)
                    made = await asyncio.to_thread(
                        self.files.make, one.conversation, now_ms=now_ms, digest=summary
                    )
                    _add(total, made)
                after = due[-1].conversation
                progress(f"files of {counted(total.conversations, 'conversation')} made")
        _add(total, await asyncio.to_thread(self.files.make_days))
        if self.complete:
            root = self.settings.home.root
            total.removed += await asyncio.to_thread(remove_orphans, self.catalog, self.writer, root, now_ms)
        if total.removed:
            self.catalog.scrub()
        return total

    @asynccontextmanager
    async def _model_summaries(self) -> AsyncGenerator[ModelSummaries | None]:
        if self.settings.dreams.summary_mode != "llm":
            yield None
            return
        llm: Llm | None = None
        absent = "there is none here"
        try:
            llm = await asyncio.to_thread(find_llm, self.settings)
        except LlmError as error:
            absent = str(error)
        try:
            yield ModelSummaries(self.catalog, self.database, llm, absent)
        finally:
            if llm is not None:
                await llm.aclose()


@asynccontextmanager
async def artefact_builder(
    device: Device, settings: Settings, *, tell: Tell = unheard, wait_seconds: float = 0.0
) -> AsyncGenerator[ArtefactBuilder]:
    """A builder, closed on exit. Raises HomeBusy while another process makes files."""
    home = settings.home
    lock = catalog_lock(home, wait_seconds)
    await lock.acquire_async()
    try:
        writer = ArtefactWriter(home)
        writer.open()
        with Catalog.open(home.works_database) as catalog, Database.open(home.database) as database:
            yield ArtefactBuilder(
                settings,
                catalog,
                database,
                writer,
                CatalogIndex(
                    catalog, database, device.member.device_id, lambda agent: is_known(settings, agent)
                ),
                ConversationFiles(
                    catalog,
                    database,
                    writer,
                    zone=settings.capture.zone(),
                    names=_names(device),
                    tell=tell,
                ),
                tell,
                _is_complete(device),
            )
    finally:
        lock.release()


def catalog_lock(home: Home, wait_seconds: float = 0.0) -> FileLock:
    """Its holder may write works.db and the made files."""
    return FileLock(home.state / LOCK_NAME, purpose="making files of the memory", wait_seconds=wait_seconds)


def is_known(settings: Settings, agent: str) -> bool:
    """Whether an agent had files here before this Core first saw it: it is this device's own, or they came by the file tree."""
    if agent in (settings.agent_id, agent_alias(settings.agent_id)):
        return True
    return (agent_folder(settings.home, agent) / "memory").is_dir()


def _is_complete(device: Device) -> bool:
    """Whether no device reports a later log position than the one applied here."""
    member = device.member
    at = member.replica.position()
    told = max(((each.epoch, each.sequence) for each in seen_cursors(member)), default=(0, 0))
    return not rebuild_pending(member) and not restore_pending(member) and (at.epoch, at.sequence) >= told


def _names(device: Device) -> dict[bytes, str]:
    member = device.member
    return {info.device: device_name(member, info.device) or "" for info in member.log.members()}


def _add(total: Made, made: Made) -> None:
    total.conversations += made.conversations
    total.written += made.written
    total.removed += made.removed
