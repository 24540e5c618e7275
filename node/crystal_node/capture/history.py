"""What was said on this machine before Crystal came: recorded, or stepped over. It is decided once.

Stepping over puts a mark behind everything that transcripts hold now, of every tool, whether it is recorded or not. The
transcripts themselves stay, and `crystal backfill` reads them after all.
"""

from enum import StrEnum
from pathlib import Path

from crystal_node.capture.adapter import encode_state
from crystal_node.capture.recorder import Recorder, RecordReport
from crystal_node.capture.tools import all_adapters
from crystal_node.device.device import Device
from crystal_node.device.journal import peek

_META = "setup.history"


class History(StrEnum):
    """What becomes of it."""

    RECORDED = "recorded"
    STEPPED_OVER = "stepped-over"


def decided(state_database: Path) -> History | None:
    """What was decided here; None if nothing was. Opens no keys."""
    kept = peek(state_database, _META)
    return History(kept.decode()) if kept in {each.value.encode() for each in History} else None


async def record(device: Device) -> RecordReport:
    """Records it. Killed in between, the next capture goes on."""
    report = await Recorder(device).record()
    with device.journal.transaction():
        device.journal.meta_set(_META, History.RECORDED.value.encode())
    return report


def step_over(device: Device) -> int:
    """Steps over it, in one transaction. Returns how many transcripts there are."""
    journal = device.journal
    before: dict[str, bytes | None] = {}
    behind: dict[str, bytes] = {}
    for adapter in all_adapters(device.settings, device.settings.person_home):
        for found in adapter.discover():
            if found.problem is not None:
                continue
            key = str(found.path.absolute())
            before[key] = journal.file_state(key)
            try:
                behind[key] = encode_state(adapter.skip(found.path))
            except OSError:  # gone, or unreadable: then it is not recorded either
                continue
    with journal.transaction():
        for key, state in behind.items():
            if journal.file_state(key) == before[key]:  # else another process has just read on in it
                journal.set_file_state(key, state)
        journal.meta_set(_META, History.STEPPED_OVER.value.encode())
    return len(behind)
