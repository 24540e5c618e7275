"""Removal of forgotten content from what was woven: at the start of each run, and by a job of its own.

Only the machine that wove knows what it had read, so a former Core does this too, for the journals of its runs. The reference
belongs to the next Core then, and is left alone unless it still is as this machine wrote it.
"""

from crystal_core.weaver.database import WeaverDatabase
from crystal_core.weaver.documents import CONTEXT, EXTRACT, REFERENCE, journal, journal_name, reference
from crystal_core.weaver.extract import context_of
from crystal_core.weaver.forget import has_let_go, let_go
from crystal_core.weaver.records import Method, Run, WeaverBatch, decode_outcome
from crystal_core.weaver.sources import day_of
from crystal_node.base.clock import now_ms
from crystal_node.derive.weaving.output import DeviceOutput
from crystal_node.device.device import Device

_SUPPRESSED = "SELECT forget_hash FROM suppressed"


def remove_forgotten(device: Device, database: WeaverDatabase) -> int:
    """Removes the parts of journals made of forgotten texts. Returns how many. Idempotent."""
    forgotten = [bytes(mark) for (mark,) in device.replica.database.each(_SUPPRESSED)]
    gone = let_go(database, forgotten)
    days: dict[tuple[str, str], Run] = {(run.id, batch.day): run for run, batch in gone}
    for (_, day), run in days.items():
        _write_journal(device, database, run, day)
    for run in {run.agent: run for run in days.values()}.values():
        _write_reference(device, database, run)
        _write_context(device, database, run)
    if gone:
        has_let_go(database, gone)
        database.scrub()
    return len(_parts(gone))


def _write_journal(device: Device, database: WeaverDatabase, run: Run, day: str) -> None:
    output = DeviceOutput(device, database, run.agent, lambda: None)
    outcomes = [decode_outcome(data) for _, data in database.outcomes(run.id, day)]
    zone = device.settings.capture.zone()
    output.rewrite(
        journal_name(day, run.id), journal(run.agent, day, run.id, outcomes, zone), run.method, run.id
    )


def _write_reference(device: Device, database: WeaverDatabase, run: Run) -> None:
    output = DeviceOutput(device, database, run.agent, lambda: None)
    outcomes = [(day, decode_outcome(data)) for _, day, data in database.all_outcomes(run.agent, run.method)]
    models = ", ".join(sorted({outcome.model for _, outcome in outcomes if outcome.model}))
    today = day_of(now_ms(), device.settings.capture.zone())
    written = database.written(run.agent, REFERENCE)
    if written is not None and (device.member.is_core or output.is_as_written(REFERENCE)):
        output.rewrite(REFERENCE, reference(run.agent, outcomes, models, today), written[1], run.id)


def _write_context(device: Device, database: WeaverDatabase, run: Run) -> None:
    """Rewrites the extract, which quotes sentences."""
    output = DeviceOutput(device, database, run.agent, lambda: None)
    text = context_of(database, run.agent, now_ms(), device.settings.capture.zone())
    for name in (CONTEXT, EXTRACT):
        written = database.written(run.agent, name)
        if text is None or written is None or written[1] is not Method.EXTRACTIVE:
            continue
        if device.member.is_core or output.is_as_written(name):
            output.rewrite(name, text, Method.EXTRACTIVE, run.id)


def _parts(gone: list[tuple[Run, WeaverBatch]]) -> set[tuple[str, int]]:
    return {(batch.run, batch.number) for _, batch in gone}
