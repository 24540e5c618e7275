"""Folders that could not be read when everything in them was to be skipped: noted until a transcript is found in them."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest import mock

import apsw
import pytest

from crystal_node.base.settings import resolve
from crystal_node.capture import recorder
from crystal_node.capture.adapter import FoundTranscript
from crystal_node.capture.claude_code import ClaudeCode
from crystal_node.capture.history import step_over
from crystal_node.capture.recorder import LOOK_MS, META_UNREAD, Recorder, note_unread, skip_unread
from crystal_node.device.device import Device, opened
from tests.support.machine import Vault, turn

_OLD = "2020-01-01T00:00:00+00:00"


@pytest.fixture
def device(vault: Vault) -> Iterator[Device]:
    with mock.patch.dict(os.environ, vault.core.environment, clear=True), opened(resolve()) as device:
        yield device


def _unreadable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(path)  # nobody can read it, not even root
    return path


def _noted(device: Device) -> bytes | None:
    return device.journal.meta_get(META_UNREAD)


def test_a_file_that_is_refused_is_no_folder_that_could_not_be_read(device: Device) -> None:
    """It was looked for again with each message, for ever."""
    folder = device.settings.capture.drop_folder / "notes"
    folder.mkdir(parents=True)
    (folder / "passwords.md").write_text("a secret by its name")
    step_over(device)
    assert _noted(device) is None
    asyncio.run(Recorder(device).go_private())
    report = asyncio.run(Recorder(device).go_public())
    assert [Path(path).name for path, _ in report.problems] == ["passwords.md"]
    assert _noted(device) is None


def test_folders_are_looked_at_once_a_minute_and_what_is_in_them_stays_out_also_before(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000
    monkeypatch.setattr(recorder, "uptime_ms", lambda: now)
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_text("")
    folder = device.settings.claude_folder / "projects"
    step_over(device)
    with device.journal.transaction():
        note_unread(device.journal, [str(folder)])
    watcher = Recorder(device)
    assert asyncio.run(watcher.record([elsewhere])).operations == 0
    old = folder / "-work" / "old.jsonl"
    old.parent.mkdir(parents=True)
    old.write_text(turn("said long ago", moment=_OLD))
    now += LOOK_MS - 1
    assert asyncio.run(watcher.record([elsewhere])).operations == 0
    assert _noted(device) is not None, "all folders were listed for one message"
    assert asyncio.run(watcher.record([old])).operations == 0
    now += 1
    assert asyncio.run(watcher.record([elsewhere])).operations == 0
    assert _noted(device) is None


def test_a_look_that_changes_nothing_writes_nothing(device: Device) -> None:
    folder = _unreadable(device.settings.claude_folder / "projects")
    with device.journal.transaction():
        note_unread(device.journal, [str(folder)])
    adapters = [ClaudeCode(device.settings.claude_folder, Path("/home/mara"), "cc-mini")]
    with closing(apsw.Connection(str(device.settings.home.state_database))) as other:
        before = other.pragma("data_version")
        skip_unread(device.journal, adapters)
        assert other.pragma("data_version") == before
    assert str(folder).encode() in (_noted(device) or b"")


def test_a_folder_that_is_noted_during_a_look_stays_noted(device: Device) -> None:
    class Meanwhile(ClaudeCode):
        def discover(self) -> Iterator[FoundTranscript]:
            yield from super().discover()
            with device.journal.transaction():
                note_unread(device.journal, ["/another"])

    folder = device.settings.claude_folder / "projects" / "-mounted"
    folder.mkdir(parents=True)
    (folder / "one.jsonl").write_text(turn("said long ago", moment=_OLD))
    with device.journal.transaction():
        note_unread(device.journal, [str(folder)])
    skip_unread(device.journal, [Meanwhile(device.settings.claude_folder, Path("/home/mara"), "cc-mini")])
    assert b"/another" in (_noted(device) or b"")
    assert str(folder).encode() not in (_noted(device) or b"")


def test_a_folder_that_is_a_loop_of_links_keeps_no_other_transcript_from_being_recorded(
    device: Device, tmp_path: Path
) -> None:
    _unreadable(device.settings.claude_folder / "projects")
    path = tmp_path / "elsewhere.jsonl"
    path.write_text(turn("the tide gauge has four sensors"))
    assert asyncio.run(Recorder(device).record([path])).counts.messages == 1
