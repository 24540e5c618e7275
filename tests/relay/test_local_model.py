"""The store in a directory beside a model: many writes of few keys at once, callers that leave, a disk that fails.

Writes of small objects take effect in the order of the calls, so the model does one after the other. What is not known
(a caller left, a write was not confirmed) leaves the model with several possibilities, of which the store has to hold one.
"""

import asyncio
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_relay.errors import AlreadyExists, NotFound, RelayError, StoreFull, StoreUnavailable
from crystal_relay.local import LocalStore
from crystal_relay.local.writer import RowChange
from tests.support.faulty_disk import Failure, FaultyDisk, faulty_disk

KEYS = [f"v/a/blob/{name}" for name in "abc"]
INLINE_BYTES_MAX = 40_000
SIZES = (0, 300, 20_000)
"""Bytes: on both sides of what is kept in memory for readers."""


@dataclass(frozen=True)
class Step:
    """One call. `leaves`: after how many turns of the loop its caller is cancelled."""

    change: RowChange
    key: str
    size: int
    leaves: int | None


@dataclass(frozen=True)
class Burst:
    """Calls made at once, and what the disk does meanwhile."""

    steps: list[Step]
    failure: Failure | None
    after: int
    times: int


def steps(sizes: tuple[int, ...]) -> st.SearchStrategy[Step]:
    return st.builds(
        Step,
        st.sampled_from(RowChange),
        st.sampled_from(KEYS),
        st.sampled_from(sizes),
        st.none() | st.integers(0, 4),
    )


def bursts(sizes: tuple[int, ...]) -> st.SearchStrategy[list[Burst]]:
    burst = st.builds(
        Burst,
        st.lists(steps(sizes), min_size=1, max_size=14),
        st.none() | st.sampled_from(Failure),
        st.integers(0, 9),
        st.sampled_from([1, 2, 5, 1000]),
    )
    return st.lists(burst, min_size=1, max_size=6)


class Compared:
    """A store, and for each key what it may hold: the number of the write whose bytes they are; None for nothing."""

    def __init__(self, store: LocalStore, disk: FaultyDisk) -> None:
        self.store = store
        self.disk = disk
        self.may_hold: dict[str, set[int | None]] = {key: {None} for key in KEYS}
        self.bodies: list[bytes] = []

    async def run(self, burst: Burst) -> None:
        first = len(self.bodies)
        self.bodies += [
            (b"%08d" % (first + at) * (step.size // 8 + 1))[: step.size]
            for at, step in enumerate(burst.steps)
        ]
        self.disk.fail(burst.failure, after=burst.after, times=burst.times)
        calls = [
            asyncio.create_task(self._call(first + at, step, [later.key for later in burst.steps[at + 1 :]]))
            for at, step in enumerate(burst.steps)
        ]
        for turn in range(5):
            await asyncio.sleep(0)
            for call, step in zip(calls, burst.steps, strict=True):
                if step.leaves == turn:
                    call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        with suppress(RelayError):
            await self.store.delete("v/b/nothing")  # behind those whose callers left
        self.disk.fail(None)
        for at, (step, result) in enumerate(zip(burst.steps, results, strict=True)):
            self._learn(first + at, step, result)
        await self.check()

    async def _call(self, number: int, step: Step, later: list[str]) -> None:
        token = await self.store.wait("v/a/", token=None, timeout=0)
        match step.change:
            case RowChange.CREATE:
                await self.store.put_new(step.key, self.bodies[number])
            case RowChange.REPLACE:
                await self.store.put(step.key, self.bodies[number])
            case RowChange.DELETE:
                await self.store.delete(step.key)
        if step.change is not RowChange.DELETE:
            assert await self.store.wait("v/a/", token=token, timeout=0) != token, "nobody was woken"
        if step.key not in later:  # what was reported can be seen, at once
            expected = None if step.change is RowChange.DELETE else self.bodies[number]
            assert await held(self.store, step.key) == expected

    def _learn(self, number: int, step: Step, result: BaseException | None) -> None:
        before = self.may_hold[step.key]
        created: int | None = None if step.change is RowChange.DELETE else number
        done: set[int | None] = {created}
        if step.change is RowChange.CREATE:
            if isinstance(result, AlreadyExists):
                self.may_hold[step.key] = before - {None}
                assert self.may_hold[step.key], "refused for an object that was not there"
                return
            if result is None:
                assert None in before, "created over an object"
            done = {one if one is not None else number for one in before}
            if result is None:
                done = {number}
        if result is None:
            self.may_hold[step.key] = done
        elif isinstance(result, asyncio.CancelledError):
            self.may_hold[step.key] = before | done
        else:
            # In the process that failed, what was refused is not there; only a crash could bring it back.
            assert isinstance(result, StoreFull | StoreUnavailable), repr(result)

    async def check(self) -> None:
        listed = {entry.key: entry.size for entry in (await self.store.list("v/a/")).entries}
        for key in KEYS:
            found = await held(self.store, key)
            possible = {None if one is None else self.bodies[one] for one in self.may_hold[key]}
            assert found in possible, f"{key}: {found and found[:8]!r}"
            assert listed.get(key) == (None if found is None else len(found))
            self.may_hold[key] = {
                one for one in self.may_hold[key] if (None if one is None else self.bodies[one]) == found
            }


async def held(store: LocalStore, key: str) -> bytes | None:
    try:
        return await (await store.get(key)).read()
    except NotFound:
        return None


async def compare(directory: Path, disk: FaultyDisk, all_bursts: list[Burst]) -> None:
    store = LocalStore(directory, inline_bytes_max=INLINE_BYTES_MAX)
    compared = Compared(store, disk)
    for burst in all_bursts:
        await compared.run(burst)
    await store.aclose()
    compared.store = LocalStore(directory, inline_bytes_max=INLINE_BYTES_MAX)
    await compared.check()
    await compared.store.aclose()


@given(all_bursts=bursts(SIZES))
@settings(max_examples=40, deadline=None)
def test_small_objects_are_what_the_model_says(all_bursts: list[Burst]) -> None:
    with tempfile.TemporaryDirectory() as directory, faulty_disk() as disk:
        asyncio.run(compare(Path(directory), disk, all_bursts))


async def test_what_was_deleted_after_a_failed_flush_stays_deleted_over_a_crash(tmp_path: Path) -> None:
    """The write that could not be confirmed stands in SQLite's log, from where a crash brings back what is the latest there."""
    with faulty_disk() as disk:
        store = LocalStore(tmp_path / "store")
        await store.put_new(KEYS[0], b"kept")
        disk.fail(Failure.FLUSH_BROKEN)
        with pytest.raises(StoreUnavailable):
            await store.put_new(KEYS[1], b"unconfirmed")
        await store.delete(KEYS[1])
        # What a crash leaves of it.
        shutil.copytree(tmp_path / "store", tmp_path / "crashed", ignore=shutil.ignore_patterns("*-shm"))
        await store.aclose()
        store = LocalStore(tmp_path / "crashed")
        assert [entry.key for entry in (await store.list("")).entries] == KEYS[:1]
        await store.aclose()
