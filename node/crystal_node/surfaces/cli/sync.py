"""``crystal sync``: one full round in both directions, or continuously."""

import asyncio
from typing import Annotated

import typer

from crystal_mirror.membership.status import status
from crystal_node.agent.daemon.forget_jobs import run_forget_jobs
from crystal_node.base.events import WatchEvent
from crystal_node.base.notice_texts import notice_text
from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted, iso, size
from crystal_node.device.device import Device, opened
from crystal_node.device.enrolment import found_vault, own_relay_lost
from crystal_node.device.planned_deletion import read_planned
from crystal_node.device.runner import TokenRefused
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.sync.files.rounds import words as file_words
from crystal_node.sync.job_context import JobContext
from crystal_node.sync.syncer import SyncResult, sync_once, syncing

Watch = Annotated[
    bool,
    typer.Option(
        "--watch", help="Go on: record as conversations grow, send and fetch at once, until stopped."
    ),
]


def run(watch: Watch = False, as_json: Json = False) -> None:
    """Send what this machine recorded, and fetch what others did.

    With --watch it also captures, and goes on until it is stopped by Ctrl-C or SIGTERM. A network that is away is no error
    then: it is tried again, from 5 seconds to 10 minutes apart.

    Example:

        crystal sync --watch
    """
    with opened(resolve()) as device:
        if watch:
            # Lazy: a single round starts without the recorder and the file watcher.
            from crystal_node.agent.watcher import watch_device

            asyncio.run(watch_device(device, as_json=as_json))
        else:
            try:
                asyncio.run(_once(device, as_json))
            except TokenRefused:
                if not asyncio.run(own_relay_lost(device.settings)):
                    raise
                asyncio.run(found_vault(device.settings, ""))
                note("The relay in this home had lost the vault. It is registered there again.")
                asyncio.run(_once(device, as_json))


async def _once(device: Device, as_json: bool) -> None:
    async with syncing(device, "crystal sync", None if as_json else note) as syncer:
        result = await sync_once(syncer)
        await run_forget_jobs(JobContext(device, syncer, _note_failure), note)
        embedded = await syncer.embed_backlog()  # last: it may take hours, and can be interrupted
    stream_status = status(device.member)
    planned = read_planned(device.journal)
    if result.problem and not as_json:
        note(f"{result.problem[:1].upper()}{result.problem[1:]}; the next sync tries again.")
    if as_json:
        report = result.report
        emit(
            {
                "role": "core" if device.member.is_core else "node",
                "pushed_bytes": report.bytes_pushed,
                "pulled_bytes": report.bytes_pulled,
                "collected": report.operations_collected,
                "applied": report.operations_applied,
                "durable": report.settled,
                "embedded": result.embedded + embedded,
                "restored": report.restored,
                "rebuilt": report.rebuilt,
                "pending": stream_status.pending + stream_status.stored,
                "bytes_up": result.traffic.bytes_up,
                "bytes_down": result.traffic.bytes_down,
                "requests": result.traffic.requests,
                "seconds": round(result.seconds, 3),
                "problem": result.problem or None,
                "files": _files_document(result),
                "deletion_due": iso(planned.due * 1000) if planned else None,
                "notices": [
                    {"name": name, "detail": detail} for name, detail in stream_status.notices.items()
                ],
            }
        )
        return
    moved = [words for words in (result.words(), file_words(result.files) if result.files else "") if words]
    words = ", ".join(moved) or "nothing to do"
    traffic = f"{size(result.traffic.bytes_up)} up, {size(result.traffic.bytes_down)} down"
    say(f"Synced in {result.seconds:.2f} s: {words} ({traffic}).")
    if embedded:
        say(f"Then {counted(embedded, 'text')} got vectors.")
    if stream_status.pending + stream_status.stored:
        say(f"{stream_status.pending + stream_status.stored} of this machine's changes wait for the Core.")
    for name, detail in stream_status.notices.items():
        say(f"! {notice_text(name)} ({detail})")
    if planned is not None:
        say(f"! The relay deletes this vault on {planned.day}. To call it off: `crystal vault keep`.")
    _say_files(result)


def _note_failure(event: WatchEvent, text: str) -> None:
    if event is WatchEvent.FAILED:
        note(f"! {text}")


def _files_document(result: SyncResult) -> dict[str, object] | None:
    report = result.files
    if report is None:
        return {"problem": result.files_problem} if result.files_problem else None
    return {
        "problem": result.files_problem or None,
        "halted": report.halted or None,
        "tree": report.files,
        "offered": report.put,
        "deleted": report.dropped,
        "fetched": report.fetched,
        "removed": report.removed,
        "parts_put": report.parts_put,
        "parts_fetched": report.parts_fetched,
        "waiting": report.waiting,
        "conflicts": report.conflicts,
        "refused": len(report.refused),
        "lacking": len(report.lacking),
        "busy": len(report.busy),
        "withheld": len(report.withheld),
    }


def _say_files(result: SyncResult) -> None:
    if result.files_problem:
        note(f"Files: {result.files_problem}; the next sync tries again.")
    report = result.files
    if report is None:
        return
    if report.halted:
        say(f"! Files are not synced: {report.halted}. `crystal files status` says what to do.")
    if report.withheld:
        say(f"! {counted(len(report.withheld), 'deletion')} of files wait for `crystal files confirm`.")
    for path in report.conflicts:
        say(f"! Two devices changed a file; this one's version is kept as {path!r}.")
    refused = len(report.refused) + len(report.lacking)
    if refused:
        say(f"{counted(refused, 'file')} could not be synced; `crystal files status` lists them.")
