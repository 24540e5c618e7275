"""The watcher: what wakes a round, what a failure does, and how it stops."""

import asyncio
import os
import resource
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import cast

import pytest

from crystal_mirror.requests import StoreFailure
from crystal_node.base.backoff import MOST_SECONDS, Backoff
from crystal_node.base.changes import HAS_INOTIFY, ChangeTimes
from crystal_node.base.errors import LocalStorage
from crystal_node.base.events import WatchEvent
from crystal_node.device.device import Device
from crystal_node.sync.files_loop import FilesLoop
from crystal_node.sync.syncer import Syncer
from crystal_node.sync.watch import Watch, WatchTimes

_TIMES = WatchTimes(
    files=ChangeTimes(poll=0.5, settle=0.02, burst=0.1), long_poll=5.0, safety_round=60.0, stop_grace=2.0
)


@dataclass
class _Work:
    """Work that counts what is asked of it, over a real folder; what it answers is set by the test."""

    folder: Path
    failure: Exception | None = None
    wait_failure: Exception | None = None
    moved: str = ""
    rounds: int = 0
    captured: list[frozenset[str] | None] = field(default_factory=list[frozenset[str] | None])
    accepted: str = ""
    capture_failure: Exception | None = None
    arrivals: "asyncio.Queue[str | Exception]" = field(default_factory=asyncio.Queue[str | Exception])
    round_seconds: float = 0.0
    prefixes: tuple[str, ...] = ("v/log/",)
    due_seconds: float = inf
    asked: list[str] = field(default_factory=list[str])

    async def capture(self, paths: frozenset[str] | None) -> str:
        self.captured.append(paths)
        if paths and self.capture_failure is not None:
            raise self.capture_failure
        return self.accepted if paths else ""

    async def round(self) -> str:
        self.rounds += 1
        await asyncio.sleep(self.round_seconds)
        if self.failure is not None:
            raise self.failure
        return self.moved

    def listens(self) -> tuple[str, ...]:
        return self.prefixes

    def due(self) -> float:
        return self.due_seconds

    async def wait(self, prefix: str, token: str | None, seconds: float) -> str:
        self.asked.append(prefix)
        if self.wait_failure is not None:
            raise self.wait_failure
        arrival = await self.arrivals.get()
        if isinstance(arrival, Exception):
            raise arrival
        return arrival

    def folders(self) -> list[Path]:
        return [self.folder]

    def concerns(self, path: str) -> bool:
        return path.endswith((".jsonl", "now"))

    def wakes(self, path: str) -> bool:
        return path.endswith("now")


@dataclass
class _Running:
    work: _Work
    stop: asyncio.Event
    events: list[tuple[WatchEvent, str]]
    task: "asyncio.Task[None]"
    watch: Watch

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110  conditions on a plain object; nothing signals them
                await asyncio.sleep(0.01)


class _Files(FilesLoop):
    """A loop over no files."""

    def __init__(self) -> None:
        self.offered = lambda: None

    def wake(self) -> None:
        return

    async def run(self) -> None:
        await asyncio.Event().wait()


@asynccontextmanager
async def _running(
    work: _Work, times: WatchTimes = _TIMES, files: FilesLoop | None = None
) -> AsyncGenerator[_Running]:
    stop = asyncio.Event()
    events: list[tuple[WatchEvent, str]] = []
    watch = Watch(
        work,
        report=lambda event, text: events.append((event, text)),
        stop=stop,
        uniform=lambda low, high: (low + high) / 2,
        times=times,
        files=files,
    )
    running = _Running(work, stop, events, asyncio.create_task(watch.run()), watch)
    try:
        yield running
    finally:
        stop.set()
        async with asyncio.timeout(10):
            await asyncio.gather(running.task, return_exceptions=True)


async def test_it_begins_with_a_look_at_everything_and_a_round(tmp_path: Path) -> None:
    async with _running(_Work(tmp_path)) as running:
        await running.until(lambda: running.work.rounds >= 1 and len(running.work.captured) >= 1)
        assert running.work.captured[0] is None


async def test_a_transcript_that_grows_leads_to_capture_and_to_a_round(tmp_path: Path) -> None:
    async with _running(_Work(tmp_path, accepted="1 message")) as running:
        await running.until(lambda: running.work.rounds == 1 and bool(running.work.captured))
        (tmp_path / "a.jsonl").write_text("x")
        await running.until(lambda: running.work.rounds == 2)
        assert (WatchEvent.CAPTURED, "1 message") in running.events


async def test_files_that_were_offered_lead_to_a_round_at_once(tmp_path: Path) -> None:
    files = _Files()
    async with _running(_Work(tmp_path), files=files) as running:
        await running.until(lambda: running.work.rounds == 1 and bool(running.work.captured))
        files.offered()
        await running.until(lambda: running.work.rounds == 2)
        assert not any(running.work.captured)


async def test_what_was_offered_before_a_round_of_files_failed_is_sent(tmp_path: Path) -> None:
    class Rounds:
        scan_seconds = 0.0

        async def files(self, *, scan: bool, offered: Callable[[], None]) -> None:
            offered()
            raise StoreFailure(f"the relay is gone, scan={scan}")

    class Loop(FilesLoop):
        async def _look(self) -> None:
            self._wake.set()
            await asyncio.Event().wait()

    told: list[str] = []
    files = Loop(
        cast("Device", None), cast("Syncer", Rounds()), lambda _, text: told.append(text), lambda low, _: low
    )
    async with _running(_Work(tmp_path), files=files) as running:
        await running.until(lambda: bool(told) and running.work.rounds >= 2)


async def test_growth_without_anything_to_record_needs_no_round(tmp_path: Path) -> None:
    async with _running(_Work(tmp_path)) as running:
        await running.until(lambda: running.work.rounds == 1 and bool(running.work.captured))
        (tmp_path / "a.jsonl").write_text("x")
        await running.until(lambda: any(running.work.captured))
        await asyncio.sleep(0.1)
        assert running.work.rounds == 1


@pytest.mark.skipif(not HAS_INOTIFY, reason="Linux alone has inotify")
async def test_where_nothing_can_be_watched_transcripts_are_read_ever_more_rarely(tmp_path: Path) -> None:
    def failures() -> list[str]:
        return [text for event, text in running.events if event is WatchEvent.FAILED]

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with _running(_Work(tmp_path)) as running:
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            async with asyncio.timeout(120):
                while len(failures()) < 2:  # noqa: ASYNC110  as in ``until``
                    await asyncio.sleep(0.05)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(running.work.captured) == 2
    assert "trying again in 5 s" in failures()[0]
    assert "trying again in 10 s" in failures()[1]


async def test_what_was_recorded_before_a_failure_is_sent_at_once(tmp_path: Path) -> None:
    """It waited for the safety round: the nudge was among the events that the failure throws away."""
    work = _Work(tmp_path, capture_failure=LocalStorage("the disk is full"))
    async with _running(work) as running:
        await running.until(lambda: work.rounds == 1 and bool(work.captured))
        (tmp_path / "a.jsonl").write_text("x")
        await running.until(lambda: work.rounds == 2)
        assert work.captured[1:] == [frozenset({str(tmp_path / "a.jsonl")})], "not by another look"


async def test_a_nudge_leads_to_a_round(tmp_path: Path) -> None:
    async with _running(_Work(tmp_path)) as running:
        await running.until(lambda: running.work.rounds == 1 and bool(running.work.captured))
        (tmp_path / "now").touch()
        await running.until(lambda: running.work.rounds == 2)


async def test_an_arrival_at_the_relay_leads_to_a_round(tmp_path: Path) -> None:
    async with _running(_Work(tmp_path)) as running:
        await running.until(lambda: running.work.rounds == 1)
        running.work.arrivals.put_nowait("token 1")
        await running.until(lambda: running.work.rounds == 2)


async def test_it_waits_for_what_concerns_its_role_and_for_something_else_once_that_has_changed(
    tmp_path: Path,
) -> None:
    work = _Work(tmp_path, prefixes=("v/log/", "v/mirror/"))
    async with _running(work) as running:
        await running.until(lambda: sorted(work.asked) == ["v/log/", "v/mirror/"] and work.rounds == 1)
        work.prefixes = ("v/log/", "v/conversations/")
        (tmp_path / "now").touch()
        await running.until(lambda: work.rounds == 2 and work.asked[2:] == ["v/conversations/"])


async def test_a_round_that_is_due_is_made_though_nothing_happens(tmp_path: Path) -> None:
    work = _Work(tmp_path, due_seconds=0.05)
    async with _running(work, WatchTimes(safety_round=300)) as running:
        await running.until(lambda: work.rounds > 3)


async def test_a_relay_that_is_gone_is_told_at_once_not_at_the_next_safety_round(tmp_path: Path) -> None:
    async with _running(_Work(tmp_path), WatchTimes(safety_round=300)) as running:
        await running.until(lambda: running.work.rounds == 1 and bool(running.work.asked))
        running.work.failure = StoreFailure("the relay cannot be reached")
        running.work.wait_failure = running.work.failure
        await running.work.arrivals.put(running.work.failure)  # the long-poll under way breaks
        await running.until(lambda: any(event is WatchEvent.FAILED for event, _ in running.events))


async def test_an_unknown_error_of_a_wait_ends_the_watch(tmp_path: Path) -> None:
    async with _running(_Work(tmp_path, wait_failure=ZeroDivisionError("a bug"))) as running:
        async with asyncio.timeout(10):
            with pytest.raises(ZeroDivisionError):
                await running.task


async def test_a_relay_that_wakes_us_for_nothing_all_the_time_cannot_keep_us_busy(tmp_path: Path) -> None:
    work = _Work(tmp_path)
    times = WatchTimes(files=_TIMES.files, pause=0.001, idle_pause=5.0, idle_rounds=3)
    async with _running(work, times) as running:
        for number in range(500):
            work.arrivals.put_nowait(f"token {number}")
            await asyncio.sleep(0.002)
        assert 3 <= running.work.rounds <= 20


async def test_rounds_that_have_more_to_do_at_once_follow_each_other_without_a_growing_pause(
    tmp_path: Path,
) -> None:
    work = _Work(tmp_path, due_seconds=0.0)
    times = WatchTimes(files=_TIMES.files, pause=0.001, idle_pause=60.0, idle_rounds=3)
    async with _running(work, times) as running:
        await running.until(lambda: running.work.rounds > 20)


async def test_a_failure_is_told_with_what_to_do_and_tried_again_while_capture_goes_on(
    tmp_path: Path,
) -> None:
    work = _Work(tmp_path, failure=StoreFailure("the relay does not answer"), accepted="1 message")
    async with _running(work) as running:
        await running.until(lambda: any(event is WatchEvent.FAILED for event, _ in running.events))
        (tmp_path / "a.jsonl").write_text("x")
        await running.until(lambda: any(event is WatchEvent.CAPTURED for event, _ in running.events))
        told = next(text for event, text in running.events if event is WatchEvent.FAILED)
        assert "the relay does not answer; trying again in 5 s." in told
        assert StoreFailure.hint in told


async def test_an_error_that_nobody_knows_ends_the_watch_instead_of_being_swallowed(tmp_path: Path) -> None:
    async with _running(_Work(tmp_path, failure=ZeroDivisionError("a bug"))) as running:
        async with asyncio.timeout(10):
            with pytest.raises(ZeroDivisionError):
                await running.task


async def test_a_round_under_way_is_allowed_to_end_when_told_to_stop(tmp_path: Path) -> None:
    work = _Work(tmp_path, round_seconds=0.3, moved="1 sent")
    async with _running(work) as running:
        await running.until(lambda: running.work.rounds == 1)
        running.stop.set()
        await asyncio.wait_for(running.task, 30)
        assert (WatchEvent.SYNCED, "1 sent") in running.events


async def test_a_round_that_hangs_does_not_keep_it_from_stopping(tmp_path: Path) -> None:
    work = _Work(tmp_path, round_seconds=3600.0)
    times = WatchTimes(files=_TIMES.files, stop_grace=0.2)
    async with _running(work, times) as running:
        await running.until(lambda: running.work.rounds == 1)
        running.stop.set()
        await asyncio.wait_for(running.task, 30)


async def test_after_sleep_or_on_another_network_no_pause_is_waited_out(tmp_path: Path) -> None:
    work = _Work(tmp_path, failure=StoreFailure("away"), wait_failure=StoreFailure("away"))
    async with _running(work) as running:
        await running.until(lambda: bool(running.events) and bool(work.asked))
        rounds, asked = work.rounds, len(work.asked)
        work.failure = work.wait_failure = None
        running.watch.wake()
        async with asyncio.timeout(2):  # the first pause is 5 s
            await running.until(lambda: work.rounds > rounds and len(work.asked) > asked)
        await running.until(lambda: any(event is WatchEvent.RECOVERED for event, _ in running.events))


async def test_a_wait_on_a_connection_that_died_in_sleep_is_begun_anew(tmp_path: Path) -> None:
    work = _Work(tmp_path)
    async with _running(work) as running:
        await running.until(lambda: work.rounds == 1 and len(work.asked) == 1)
        running.watch.wake()
        await running.until(lambda: len(work.asked) == 2 and work.rounds == 2)


async def test_it_stops_at_once_in_the_middle_of_a_pause(tmp_path: Path) -> None:
    work = _Work(tmp_path, failure=StoreFailure("away"), wait_failure=StoreFailure("away"))
    async with _running(work) as running:
        await running.until(lambda: bool(running.events) and bool(work.asked))
        running.stop.set()
        async with asyncio.timeout(1):
            await running.task


def test_waiting_doubles_from_five_seconds_to_ten_minutes_with_jitter_and_starts_over_after_a_success() -> (
    None
):
    backoff = Backoff(lambda low, high: (low + high) / 2)
    waits = [backoff.failed() for _ in range(12)]
    assert waits[:3] == [5.0, 10.0, 20.0]
    assert waits[-1] == MOST_SECONDS
    backoff.succeeded()
    assert backoff.failed() == 5.0
    low, high = Backoff(lambda low, _: low).failed(), Backoff(lambda _, high: high).failed()
    assert low < 5.0 < high
