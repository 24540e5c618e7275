"""Conversations from before the installation: recorded or skipped, decided once.

Skipping moves the position behind everything in the transcripts of every tool, whether it is recorded or not; of a file that
is found later, chats that began before are left out. The transcripts stay, and `crystal backfill` can still read them.
"""

from enum import StrEnum
from pathlib import Path

from crystal_node.base.clock import now_ms
from crystal_node.capture.adapter import decode_state, encode_state
from crystal_node.capture.line_reader import unsure
from crystal_node.capture.recorder import (
    META_FROM,
    META_UNREAD,
    Recorder,
    RecordReport,
    note_unread,
)
from crystal_node.capture.tools import all_adapters
from crystal_node.device.device import Device
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.journal_values import peek
from crystal_node.device.privacy import read_privacy, write_privacy

_META = "setup.history"


class History(StrEnum):
    """What was decided."""

    RECORDED = "recorded"
    STEPPED_OVER = "stepped-over"


def decided(state_database: Path) -> History | None:
    """The decision on this device; None if there is none yet. Opens no keys."""
    kept = peek(state_database, _META)
    return History(kept.decode()) if kept in {each.value.encode() for each in History} else None


async def record(device: Device) -> RecordReport:
    """Records them. After a kill, the next capture continues."""
    report = await Recorder(device).record()
    with device.journal.transaction():
        device.journal.meta_set(_META, History.RECORDED.value.encode())
        device.journal.meta_set(META_FROM, None)
    return report


def step_over(device: Device) -> int:
    """Skips them, in one transaction. Returns the number of transcripts."""
    journal, now = device.journal, now_ms()
    before: dict[str, bytes | None] = {}
    behind: dict[str, bytes] = {}
    unread: list[str] = []
    for adapter in all_adapters(device.settings, device.settings.person_home):
        for found in adapter.discover():
            if found.is_unread_folder:
                unread.append(str(found.path.absolute()))
            if found.problem is not None:
                continue
            key = str(found.path.absolute())
            before[key] = journal.file_state(key)
            try:
                behind[key] = encode_state(adapter.skip(found.path))
            except FileNotFoundError:
                continue
            except OSError:  # once it can be read, its messages' times decide (`read_part`)
                kept = before[key]
                behind[key] = encode_state(unsure(None if kept is None else decode_state(kept)))
    with journal.transaction():
        for key, state in behind.items():
            if journal.file_state(key) == before[key]:  # else another process has just read on
                journal.set_file_state(key, state)
        journal.meta_set(_META, History.STEPPED_OVER.value.encode())
        journal.meta_set(META_FROM, b"%d" % now)
        note_unread(journal, unread)
    return len(behind)


def carry_on(source: SqliteJournal, target: SqliteJournal) -> None:
    """Lets another home's capture go on where this one's stopped: what was read of each transcript, what was private, and the
    decision. So nothing is read again that was skipped, private or forgotten."""
    states, privacy = source.file_states(), read_privacy(source)
    metas = {name: source.meta_get(name) for name in (_META, META_FROM, META_UNREAD)}
    with target.transaction() as transaction:
        for path, state in states.items():
            target.set_file_state(path, state)
        write_privacy(target, privacy)
        for name, value in metas.items():
            transaction.meta_set(name, value)
