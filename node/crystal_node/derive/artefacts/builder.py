"""All that making files takes, put together from a device, and one run of it.

One process at a time works here (``state/works.lock``). The databases are opened by the run and used by one thread at a time.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crystal_core.database import Database
from crystal_mirror.membership.cursors import seen_cursors
from crystal_mirror.membership.status import device_name
from crystal_mirror.replication.rebuild import rebuild_pending
from crystal_mirror.snapshots.restore import restore_pending
from crystal_node.base.agent_names import agent_folder
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

if TYPE_CHECKING:
    from crystal_core.llm.port import Llm

LOCK_NAME = "works.lock"

Tell = Callable[[str], None]


def unheard(_text: str) -> None:
    """Nobody listens."""


@dataclass
class ArtefactBuilder:
    """Open databases and what works on them. Made by ``artefact_builder``."""

    settings: Settings
    works: Catalog
    database: Database
    writer: ArtefactWriter
    index: CatalogIndex
    maker: ConversationFiles
    tell: Tell
    complete: bool = True
    """The memory is not being made anew: what is not in it is gone."""

    async def look(self, now_ms: int) -> IndexChanges:
        looked = await asyncio.to_thread(self.index.look, now_ms)
        for agent in looked.agents:
            self.tell(f"{agent[:60]!r} is new here: it waits in staging (`crystal staging list`)")
        return looked

    async def make(self, now_ms: int, progress: Tell = unheard) -> Made:
        """Makes all that is due. Raises NoRoom, and what the databases raise."""
        total = Made()
        await asyncio.to_thread(self.maker.prepare, now_ms)
        async with self._digests() as digests:
            after = 0
            while due := await asyncio.to_thread(self.maker.due, now_ms, after=after):
                for one in due:
                    digest = None
                    if (
                        digests is not None
                        and (pieces := self.maker.conversation(one.conversation)) is not None
                    ):
                        digest = await digests.digest_of(one.conversation, pieces, quiet=one.quiet)
                    made = await asyncio.to_thread(
                        self.maker.make, one.conversation, now_ms=now_ms, digest=digest
                    )
                    _add(total, made)
                after = due[-1].conversation
                progress(f"files of {counted(total.conversations, 'conversation')} made")
        _add(total, await asyncio.to_thread(self.maker.make_days))
        if self.complete:
            root = self.settings.home.root
            total.removed += await asyncio.to_thread(remove_orphans, self.works, self.writer, root, now_ms)
        if total.removed:
            self.works.scrub()
        return total

    @asynccontextmanager
    async def _digests(self) -> AsyncGenerator[ModelSummaries | None]:
        if self.settings.dreams.summary_mode != "llm":
            yield None
            return
        from crystal_core.llm.errors import LlmError
        from crystal_node.derive.weaving import llm_of

        llm: Llm | None = None
        absent = "there is none here"
        try:
            llm = await asyncio.to_thread(llm_of, self.settings)
        except LlmError as error:
            absent = str(error)
        try:
            yield ModelSummaries(self.works, self.database, llm, absent)
        finally:
            if llm is not None:
                await llm.aclose()


@asynccontextmanager
async def artefact_builder(
    device: Device, settings: Settings, *, tell: Tell = unheard, wait_seconds: float = 0.0
) -> AsyncGenerator[ArtefactBuilder]:
    """Opens what is needed and closes it. Raises HomeBusy while another process works here."""
    home = settings.home
    lock = catalog_lock(home, wait_seconds)
    await lock.acquire_async()
    try:
        writer = ArtefactWriter(home)
        writer.open()
        with Catalog.open(home.works_database) as works, Database.open(home.database) as database:
            yield ArtefactBuilder(
                settings,
                works,
                database,
                writer,
                CatalogIndex(
                    works, database, device.member.device_id, lambda agent: is_known(settings, agent)
                ),
                ConversationFiles(
                    works,
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
    """Whoever holds it may write works.db and the files that are made."""
    return FileLock(home.state / LOCK_NAME, purpose="making files of the memory", wait_seconds=wait_seconds)


def is_known(settings: Settings, agent: str) -> bool:
    """Whether an agent had files here before this Core first saw it: it is this device's own, or they came by the file tree."""
    return agent == settings.agent_id or (agent_folder(settings.home, agent) / "memory").is_dir()


def _is_complete(device: Device) -> bool:
    """Whether no device tells of more of the log than has been applied here."""
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
