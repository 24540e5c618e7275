"""Copies on a real device: the background service makes them, `crystal sync` sends them, `crystal status` tells of them."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from msgspec import structs

from crystal_node.base.clock import now_ms
from crystal_node.base.settings import resolve
from crystal_node.derive.sessions import service
from crystal_node.derive.sessions.copies import SessionCopies
from crystal_node.derive.sessions.job import jobs
from crystal_node.derive.sessions.layout import HEAD_NAME, Head
from crystal_node.derive.sessions.segments import MERGE_COUNT
from crystal_node.device.device import opened
from crystal_node.sync.job_context import JobContext
from crystal_node.sync.syncer import Syncer
from tests.node.derive.sessions.support import head_of, lines, write
from tests.support.machine import Machine, Vault, transcript
from tests.support.watchers import until

NAME = "5f0c6f0e-0b5e-4d0e-9a52-0f3f9f0f0a00"
SECOND = "5f0c6f0e-0b5e-4d0e-9a52-0f3f9f0f0a01"
SECRET = "The marmot hides its nuts below the pier."


def _own(machine: Machine) -> Head:
    [head] = SessionCopies(machine.home).of("claude-code", NAME)
    return head


def _bytes(machine: Machine) -> bytes:
    return b"".join(SessionCopies(machine.home).read(_own(machine)))


def _copied(machine: Machine, path: Path) -> None:
    """The service runs until it has copied the transcript."""

    def whole() -> bool:
        copies = SessionCopies(machine.home)
        return [each.main.bytes for each in copies.of("claude-code", NAME)] == [path.stat().st_size]

    with _recording(machine):
        until(whole, "the copy", 60)


async def test_copies_without_forgotten_texts_have_no_database_opened_each_minute(vault: Vault) -> None:
    with mock.patch.dict(os.environ, vault.core.environment, clear=True), opened(resolve()) as device:
        async with device.online() as store:
            work = JobContext(device, Syncer(device, store, purpose="a test"), lambda _event, _text: None)
            [forget] = [each for each in jobs(work) if each.name == "sessions-forget"]
            path = device.settings.home.sessions_database
            assert await forget.run() == ""
            path.unlink()
            assert await forget.run() == ""
            assert not path.exists(), "it was opened once"
            device.settings.home.files_database.touch()  # as when a copy arrived
            assert await forget.run() == ""
            assert path.exists()
            work.syncer.close()


def test_what_was_copied_reaches_the_other_machine_by_a_sync(vault: Vault) -> None:
    node = vault.add()
    path = transcript(node, "The first marmot.", name=NAME)
    assert "sessions" not in node.call("status").out
    _copied(node, path)
    node.call("sync")
    vault.core.call("sync")
    assert _bytes(vault.core) == path.read_bytes()
    transcript(node, "The second marmot.", name=NAME)
    _copied(node, path)
    node.call("sync")
    vault.core.call("sync")
    assert _bytes(vault.core) == path.read_bytes()
    for machine in (vault.core, node):
        found = machine.call("status", "--json").json["sessions"]
        assert (found["kept"], found["copies"], found["removed"], found["unreadable"]) == (1, 1, 0, 0)
        assert found["bytes"] == _own(machine).packed
        assert "sessions 1 kept, " in machine.call("status").out
    node.call("config", "set", "sessions", "no")
    transcript(node, "The third marmot.", name=NAME)
    node.call("sync")
    assert b"third" not in _bytes(node)
    assert "nothing more is copied here" in node.call("status").out


def test_a_damaged_copy_is_told_and_holds_up_no_forget(vault: Vault) -> None:
    core = vault.core
    _copied(core, transcript(core, "The first marmot.", SECRET, name=NAME))
    core.call("capture")
    core.call("sync")
    own = _own(core)
    # Sorted before the session: it is come to first. One lacks a segment, one is no head at all.
    lacking = structs.replace(head_of("0", [lines(0, 3)]), session="0-lacking", device=own.device)
    segment = write(core.home, lacking, [lines(0, 3)]).main.segments[0]
    (lacking.place.folder(core.home) / segment.file_name).unlink()
    strange = lacking.place._replace(session="1-strange").folder(core.home) / HEAD_NAME
    strange.parent.mkdir(parents=True)
    strange.write_bytes(b'{"tool":')
    [found] = [
        hit["id"]
        for hit in core.call("search", "--json", "marmot nuts pier").json["results"]
        if hit["text"] == SECRET
    ]
    core.call("forget", found, "--yes")
    said = core.call("sync").err
    assert "may still be in a copy of a session" in said
    assert SECRET.encode() not in _bytes(core)
    assert _own(core).forgotten > 0
    assert "may still be" not in core.call("sync").err, "it is not tried again at once"
    assert core.call("status", "--json").json["sessions"]["unreadable"] == 1
    shown = core.call("sessions", "retention")
    assert f"{_beside(strange, core.home)} cannot be read" in shown.out


def test_a_forget_is_followed_also_after_another_was_taken_back(vault: Vault) -> None:
    core, other = vault.core, "The dormouse sleeps below the larch."
    _copied(core, transcript(core, "The first marmot.", SECRET, other, name=NAME))
    core.call("capture")
    core.call("sync")
    for text in (SECRET, other):
        [found] = [
            hit["id"] for hit in core.call("search", "--json", text).json["results"] if hit["text"] == text
        ]
        core.call("forget", found, "--yes")
        core.call("sync")
        if text == SECRET:
            core.call("remember", SECRET)
            core.call("sync")
    assert other.encode() not in _bytes(core)


def test_the_core_forgets_in_the_copies_of_a_machine_that_is_off(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After fifteen minutes, and not before. Back again, that machine goes on from what it finds, and there is no fork."""
    core, node = vault.core, vault.add()
    path = transcript(node, "The first marmot.", SECRET, name=NAME)
    _copied(node, path)
    node.call("capture")
    node.call("sync")
    core.call("sync")
    [found] = [
        hit["id"] for hit in core.call("search", "--json", SECRET).json["results"] if hit["text"] == SECRET
    ]
    core.call("forget", found, "--yes")
    core.call("sync")
    assert SECRET.encode() in _bytes(core), "the other machine has time to do so itself"
    monkeypatch.setattr(service, "now_ms", lambda: now_ms() + service.FOREIGN_MS)
    core.call("sync")
    monkeypatch.undo()
    blanked = _bytes(core)
    assert SECRET.encode() not in blanked
    assert len(blanked) == path.stat().st_size
    node.call("sync")
    assert _bytes(node) == blanked
    transcript(node, "The second marmot.", name=NAME)
    _copied(node, path)
    node.call("sync")
    core.call("sync")
    assert _bytes(core) == _bytes(node) == blanked + path.read_bytes()[len(blanked) :]
    assert SECRET.encode() not in _bytes(core)


def test_a_copy_that_cannot_be_read_holds_up_no_other(vault: Vault) -> None:
    core = vault.core
    first = transcript(core, "The first marmot.", name=NAME)
    _copied(core, first)
    (segment,) = _own(core).main.segments
    (_own(core).place.folder(core.home) / segment.file_name).unlink()
    with _recording(core):
        for number in range(2, MERGE_COUNT):
            transcript(core, f"Marmot {number}.", name=NAME)
            until(lambda: _own(core).main.bytes == first.stat().st_size, "the message's copy", 60)
    second = transcript(core, "A dormouse.", name=SECOND)
    transcript(core, "The last marmot.", name=NAME)  # merges all, and is read before the other: it is newer
    with _recording(core):
        until(lambda: bool(SessionCopies(core.home).of("claude-code", SECOND)), "the other copy", 60)
        log = core.home / "logs" / "agent.log"
        until(lambda: segment.file_name in log.read_text("utf-8"), "a word about what cannot be read", 60)
    [head] = SessionCopies(core.home).of("claude-code", SECOND)
    assert head.main.bytes == second.stat().st_size


@contextmanager
def _recording(machine: Machine) -> Generator[None]:
    agent = machine.start("agent", "run")
    try:
        yield
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=60)


def _beside(head: Path, home: Path) -> str:
    return head.parent.relative_to(home).as_posix()
