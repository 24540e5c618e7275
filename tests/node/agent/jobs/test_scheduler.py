"""The timetable: what runs when, what a failure does, what a person asked for, and what is left after a kill."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from crystal_mirror.requests import StoreFailure
from crystal_node.agent.jobs.database import JobStore
from crystal_node.agent.jobs.scheduler import KILLED_MAX, NOTED_MS, Scheduler
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NoSuchEntry
from crystal_node.base.events import WatchEvent
from crystal_node.base.jobs import Job, JobOutcome, JobStatus

_DAY = 86_400.0


@dataclass
class _Task:
    """What a job does; it says what the test wants, and counts."""

    says: list[str | Exception] = field(default_factory=list[str | Exception])
    runs: int = 0
    lasts: float = 0.0
    open: int = 0
    at_once: int = 0

    async def __call__(self) -> str:
        self.runs += 1
        self.open += 1
        self.at_once = max(self.at_once, self.open)
        try:
            await asyncio.sleep(self.lasts)
        finally:
            self.open -= 1
        said = self.says.pop(0) if self.says else ""
        if isinstance(said, Exception):
            raise said
        return said


def _job(task: _Task, name: str = "tidy", *, every: float = _DAY, heavy: bool = False) -> Job:
    return Job(name, "Tidies.", every, task, heavy=heavy)


@dataclass
class _Running:
    schedule: Scheduler
    store: JobStore
    told: list[tuple[WatchEvent, str]]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110  conditions on plain objects; nothing signals them
                await asyncio.sleep(0.01)

    async def ended(self, name: str = "tidy") -> JobStatus:
        await self.until(lambda: self.store.one(name).ended > 0 and name not in self.schedule.running)
        return self.store.one(name)


@asynccontextmanager
async def _running(
    path: Path, *jobs: Job, put_off: Callable[[], str] = lambda: "", alone: str = ""
) -> AsyncGenerator[_Running]:
    told: list[tuple[WatchEvent, str]] = []
    with JobStore.open(path / "jobs.db") as store:
        schedule = Scheduler(
            store,
            lambda event, text: told.append((event, text)),
            lambda low, high: (low + high) / 2,
            put_off,
            first_seconds=(0.0, 0.0),
            alone=alone,
        )
        schedule.start(jobs)
        try:
            yield _Running(schedule, store, told)
        finally:
            await schedule.aclose()


async def test_a_job_that_has_never_run_runs_soon_and_its_end_is_written_down(tmp_path: Path) -> None:
    task = _Task(["2 files tidied"])
    async with _running(tmp_path, _job(task)) as running:
        found = await running.ended()
        assert (found.outcome, found.said, found.failures) == (JobOutcome.DONE, "2 files tidied", 0)
        assert found.worked == found.ended
        assert (WatchEvent.PROGRESS, "tidy: 2 files tidied") in running.told
        assert abs(found.next - now_ms() - _DAY * 1000) < 10_000


async def test_a_run_that_is_not_yet_due_is_not_made_again_by_a_restart(tmp_path: Path) -> None:
    task = _Task(["done"])
    async with _running(tmp_path, _job(task)) as running:
        await running.ended()
    async with _running(tmp_path, _job(task)):
        await asyncio.sleep(0.2)
    assert task.runs == 1


async def test_what_was_missed_while_the_agent_was_away_is_run_once(tmp_path: Path) -> None:
    task = _Task(["done", "done", "done"])
    with JobStore.open(tmp_path / "jobs.db") as store:
        store.register([_job(task, every=60)])
        long_ago = now_ms() - 10 * 24 * 3600 * 1000
        store.ended("tidy", long_ago, JobOutcome.DONE, "", failures=0, next_run=0, served=0)
    async with _running(tmp_path, _job(task, every=60)) as running:
        await running.until(lambda: task.runs > 0)
        await asyncio.sleep(0.2)
    assert task.runs == 1


async def test_a_failure_that_passes_is_told_once_and_tried_again_later_and_later(tmp_path: Path) -> None:
    failure = StoreFailure("the relay does not answer")
    task = _Task([failure, failure, "works"])
    async with _running(tmp_path, _job(task, every=30)) as running:
        found = await running.ended()
        assert (found.outcome, found.failures, found.failing) == (JobOutcome.FAILED, 1, True)
        assert "the relay does not answer" in found.said
        assert 50_000 < found.next - now_ms() < 70_000
        running.store.ask_for("tidy")
        running.schedule.look()
        await running.until(lambda: running.store.one("tidy").failures == 2)
        assert 110_000 < running.store.one("tidy").next - now_ms() < 130_000
        assert len([1 for event, _ in running.told if event is WatchEvent.FAILED]) == 1
        running.store.ask_for("tidy")
        running.schedule.look()
        await running.until(lambda: running.store.one("tidy").outcome is JobOutcome.DONE)
        assert running.store.one("tidy").failures == 0
        assert (WatchEvent.RECOVERED, "tidy: it works again") in running.told


async def test_a_mistake_in_a_job_ends_its_run_alone_and_leaves_its_trace_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken, other = _Task([ZeroDivisionError("a bug")]), _Task(["done"])
    async with _running(tmp_path, _job(broken), _job(other, "other")) as running:
        assert (await running.ended()).outcome is JobOutcome.BROKEN
        assert (await running.ended("other")).outcome is JobOutcome.DONE
    assert any(record.exc_info for record in caplog.records)


async def test_failures_are_remembered_by_the_next_process(tmp_path: Path) -> None:
    task = _Task([StoreFailure("away")])
    async with _running(tmp_path, _job(task)) as running:
        await running.ended()
    async with _running(tmp_path, _job(task)):
        await asyncio.sleep(0.2)
    assert task.runs == 1


async def test_a_run_that_was_told_to_stop_is_no_failure_and_is_made_again_at_the_next_start(
    tmp_path: Path,
) -> None:
    task = _Task(lasts=3600)
    async with _running(tmp_path, _job(task)) as running:
        await running.until(lambda: task.open == 1)
    with JobStore.open(tmp_path / "jobs.db") as store:
        found = store.one("tidy")
        assert (found.outcome, found.failures, found.started) == (JobOutcome.STOPPED, 0, 0)
    task.lasts = 0
    async with _running(tmp_path, _job(task)) as running:
        await running.until(lambda: task.runs == 2)


async def test_a_run_that_was_killed_is_seen_as_interrupted_and_made_again_after_a_pause(
    tmp_path: Path,
) -> None:
    task = _Task(["done"])
    with JobStore.open(tmp_path / "jobs.db") as store:
        store.register([_job(task)])
        store.begun("tidy", now_ms())
    async with _running(tmp_path, _job(task)) as running:
        found = running.store.one("tidy")
        assert (found.outcome, found.failures, found.started) == (JobOutcome.INTERRUPTED, 1, 0)
        await asyncio.sleep(0.1)
        assert task.runs == 0
        running.store.ask_for("tidy")
        running.schedule.look()
        await running.until(lambda: task.runs == 1)


async def test_a_request_that_kills_the_process_each_time_is_given_up(tmp_path: Path) -> None:
    task = _Task()
    with JobStore.open(tmp_path / "jobs.db") as store:
        store.register([_job(task)])
        store.ask_for("tidy")
    for attempt in range(1, KILLED_MAX + 1):
        with JobStore.open(tmp_path / "jobs.db") as store:
            store.begun("tidy", now_ms())
        async with _running(tmp_path, _job(_Task(lasts=3600))) as running:
            await asyncio.sleep(0.05)
            assert running.schedule.running == ([] if attempt == KILLED_MAX else ["tidy"])


async def test_a_paused_job_does_not_run_by_itself_and_does_when_it_is_asked_for(tmp_path: Path) -> None:
    task = _Task(["done"])
    with JobStore.open(tmp_path / "jobs.db") as store:
        store.register([_job(task)])
        store.pause("tidy", paused=True)
    async with _running(tmp_path, _job(task)) as running:
        await asyncio.sleep(0.2)
        assert task.runs == 0
        with JobStore.open(tmp_path / "jobs.db") as other:
            number = other.ask_for("tidy")
        assert running.store.changed()
        running.schedule.look()
        await running.until(lambda: running.store.one("tidy").served == number)
        assert running.store.one("tidy").paused
        assert task.runs == 1


async def test_heavy_work_waits_on_battery_and_is_not_lost(tmp_path: Path) -> None:
    heavy, light = _Task(["done"]), _Task(["done"])
    reason = "on battery"
    async with _running(
        tmp_path, _job(heavy, heavy=True), _job(light, "light"), put_off=lambda: reason
    ) as running:
        await running.ended("light")
        await running.until(lambda: running.store.one("tidy").put_off == "on battery")
        assert heavy.runs == 0
        reason = ""
        assert running.store.one("tidy").next - now_ms() < 61_000


async def test_heavy_jobs_run_one_at_a_time(tmp_path: Path) -> None:
    task = _Task(["done", "done", "done"], lasts=0.05)
    jobs = [_job(task, name, heavy=True) for name in ("one", "two", "three")]
    async with _running(tmp_path, *jobs) as running:
        await running.until(lambda: task.runs == 3 and not running.schedule.running)
    assert task.at_once == 1


async def test_a_job_that_is_not_due_is_not_run_and_whoever_asks_is_told(tmp_path: Path) -> None:
    task = _Task()
    job = Job("tidy", "Tidies.", _DAY, task, due=lambda: False)
    async with _running(tmp_path, job) as running:
        await asyncio.sleep(0.1)
        running.store.ask_for("tidy")
        running.schedule.look()
        found = await running.ended()
        assert (task.runs, found.outcome) == (0, JobOutcome.NOTHING)
        assert "not due on this device" in found.said


async def test_a_second_request_during_a_run_is_served_by_a_run_of_its_own(tmp_path: Path) -> None:
    task = _Task(["one", "two"], lasts=0.1)
    async with _running(tmp_path, _job(task)) as running:
        await running.until(lambda: task.open == 1)
        number = running.store.ask_for("tidy")
        running.schedule.look()
        await running.until(lambda: running.store.one("tidy").served == number)
    assert task.runs == 2


async def test_what_a_person_asked_for_is_not_done_again_by_itself_a_minute_later(tmp_path: Path) -> None:
    task, due = _Task(["done"]), [False]
    async with _running(tmp_path, Job("tidy", "Tidies.", _DAY, task, due=lambda: due[0])) as running:
        await asyncio.sleep(0.1)  # its time came, and it was not due: it is looked at again in a minute
        due[0] = True
        running.store.ask_for("tidy")
        running.schedule.look()
        found = await running.ended()
    assert abs(found.next - now_ms() - _DAY * 1000) < 10_000


async def test_a_clock_that_was_set_back_by_a_year_postpones_nothing(tmp_path: Path) -> None:
    task = _Task(["done"])
    async with _running(tmp_path, _job(task, every=60)) as running:
        await running.ended()
        scheduler = running.schedule._scheduler  # pyright: ignore[reportPrivateUsage]
        scheduler.modify_job("tidy", next_run_time=datetime.now(UTC) + timedelta(days=365))
        running.schedule.wake()
        left = scheduler.get_job("tidy").next_run_time - datetime.now(UTC)
        assert left <= timedelta(seconds=61)


async def test_a_full_disk_keeps_no_job_from_running_and_a_request_does_not_run_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = _Task(["done", "done", "done"])
    async with _running(tmp_path, _job(task)) as running:
        await running.ended()

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(running.store, "ended", full)
        running.store.ask_for("tidy")
        running.schedule.look()
        await asyncio.sleep(0.3)
        running.schedule.look()
        await asyncio.sleep(0.1)
    assert task.runs == 2


async def test_only_what_was_asked_for_runs_where_a_command_does_it_itself(tmp_path: Path) -> None:
    task, other = _Task(["done"]), _Task(["done"])
    async with _running(tmp_path, _job(task), _job(other, "other"), alone="tidy") as running:
        await asyncio.sleep(0.1)
        assert (task.runs, other.runs) == (0, 0)
        running.store.ask_for("tidy")
        running.schedule.look()
        await running.ended()
    assert (task.runs, other.runs) == (1, 0)


async def test_jobs_that_come_and_go_with_the_settings_keep_their_past(tmp_path: Path) -> None:
    task = _Task(["done"])
    async with _running(tmp_path, _job(task)) as running:
        await running.ended()
        running.schedule.set_jobs([])
        assert running.store.all() == []
        running.schedule.set_jobs([_job(task, every=2 * _DAY)])
        assert running.store.one("tidy").outcome is JobOutcome.DONE
        await asyncio.sleep(0.1)
    assert task.runs == 1


def test_a_damaged_record_is_put_aside_and_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_bytes(b"this is no database, and never was one" * 100)
    with JobStore.open(path) as store:
        assert store.all() == []
    assert path.with_name("jobs.db.damaged").exists()


def test_a_record_of_which_some_pages_are_damaged_keeps_no_agent_from_starting(tmp_path: Path) -> None:
    path, job = tmp_path / "jobs.db", _job(_Task())
    with JobStore.open(path) as store:
        store.register([job])
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\x55" * (len(data) - 4096))
    with JobStore.open(path) as store:
        store.register([job])
        assert [status.name for status in store.all()] == [job.name]
    assert path.with_name("jobs.db.damaged").exists()


def test_a_job_that_nobody_knows_is_told_as_such(tmp_path: Path) -> None:
    with JobStore.open(tmp_path / "jobs.db") as store, pytest.raises(NoSuchEntry):
        store.ask_for("sing")


@pytest.mark.parametrize("said", ["read {}", StoreFailure("cannot read {}"), ValueError("{}")], ids=str)
async def test_words_that_are_no_text_end_a_run_as_any_others(tmp_path: Path, said: str | Exception) -> None:
    name = "caf\udce9.md"
    words = said.format(name) if isinstance(said, str) else type(said)(str(said).format(name))
    async with _running(tmp_path, _job(_Task([words]))) as running:
        assert "caf\\udce9.md" in (await running.ended()).said


async def test_a_person_who_waits_is_told_of_the_end_of_the_run_that_they_asked_for(tmp_path: Path) -> None:
    task = _Task(says=["tidied"], lasts=0.05)
    async with _running(tmp_path, _job(task)) as running:
        status, finished = await running.schedule.run_now("tidy")
        assert (status.outcome, status.said, finished, task.runs) == (JobOutcome.DONE, "tidied", True, 1)
        with pytest.raises(NoSuchEntry):
            await running.schedule.run_now("none-of-ours")


async def test_who_does_not_wait_long_enough_leaves_the_run_going_on(tmp_path: Path) -> None:
    task = _Task(says=["tidied"], lasts=0.3)
    async with _running(tmp_path, _job(task)) as running:
        status, finished = await running.schedule.run_now("tidy", 0.0)
        assert not finished and status.wanted > status.served
        assert (await running.ended()).outcome is JobOutcome.DONE


async def test_who_waits_when_the_service_ends_is_told_that_it_did_not_finish(tmp_path: Path) -> None:
    async with _running(tmp_path, _job(_Task(lasts=30.0))) as running:
        waiting = asyncio.create_task(running.schedule.run_now("tidy"))
        await running.until(lambda: bool(running.schedule.running))
        closing = asyncio.create_task(running.schedule.aclose())
        _, finished = await waiting
        assert not finished
        await closing
        running.schedule._scheduler = None  # pyright: ignore[reportPrivateUsage]  closed: the context has nothing to close


async def test_runs_that_found_nothing_are_written_down_together(tmp_path: Path) -> None:
    """Each commit wakes the disk, and there are a dozen jobs."""
    tasks = {name: _Task() for name in ("one", "other", "third")}
    jobs = [_job(task, name, every=1.0) for name, task in tasks.items()]
    async with _running(tmp_path, *jobs) as running:
        first = {name: (await running.ended(name)).ended for name in tasks}
        await running.until(
            lambda: all(task.runs > 1 for task in tasks.values()) and not running.schedule.running
        )
        assert {name: running.store.one(name).ended for name in tasks} == first
        beside = apsw.Connection(str(tmp_path / "jobs.db"))
        before = beside.execute("PRAGMA data_version").get
        running.schedule.now_ms = lambda: now_ms() + NOTED_MS
        await running.until(lambda: beside.execute("PRAGMA data_version").get != before)
        written = {name: running.store.one(name).ended for name in tasks}
        assert all(written[name] > first[name] for name in tasks)
        assert sum(ended > first[name] + NOTED_MS // 2 for name, ended in written.items()) == 1
        beside.close()


async def test_a_run_that_has_begun_is_not_taken_for_over_by_an_earlier_one(tmp_path: Path) -> None:
    slow, other = _Task(), _Task()
    jobs = [_job(slow, "slow", every=1.0), _job(other, "other", every=1.0)]
    async with _running(tmp_path, *jobs) as running:
        await running.until(lambda: slow.runs > 1 and not running.schedule.running)
        slow.lasts = 60.0
        await running.until(lambda: running.store.one("slow").started > 0)
        other.says = ["something", "something"]
        await running.until(lambda: running.store.one("other").said == "something")
        assert running.store.one("slow").started > 0
