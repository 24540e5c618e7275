"""File changes: nothing falls between looking at everything and being told of changes, and folders may come
later."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from crystal_node.base import changes as changes_module
from crystal_node.base.changes import HAS_INOTIFY, ChangeTimes, changes

_FAST = ChangeTimes(poll=0.3, settle=0.02, burst=0.1)
_SLOW_POLL = ChangeTimes(poll=60.0, settle=0.02, burst=0.1)


@pytest.fixture(autouse=True, params=[True, False], ids=["inotify", "watchfiles"])
def _events(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The events of this system, and those of other systems."""
    if request.param and not HAS_INOTIFY:
        pytest.skip("Linux alone has inotify")
    monkeypatch.setattr(changes_module, "HAS_INOTIFY", request.param)


def _is_transcript(path: str) -> bool:
    return path.endswith(".jsonl")


async def test_the_first_item_asks_to_look_at_everything_and_a_change_right_after_it_is_reported(
    tmp_path: Path,
) -> None:
    async with (
        aclosing(changes(lambda: [tmp_path], _is_transcript, _SLOW_POLL)) as stream,
        asyncio.timeout(10),
    ):
        assert await anext(stream) is None
        (tmp_path / "a.jsonl").write_text("1")
        assert await anext(stream) == frozenset({str(tmp_path / "a.jsonl")})


async def test_files_that_do_not_concern_us_wake_nobody(tmp_path: Path) -> None:
    async with (
        aclosing(changes(lambda: [tmp_path], _is_transcript, _SLOW_POLL)) as stream,
        asyncio.timeout(10),
    ):
        assert await anext(stream) is None
        (tmp_path / "noise.txt").write_text("1")
        await asyncio.sleep(0.2)
        (tmp_path / "b.jsonl").write_text("1")
        assert await anext(stream) == frozenset({str(tmp_path / "b.jsonl")})


async def test_a_new_file_is_looked_at_again_soon_in_case_its_folder_was_too_young_for_events(
    tmp_path: Path,
) -> None:
    async with (
        aclosing(changes(lambda: [tmp_path], _is_transcript, _SLOW_POLL)) as stream,
        asyncio.timeout(10),
    ):
        assert await anext(stream) is None
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "c.jsonl").write_text("1")
        (tmp_path / "d.jsonl").write_text("1")
        assert await anext(stream)
        assert await anext(stream) is None, "a follow-up look at everything, long before the poll"


async def test_a_folder_that_appears_later_is_found_long_before_the_poll(tmp_path: Path) -> None:
    late = tmp_path / "late"
    times = ChangeTimes(poll=60.0, settle=0.02, burst=0.1, appear=0.1)
    async with aclosing(changes(lambda: [late], _is_transcript, times)) as stream, asyncio.timeout(10):
        assert await anext(stream) is None
        late.mkdir()
        assert await anext(stream) is None
        (late / "e.jsonl").write_text("1")
        assert await anext(stream) == frozenset({str(late / "e.jsonl")})


async def test_a_folder_that_appears_beside_another_is_watched_too(tmp_path: Path) -> None:
    first, late = tmp_path / "first", tmp_path / "late"
    first.mkdir()
    times = ChangeTimes(poll=60.0, settle=0.02, burst=0.1, appear=0.1)
    async with aclosing(changes(lambda: [first, late], _is_transcript, times)) as stream, asyncio.timeout(10):
        assert await anext(stream) is None
        (first / "a.jsonl").write_text("1")
        assert await anext(stream) == frozenset({str(first / "a.jsonl")})
        late.mkdir()
        assert await anext(stream) is None
        (late / "e.jsonl").write_text("1")
        assert await anext(stream) == frozenset({str(late / "e.jsonl")})


async def test_a_folder_deep_below_others_that_are_missing_is_told_by_events_alone(tmp_path: Path) -> None:
    """A background service looks for the folders of a dozen tools; most are never made."""
    if not changes_module.HAS_INOTIFY:
        pytest.skip("other systems' folders are looked for")
    (tmp_path / "here").mkdir()
    deep = tmp_path / "tool" / "data" / "sessions"
    times = ChangeTimes(poll=60.0, settle=0.02, burst=0.1, appear=60.0, appear_watched=60.0)
    folders = [tmp_path / "here", deep, tmp_path / "other" / "sessions"]
    async with aclosing(changes(lambda: folders, lambda _: True, times)) as stream:
        assert await anext(stream) is None
        for made in (deep.parent.parent, deep.parent, deep):
            await asyncio.sleep(0.05)
            made.mkdir()
        async with asyncio.timeout(5):
            assert await anext(stream) is None  # the folders are watched anew, with that one
            (deep / "first.jsonl").write_text("{}")
            assert await anext(stream) == frozenset({str(deep / "first.jsonl")})


async def test_without_events_there_is_still_a_poll(tmp_path: Path) -> None:
    async with aclosing(changes(lambda: [tmp_path], _is_transcript, _FAST)) as stream, asyncio.timeout(10):
        assert [await anext(stream) for _ in range(3)] == [None, None, None]


async def test_events_without_end_put_off_no_look_at_everything(tmp_path: Path) -> None:
    """Another folder may be on a disk that sends none."""
    path = tmp_path / "a.jsonl"
    path.write_text("1")

    async def write() -> None:
        while True:
            with path.open("a") as file:
                file.write("1")
            await asyncio.sleep(0.02)

    times = ChangeTimes(poll=1.0, settle=0.02, burst=0.1)
    async with aclosing(changes(lambda: [tmp_path], _is_transcript, times)) as stream, asyncio.timeout(60):
        assert await anext(stream) is None
        writing = asyncio.create_task(write())
        try:
            while await anext(stream) is not None:
                pass
        finally:
            writing.cancel()


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancellation_that_comes_together_with_a_change_is_not_lost(turns: int) -> None:
    changed = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(changes_module._first(changed, asyncio.sleep(60)))  # pyright: ignore[reportPrivateUsage]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    changed.set_result(None)
    for _ in range(turns):
        await asyncio.sleep(0)
    if waiting.cancel():
        await asyncio.wait({waiting})
        assert waiting.cancelled()
    else:
        assert waiting.done(), "it returned before"
