"""Actions that other devices may ask for. A request names one of them and gives plain arguments; no path, program or text of a
conversation travels either way, except what the JSON of these commands holds anyway.

Long reads run in a thread with databases of their own. Imports of each action are lazy: most services never run them.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from crystal_mirror.commands.messages import Action, Arguments
from crystal_node.agent.commands.service import ActionHandler, ActionResult, Tell
from crystal_node.base.agent_names import agent_alias
from crystal_node.base.errors import UsageError
from crystal_node.sync.job_context import JobContext

if TYPE_CHECKING:
    from crystal_node.base.settings import Settings
    from crystal_node.safekeeping.backup.folder import BackupOwner

BACKUPS_MAX = 3
"""Within the interval of the service's own backups: repeated requests would push older backups out."""
_HOUR_MS = 3_600_000


def actions_of(work: JobContext) -> dict[Action, ActionHandler]:
    """All actions, by name."""
    return {
        Action.STATUS: partial(_status, work),
        Action.VERIFY: partial(_verify, work),
        Action.SNAPSHOT: partial(_snapshot, work),
        Action.BACKUP: partial(_backup, work),
        Action.BACKFILL: partial(_backfill, work),
        Action.ASK_GRANT: _ask_grant,
        Action.DREAM_WEAVE: partial(_dream_weave, work),
    }


async def _ask_grant(_arguments: Arguments, _tell: Tell) -> ActionResult:
    """Grants nothing: ``health.findings`` shows the request to a person, who may."""
    return ActionResult("it is shown there; a person allows it with `crystal devices grant`")


async def _status(work: JobContext, _arguments: Arguments, _tell: Tell) -> ActionResult:
    from crystal_node.agent.health.status import device_status, status_document
    from crystal_node.base.wording import counted

    found = device_status(work.device)
    told = len(found.stuck) + len(found.concerns)
    text = (
        f"{counted(told, 'thing')} need{'s' if told == 1 else ''} a person"
        if told
        else "nothing needs a person"
    )
    return ActionResult(text, status_document(work.device, found))


async def _verify(work: JobContext, _arguments: Arguments, tell: Tell) -> ActionResult:
    from dataclasses import replace

    from crystal_core.replica import Replica
    from crystal_node.sync.maintenance.verification import Verification, verify

    def read() -> Verification:
        device = work.device
        replica = Replica.open(device.settings.home.database, device.member.secret)
        try:
            return verify(replace(device, replica=replica))
        finally:
            replica.close()

    tell("reading every row", 0, 0)
    found = await asyncio.to_thread(read)
    rows = sum(count for _, count in found.tables)
    said = (
        "the rows agree with their digest" if found.ok else "the rows DO NOT agree with what they should be"
    )
    return ActionResult(
        f"{said}: {rows:,} rows, {found.sequence:,} entries of epoch {found.epoch}",
        {
            "ok": found.ok,
            "digest": found.computed,
            "kept": found.kept,
            "mirror": found.stated,
            "epoch": found.epoch,
            "seq": found.sequence,
            "rows": rows,
            "seconds": round(found.seconds, 3),
        },
    )


async def _snapshot(work: JobContext, _arguments: Arguments, tell: Tell) -> ActionResult:
    from crystal_mirror.entries.control_state import newest_snapshot
    from crystal_node.base.errors import HomeBusy

    tell("making a snapshot", 0, 0)
    await work.syncer.round()
    if not await work.syncer.snapshot(due=False):
        raise HomeBusy("another process there makes a snapshot, or writes to the log")
    await work.syncer.round()
    newest = newest_snapshot(work.device.replica)
    if newest is None:
        raise HomeBusy("the snapshot was overtaken by other work and is not announced yet")
    return ActionResult(
        f"snapshot of epoch {newest.epoch}, slot {newest.sequence:,}",
        {"epoch": newest.epoch, "seq": newest.sequence, "digest": newest.digest.hex()},
    )


async def _backup(work: JobContext, _arguments: Arguments, tell: Tell) -> ActionResult:
    from crystal_node.device.activity import Activity, note
    from crystal_node.safekeeping.backup.creation import Subject, back_up

    settings = work.settings
    folder = settings.backup.folder
    if folder is None:
        raise UsageError(
            "no folder for backups is set there", hint="`crystal backup setup` on that machine sets it."
        )
    subject = Subject.of(work.device)
    await asyncio.to_thread(_check_backups, settings, subject.owner, work.now_ms())
    done = await asyncio.to_thread(
        back_up,
        settings,
        subject,
        folder,
        count=settings.backup.keep,
        marked=True,
        tell=lambda text: tell(text, 0, 0),
    )
    note(work.device.journal, Activity.BACKUP, work.now_ms())
    return ActionResult(
        f"backup {done.folder.name} made and read back",
        {"backup": done.folder.name, "deleted": len(done.gone), "seconds": round(done.seconds, 3)},
    )


def _check_backups(settings: "Settings", owner: "BackupOwner", now_ms: int) -> None:
    """Raises Usage if enough were made lately, LocalStorage if the folder is missing."""
    from crystal_node.safekeeping.backup.creation import ready_destination
    from crystal_node.safekeeping.backup.folder import backups

    assert settings.backup.folder is not None, "looked at before"
    destination = ready_destination(settings, settings.backup.folder, marked=True)
    since = now_ms - settings.backup.every_hours * _HOUR_MS
    own = [each.manifest for each in backups(destination) if each.is_of(owner)]
    if sum(manifest is not None and manifest.made_ms > since for manifest in own) >= BACKUPS_MAX:
        raise UsageError(
            f"{BACKUPS_MAX} backups were made within {settings.backup.every_hours} hours, and older ones are to stay",
            hint="`crystal backup` on that machine makes one more.",
        )


async def _backfill(work: JobContext, arguments: Arguments, tell: Tell) -> ActionResult:
    from crystal_node.capture.backfill import BackfillRequest, backfill
    from crystal_node.capture.history import History, decided

    if not arguments.dry_run and decided(work.settings.home.state_database) is History.STEPPED_OVER:
        raise UsageError(
            "what was said there before Crystal came was left out on purpose, and is not recorded by request",
            hint="`crystal backfill` on that machine does it.",
        )
    request = BackfillRequest(
        agent=arguments.agent, tool=arguments.mode, dry_run=arguments.dry_run, limit=arguments.limit
    )
    result = await backfill(work.device, request, tell)
    document = dict(result.document())
    document["problems"] = len(result.problems)  # which files they are is that machine's own
    counted = f"{result.new:,} new of {result.chunks:,} pieces in {result.files:,} transcripts"
    return ActionResult(counted if arguments.dry_run else f"{counted}; {result.taken:,} recorded", document)


async def _dream_weave(work: JobContext, arguments: Arguments, tell: Tell) -> ActionResult:
    from crystal_node.base.timespans import parse_since
    from crystal_node.derive.weaving import WeaveMode, WeaveRequest
    from crystal_node.derive.weaving.weave import weave

    if arguments.mode and arguments.mode not in set(WeaveMode):
        raise UsageError(
            f"there is no mode {arguments.mode[:20]!r}", hint=f"There are: {', '.join(WeaveMode)}."
        )
    _check_live(work.settings, arguments.agent)
    most = work.settings.dreams.tokens_max
    request = WeaveRequest(
        agent=arguments.agent,
        mode=WeaveMode(arguments.mode) if arguments.mode else WeaveMode.INCREMENTAL,
        since=parse_since(arguments.since, work.now_ms(), work.settings.capture.nameless_zone())
        if arguments.since
        else 0,
        dry_run=arguments.dry_run,
        budget=min(arguments.limit or most, most),
    )
    result = await weave(work.device, request, tell)
    return ActionResult(result.text or result.state.value, result.document())


def _check_live(settings: "Settings", agent: str) -> None:
    """Other devices cannot have an agent woven that is in staging or rejected. Raises Usage."""
    from crystal_node.derive.catalog.agents import StagingState, staged_agents

    if agent in ("", settings.agent_id, agent_alias(settings.agent_id)):
        return
    if not any(one.agent == agent and one.state is StagingState.LIVE for one in staged_agents(settings.home)):
        raise UsageError(
            "that agent is not live there, and nothing of it is woven by request",
            hint="`crystal staging list` on that machine shows how it stands.",
        )
