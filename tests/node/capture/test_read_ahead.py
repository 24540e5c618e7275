"""Transcripts that child processes read ahead: the same is recorded as without them, even if they die."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from msgspec import structs

from crystal_mirror.operations import Capture, decode_operation
from crystal_node.base.settings import Settings, resolve
from crystal_node.capture import recorder
from crystal_node.capture.adapter import Adapter, TranscriptReading, decode_state
from crystal_node.capture.aider import HISTORY
from crystal_node.capture.exclusions import Exclusion, write
from crystal_node.capture.line_reader import PASS_BYTES_MAX
from crystal_node.capture.read_ahead import (
    PARTS_AHEAD_MAX,
    ReadAhead,
    _Child,  # pyright: ignore[reportPrivateUsage]  the only place to see a child's questions
)
from crystal_node.capture.reading import ReadRequest, read_part
from crystal_node.capture.tools import all_adapters
from crystal_node.device.device import opened
from crystal_node.device.privacy import Privacy
from tests.node.capture.transcripts import line, user
from tests.support.machine import Machine, Vault, transcript

TOKEN = "ghp_" + "a1B2" * 9
SECONDS_MAX = 30.0


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The settings of a machine with three transcripts, two of which are read in more than one part."""
    for number, texts in enumerate((120, 5, 190)):
        path = tmp_path / ".claude" / "projects" / "-home-mara" / f"session-{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for at in range(texts):
                file.write(
                    line(user(f"{number}.{at} {TOKEN}", at, cwd=str(tmp_path), attribution="x" * 50_000))
                )
            file.write(b"no record\n")
        assert texts < 100 or path.stat().st_size > PASS_BYTES_MAX
    environment = {"HOME": str(tmp_path), "CRYSTAL_HOME": str(tmp_path / ".ldm")}
    (tmp_path / ".ldm").mkdir()
    with mock.patch.dict(os.environ, environment, clear=True):
        return resolve()


@pytest.fixture
def adapter(settings: Settings) -> Adapter:
    return next(each for each in all_adapters(settings, settings.person_home) if each.name == "claude-code")


def requests(adapter: Adapter) -> list[ReadRequest]:
    return [
        ReadRequest(adapter.name, os.fsencode(found.path), None, "cc-mini", -1, Privacy(), 0)
        for found in adapter.discover()
    ]


def readings(adapter: Adapter, ahead: ReadAhead | None) -> Iterator[tuple[TranscriptReading, bool]]:
    """All parts, and whether each was read ahead."""
    for first in requests(adapter):
        request, more = first, True
        while more:
            found = None if ahead is None else ahead.reading(request)
            reading = found or read_part(adapter, request)
            yield reading, found is not None
            request, more = request.after(reading), reading.more


@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_read_ahead_is_what_is_read_here(
    settings: Settings, adapter: Adapter, processes: int
) -> None:
    here = [reading for reading, _ in readings(adapter, None)]
    with ReadAhead(settings, requests(adapter), processes) as ahead:
        found = [*readings(adapter, ahead)]
    assert all(was_ahead for _, was_ahead in found)
    assert [reading for reading, _ in found] == here
    assert sum(reading.counts.redacted["github-token"] for reading in here) == 315
    assert sum(reading.counts.strange for reading in here) == 3
    assert len(here) > 5


@pytest.mark.parametrize("after", [0, 1, 4])
def test_what_a_killed_process_has_not_read_is_read_here(
    settings: Settings, adapter: Adapter, after: int
) -> None:
    here = [reading for reading, _ in readings(adapter, None)]
    found: list[tuple[TranscriptReading, bool]] = []
    with ReadAhead(settings, requests(adapter), 2) as ahead:
        rest = readings(adapter, ahead)
        found += (next(rest) for _ in range(after))
        for process in ahead.processes:
            process.kill()
        found += rest
    assert [reading for reading, _ in found] == here
    assert after or not found[-1][1]


def test_without_any_process_all_is_read_here(settings: Settings, adapter: Adapter) -> None:
    with ReadAhead(settings, requests(adapter), 0) as ahead:
        found = [*readings(adapter, ahead)]
    assert not any(was_ahead for _, was_ahead in found)
    assert [reading for reading, _ in found] == [reading for reading, _ in readings(adapter, None)]


def test_what_was_read_from_another_state_or_under_other_privacy_does_not_count(
    settings: Settings, adapter: Adapter
) -> None:
    one, two, three = requests(adapter)
    other = read_part(adapter, three).state
    with ReadAhead(settings, [one, two, three], 2) as ahead:
        assert ahead.reading(structs.replace(one, privacy=Privacy(since=5))) is None
        assert ahead.reading(one) is None, "after a request that was not expected, it is read here"
        assert ahead.reading(two) == read_part(adapter, two), "the others are still read ahead"
        from_its_end = structs.replace(three, state=other)
        assert ahead.reading(from_its_end) is None


def test_a_transcript_that_nobody_asks_for_keeps_no_process_from_the_next(
    settings: Settings, adapter: Adapter
) -> None:
    one, _, three = requests(adapter)
    with ReadAhead(settings, [one, three], 1) as ahead:
        assert ahead.reading(three) == read_part(adapter, three)


def test_what_is_no_part_is_read_here(settings: Settings, adapter: Adapter) -> None:
    one, two, _ = requests(adapter)
    with ReadAhead(settings, [one, two], 1) as ahead:
        read = ahead._transcripts[one.path]  # pyright: ignore[reportPrivateUsage]  as from a process that went wrong
        _until(lambda: bool(read.parts))
        read.parts[0] = b"\xc1"
        assert ahead.reading(one) is None
        assert ahead.reading(two) == read_part(adapter, two)


def test_what_nobody_wants_any_more_is_not_read_to_its_end(settings: Settings, adapter: Adapter) -> None:
    one, two, _ = requests(adapter)
    path = Path(os.fsdecode(one.path))
    with path.open("ab") as file:
        for number in range(20):
            file.write(line(user("x", 1000 + number, attribution="x" * PASS_BYTES_MAX)))
    with (
        mock.patch.object(_Child, "answer", autospec=True, side_effect=_Child.answer) as answers,
        ReadAhead(settings, [one, two], 1) as ahead,
    ):
        assert ahead.reading(one) is not None
        assert ahead.reading(structs.replace(one, privacy=Privacy(since=5))) is None
        assert ahead.reading(two) == read_part(adapter, two)
    assert answers.call_count <= PARTS_AHEAD_MAX + 9, "of more than twenty, and two of the next"


def test_no_more_is_kept_than_a_few_parts_however_many_transcripts_wait(
    settings: Settings, adapter: Adapter
) -> None:
    short = settings.person_home / ".claude" / "projects" / "-home-mara" / "session-1.jsonl"
    for number in range(20):
        short.with_name(f"session-1{number}.jsonl").write_bytes(short.read_bytes())
    here = [reading for reading, _ in readings(adapter, None)]
    found: list[TranscriptReading] = []
    with ReadAhead(settings, requests(adapter), 2) as ahead:
        for reading, _ in readings(adapter, ahead):
            found.append(reading)
            time.sleep(0.02)  # committing takes longer than reading the next part
            assert ahead.kept <= PARTS_AHEAD_MAX + 1
    assert found == here


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="a process changes its zone as only POSIX can")
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
def test_local_times_are_those_of_this_process(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    path = settings.person_home / "gulls" / HISTORY
    path.parent.mkdir()
    started = "# aider chat started at 2026-01-10 23:00:00"
    path.write_text(f"\n{started}\n\n> Aider v0.86.2  \n\n#### Which port?  \n\n4711.\n\n")
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        aider = next(each for each in all_adapters(settings, settings.person_home) if each.name == "aider")
        begun = int(datetime(2026, 1, 10, 23, tzinfo=ZoneInfo(zone)).timestamp() * 1000)
        for begin, recorded in ((begun, True), (begun + 1000, False)):
            asked = ReadRequest("aider", os.fsencode(path), None, "aider", -1, Privacy(), begin)
            with ReadAhead(settings, [asked], 1) as ahead:
                found = ahead.reading(asked)
            assert found is not None
            assert found == read_part(aider, asked)
            assert bool(found.operations) == recorded
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_exclusion_that_was_written_after_reading_counts(settings: Settings, adapter: Adapter) -> None:
    one, _, three = requests(adapter)
    with ReadAhead(settings, [one, three], 2) as ahead:
        first = ahead.reading(one)
        assert first is not None
        assert first.operations
        read = ahead._transcripts[three.path]  # pyright: ignore[reportPrivateUsage]  the only place to see how far it is
        _until(lambda: bool(read.parts))
        write(settings.home.root, Exclusion(folder=str(settings.person_home)))
        rest = ahead.reading(one.after(first))
        assert rest is None or rest.operations == [], "read before that, or after it"
        assert ahead.reading(three) is None
    assert read_part(adapter, three).operations == []


def test_a_pass_that_ends_early_waits_for_nothing(settings: Settings, adapter: Adapter) -> None:
    with ReadAhead(settings, requests(adapter), 2) as ahead:
        assert ahead.reading(requests(adapter)[0]) is not None
    assert [process.returncode is None for process in ahead.processes] == [False, False]


_PARENT = """
import os, sys, time
from crystal_node.base.settings import resolve
from crystal_node.capture.read_ahead import PARTS_AHEAD_MAX, ReadAhead
from crystal_node.capture.tools import all_adapters
from tests.node.capture.test_read_ahead import requests

settings = resolve()
adapter = next(each for each in all_adapters(settings, settings.person_home) if each.name == "claude-code")
with ReadAhead(settings, requests(adapter), 2) as ahead:
    ahead.reading(requests(adapter)[0])
    print(*(process.pid for process in ahead.processes), flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the parent is killed as only POSIX can")
def test_processes_that_read_ahead_end_with_a_parent_that_was_killed(settings: Settings) -> None:
    environment = {
        "HOME": str(settings.person_home),
        "CRYSTAL_HOME": str(settings.home.root),
        "PYTHONPATH": str(Path.cwd()),
    }
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        children = [int(word) for word in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    assert len(children) == 2
    _until(lambda: not any(_runs(child) for child in children))


def test_a_large_backlog_is_recorded_as_it_is_without_them(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """With the real command, and with a transcript that grows while it is recorded."""
    texts: list[list[str]] = []
    for backlog in (1, 2**62):
        monkeypatch.setattr(recorder, "BACKLOG_BYTES_MIN", backlog)
        monkeypatch.setattr(recorder, "_processors", lambda: 2)
        machine = vault.add()
        machine.projects.parent.mkdir(parents=True, exist_ok=True)
        (settings.person_home / ".claude" / "projects").rename(machine.projects)
        with mock.patch.object(ReadAhead, "reading", autospec=True, side_effect=ReadAhead.reading) as asked:
            counts = machine.call("capture", "--json").json
        assert bool(asked.call_count) == (backlog == 1)
        assert counts["messages"] == 315
        assert machine.call("capture", "--json").json["messages"] == 0
        texts.append(_recorded(machine))
        machine.projects.rename(settings.person_home / ".claude" / "projects")
    assert texts[0] == texts[1]


def test_a_transcript_that_has_not_changed_is_looked_at_once(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_processors", lambda: 2)
    machine = vault.core
    for name in "abc":
        transcript(machine, f"Said in {name}.", name=name)
    machine.call("capture")
    with mock.patch.object(recorder, "decode_state", side_effect=decode_state) as decoded:
        assert machine.call("capture", "--json").json["messages"] == 0
    assert decoded.call_count == 3


def _recorded(machine: Machine) -> list[str]:
    """The texts in the outbox, in order."""
    texts: list[str] = []
    with mock.patch.dict(os.environ, machine.environment, clear=True), opened(resolve()) as device:
        for name in device.journal.names():
            row = device.journal.row(name.incarnation, name.sequence)
            assert row is not None
            operation = decode_operation(row.operation)
            if isinstance(operation, Capture):
                texts += (piece.text for piece in operation.pieces)
    return texts


def _runs(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    if not status.parent.parent.joinpath("self").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
