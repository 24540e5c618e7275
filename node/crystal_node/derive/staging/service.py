"""Staging of new agents, one step at a time (``catalog.agents``). Each step can be repeated; a state is stored before files go.

gathering   ``ConversationFiles`` writes transcripts to staging/<agent>/transcripts/ until all are complete
ready       the marker staging/<agent>/READY exists
backfill    ``ConversationFiles`` makes transcripts, summaries and logs below agents/<agent>/; staging keeps its copies
asking      nothing, until a person says how to weave
weaving     the Dream Weaver reads everything; other agents go on meanwhile
live        staging/<agent>/ is removed
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from crystal_crypto.errors import CrystalError
from crystal_mirror.operations import TARGETS_MAX, Forget
from crystal_node.base.agent_names import folder_name
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import HomeBusy, describe, passes
from crystal_node.base.home import FILE_MODE, Home
from crystal_node.base.settings import Settings, with_current_options
from crystal_node.derive.artefacts.builder import ArtefactBuilder, Tell, artefact_builder, unheard
from crystal_node.derive.catalog.agents import (
    WAITING,
    CannotStage,
    Staged,
    StagingEvent,
    StagingState,
    Weave,
    agents_in,
    find_staged,
    next_state,
)
from crystal_node.derive.catalog.index import set_state
from crystal_node.derive.weaving import WeaveMode, WeaveRequest, WeaveState
from crystal_node.device.device import Device
from crystal_node.device.privacy import PrivateNow
from crystal_node.models.llm.discovery import find_llm
from crystal_node.sync.files.artefacts import staging_folder
from crystal_node.sync.files.folders import folder_of, troubles

NOTING_SECONDS = 60.0
"""How long to wait for another process that makes files."""
GATHERING_MS = 3600 * 1000
"""An agent that is never silent is ready after this long."""
MARKER_NAME = "READY"
_MARKER = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Does not wait for a reader if a pipe has that name."""
Weaver = Callable[[str, Weave], Awaitable[str]]
"""Weaves an agent's past. Returns why it did not finish, "" if it did."""


_log = logging.getLogger("crystal_node.derive.staging")


@dataclass
class Moves:
    """``lines``: what happened, for people. ``weaving``: agents whose past is to be woven now, and how. ``waiting``: whether
    any agent is not live yet."""

    lines: list[str] = field(default_factory=list[str])
    weaving: list[tuple[str, Weave]] = field(default_factory=list[tuple[str, Weave]])
    waiting: bool = False


class StagingService:
    """Staging in one builder, after its update and a run of making files."""

    def __init__(self, builder: ArtefactBuilder) -> None:
        self._builder = builder
        self._catalog = builder.catalog

    def named(self, given: str) -> Staged:
        return find_staged(agents_in(self._catalog), given)

    async def move_on(self, now_ms: int, only: str | None = None) -> Moves:
        """Advances every staged agent, or one, as far as it goes by itself. Raises NoRoom, and what the databases raise."""
        moves = Moves()
        for one in agents_in(self._catalog):
            moves.waiting |= one.state in WAITING
            if one.state in WAITING and not one.failure and only in (None, one.agent):
                try:
                    await self._move_one(one.agent, now_ms, moves)
                except CrystalError as error:
                    self.fail(one.agent, describe(error).message)
                    moves.lines.append(f"{_name(one.agent)}: {describe(error).message}")
        self.clean()
        return moves

    def hurry(self, agent: str, now_ms: int, weave: Weave | None) -> None:
        """Go on now, as a person asked: retry a failure, take ``weave`` as the answer, wait for nothing.

        Raises CannotStage if the agent is live already.
        """
        one = self.named(agent)
        if one.state is StagingState.LIVE:
            raise CannotStage(
                f"{_name(one.agent)} is live already", hint="`crystal dream-weave` weaves its past."
            )
        chosen = None if weave is None else weave.value
        with self._catalog.transaction():
            if one.state is StagingState.REJECTED:
                set_state(
                    self._catalog,
                    one.agent,
                    next_state(one.state, StagingEvent.RUN),
                    now_ms,
                    remake=True,
                    weave=chosen,
                )
            self._catalog.run(
                "UPDATE agent SET failure = '', weave = coalesce(?2, weave) WHERE agent = ?1",
                (one.agent, chosen),
            )
            self._catalog.run(
                "UPDATE conversation SET changed_at = 0 WHERE agent = ? AND dirty_since > 0", (one.agent,)
            )

    def reject(self, agent: str, now_ms: int) -> None:
        """Make no files of this agent from now on. Raises CannotStage if it is not staged."""
        one = self.named(agent)
        if one.state is not StagingState.REJECTED:
            set_state(
                self._catalog,
                one.agent,
                next_state(one.state, StagingEvent.REJECT),
                now_ms,
                remake=True,
                weave="",
            )

    def woven(self, agent: str, why_not: str, now_ms: int) -> None:
        """Records how weaving ended, if the agent still waits for it."""
        with self._catalog.transaction():
            state = self._state(agent)
            if state is not StagingState.WEAVING:
                return
            if why_not:
                self.fail(agent, why_not)
            else:
                set_state(self._catalog, agent, next_state(state, StagingEvent.WOVEN), now_ms, remake=False)

    def fail(self, agent: str, why: str) -> None:
        """Records a failure. The agent keeps its state and its files."""
        self._catalog.run(
            "UPDATE agent SET failure = ? WHERE agent = ?", (why or "for an unknown reason", agent)
        )
        self._builder.tell(f"staging of {_name(agent)} failed: {why}; `crystal staging run` tries again")

    def clean(self) -> None:
        """Removes the staging folders of agents that are no longer staged."""
        staging = self._builder.settings.home.staging
        waiting = {folder_name(one.agent) for one in agents_in(self._catalog) if one.state in WAITING}
        for folder in _folders(staging):
            if folder.name not in waiting:
                remove_staging(folder)
                self._catalog.run(
                    "DELETE FROM work WHERE path >= ?1 AND path < ?2",
                    (f"staging/{folder.name}/", f"staging/{folder.name}0"),
                )
        self._catalog.run(
            "UPDATE conversation SET staged = 0 WHERE staged = 1 AND agent IN"
            " (SELECT agent FROM agent WHERE state IN ('live', 'rejected'))"
        )

    async def _move_one(self, agent: str, now_ms: int, moves: Moves) -> None:
        while True:
            one = self.named(agent)
            event = await self._event(one, now_ms)
            if event is None:
                if one.state is StagingState.WEAVING:
                    moves.weaving.append((agent, Weave(one.weave or Weave.EXTRACTIVE)))
                return
            after = next_state(one.state, event)
            if after is StagingState.READY:
                self._mark(agent)
            weave = one.weave or self._builder.settings.dreams.staging
            set_state(
                self._catalog,
                agent,
                after,
                now_ms,
                remake=after is StagingState.BACKFILL,
                weave=weave if after is StagingState.WEAVING else None,
            )
            line = f"{_name(agent)}: {self.named(agent).words}"
            moves.lines.append(line)
            if after in (StagingState.ASKING, StagingState.LIVE):
                self._builder.tell(f"staging of {line}")

    async def _event(self, one: Staged, now_ms: int) -> StagingEvent | None:
        """The next event of an agent, None if it waits."""
        weave = Weave(one.weave or self._builder.settings.dreams.staging)
        match one.state:
            case StagingState.GATHERING:
                complete = one.staged == one.conversations
                if not complete:
                    self._raise_problem(one.agent)
                silent = not one.open or now_ms - one.since >= GATHERING_MS or bool(one.weave)
                return StagingEvent.WRITTEN if complete and silent else None
            case StagingState.READY:
                self._mark(one.agent)
                return StagingEvent.BEGIN
            case StagingState.BACKFILL:
                if one.made < one.conversations:
                    await self._builder.make(now_ms)
                    one = self.named(one.agent)
                if one.made < one.conversations:
                    self._raise_problem(one.agent)
                    return None
                return {Weave.ASK: StagingEvent.MADE, Weave.NEVER: StagingEvent.MADE_NEVER}.get(
                    weave, StagingEvent.MADE_WEAVE
                )
            case StagingState.ASKING:
                return {Weave.ASK: None, Weave.NEVER: StagingEvent.NEVER}.get(weave, StagingEvent.WEAVE)
            case StagingState.WEAVING:
                return StagingEvent.NEVER if weave is Weave.NEVER else None
            case _:
                return None

    def _raise_problem(self, agent: str) -> None:
        problem = self._catalog.value(
            "SELECT problem FROM conversation WHERE agent = ? AND problem <> '' LIMIT 1", (agent,)
        )
        if problem is not None:
            raise CannotStage(f"a file cannot be written: {problem}", hint="Mend that, then run it again.")

    def _mark(self, agent: str) -> None:
        """Writes the marker of complete transcripts in staging."""
        path = f"{staging_folder(agent)}/{MARKER_NAME}"
        with folder_of(self._builder.settings.home.root, path, create=True) as found, troubles():
            assert found is not None, "the folder was made"
            folder, name = found
            descriptor = os.open(name, _MARKER, FILE_MODE, dir_fd=folder)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.fsync(folder)

    def _state(self, agent: str) -> StagingState | None:
        found = self._catalog.value("SELECT state FROM agent WHERE agent = ?", (agent,))
        return None if found is None else StagingState(found)


def clear_staging(home: Home) -> bool:
    """Removes staging and the catalog from a device that is no longer the Core. Returns whether there was any.

    Requires ``catalog_lock``, and that no process has the catalog open.
    """
    folders = _folders(home.staging)
    for folder in folders:
        remove_staging(folder)
    had = home.works_database.exists()
    for suffix in ("-wal", "-shm", ""):
        home.works_database.with_name(home.works_database.name + suffix).unlink(missing_ok=True)
    return had or bool(folders)


def remove_staging(folder: Path) -> None:
    """Removes an agent's folder, and staging/ with the last one."""
    shutil.rmtree(folder)
    with suppress(OSError):
        folder.parent.rmdir()


def forget_agent(device: Device, builder: ArtefactBuilder, agent: str) -> tuple[int, int]:
    """Forgets on all devices what only this agent said. Returns how many messages that is, and how many stay because other
    agents said them too, or a memory or a document holds them."""
    database = builder.database
    said = int(database.value("SELECT count(DISTINCT chunk) FROM occurrences WHERE agent = ?", (agent,)))
    alone = [
        bytes(row[0])
        for row in database.rows(
            "SELECT c.forget_hash FROM chunks c WHERE c.rowid IN (SELECT chunk FROM occurrences WHERE agent = ?1)"
            " AND NOT EXISTS (SELECT 1 FROM occurrences o WHERE o.chunk = c.rowid AND o.agent <> ?1)"
            " AND NOT EXISTS (SELECT 1 FROM memories m WHERE m.chunk = c.rowid)"
            " AND NOT EXISTS (SELECT 1 FROM document_parts d WHERE d.chunk = c.rowid)"
            " AND NOT EXISTS (SELECT 1 FROM provisional_places p WHERE p.chunk = c.rowid"
            " AND (p.category IS NOT NULL OR p.path IS NOT NULL OR p.agent <> ?1))",
            (agent,),
        )
    ]
    for start in range(0, len(alone), TARGETS_MAX):
        device.accept([Forget(tuple(alone[start : start + TARGETS_MAX]))])
    return len(alone), said - len(alone)


def _folders(staging: Path) -> list[Path]:
    if staging.is_symlink() or not staging.is_dir():
        return []
    return [folder for folder in sorted(staging.iterdir()) if folder.is_dir() and not folder.is_symlink()]


def _name(agent: str) -> str:
    return repr(agent[:60])


async def advance(
    device: Device,
    settings: Settings,
    weaver: Weaver,
    *,
    only: str | None = None,
    before: Callable[[StagingService], None] | None = None,
    tell: Tell = unheard,
    progress: Tell = unheard,
    wait_seconds: float = 0.0,
) -> Moves:
    """Updates the catalog, makes files, advances all staged agents or one, then weaves, with the catalog free meanwhile.

    ``before`` is called with the service before anything moves.

    Raises:
        HomeBusy: another process makes files. NoRoom, and what the databases raise.
    """
    async with artefact_builder(device, settings, tell=tell, wait_seconds=wait_seconds) as builder:
        staging = StagingService(builder)
        changes = await builder.update(now_ms())
        if changes.behind:
            return Moves(["the memory is being rebuilt: staging waits"])
        if before is not None:
            before(staging)
        await builder.make(now_ms(), progress)
        moves = await staging.move_on(now_ms(), only)
    for agent, how in moves.weaving:
        why_not = await _woven(weaver, agent, how)
        if why_not is None:
            continue
        async with artefact_builder(device, settings, tell=tell, wait_seconds=NOTING_SECONDS) as builder:
            staging = StagingService(builder)
            staging.woven(agent, why_not, now_ms())
            staging.clean()
            moves.lines.append(f"{agent[:60]!r}: {staging.named(agent).words}")
    return moves


async def _woven(weaver: Weaver, agent: str, how: Weave) -> str | None:
    """Why weaving did not finish, "" if it did, None to try again later (busy, or private mode). Failures of the whole home are
    raised; one of an agent keeps no other from being woven."""
    try:
        return await weaver(agent, how)
    except (HomeBusy, PrivateNow):
        return None
    except CrystalError as error:
        return describe(error).message
    except Exception as error:
        if passes(error):
            raise
        _log.exception("weaving a staged agent: a mistake in Crystal")
        return f"a mistake in Crystal: {type(error).__name__}"


def dream_weaver(device: Device, progress: Tell = unheard) -> Weaver:
    """The Dream Weaver for staging: weaves everything, with or without a language model as chosen."""

    async def run(agent: str, how: Weave) -> str:
        if how is Weave.LLM and not await _has_model(device):
            return "no language model was found (`crystal config set llm_provider`), and one was wanted"
        from crystal_node.derive.weaving.weave import (
            weave,
        )  # lazy: the Core's service at rest would keep the weaver

        request = WeaveRequest(
            agent=agent,
            mode=WeaveMode.FULL,
            provider="none" if how is Weave.EXTRACTIVE else "",
            needs_model=how is Weave.LLM,
        )
        result = await weave(device, request, lambda text, _done, _total: progress(text))
        return result.text if result.state is WeaveState.BUDGET else ""

    return run


async def _has_model(device: Device) -> bool:
    """Raises LlmError if the configured model cannot be used."""
    llm = await asyncio.to_thread(find_llm, with_current_options(device.settings))
    if llm is not None:
        await llm.aclose()
    return llm is not None
