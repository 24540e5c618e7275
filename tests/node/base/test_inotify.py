"""Linux's events: of folders that come, move and go, of more events than are kept, and of watches that nobody has room for."""

import asyncio
import os
import resource
from collections.abc import Generator
from contextlib import aclosing
from pathlib import Path

import pytest

from crystal_node.base.changes import HAS_INOTIFY, ChangeTimes, changes
from crystal_node.base.errors import LocalStorage, passes
from crystal_node.base.inotify import Appearing, Inotify

pytestmark = pytest.mark.skipif(not HAS_INOTIFY, reason="Linux alone has inotify")


@pytest.fixture
def watch(tmp_path: Path) -> Generator[Inotify]:
    (tmp_path / "old" / "deep").mkdir(parents=True)
    found = Inotify([str(tmp_path)])
    yield found
    found.close()


async def paths_of(watch: Inotify, until: Path) -> set[str]:
    """All paths that are told, up to and with that one."""
    told: set[str] = set()
    async with asyncio.timeout(60):
        while str(until) not in told:
            events = await watch.next(lambda _path: True, 0.02, 0.1)
            assert events is not None
            told |= {path for path, _ in events}
    return told


async def test_a_file_in_a_folder_that_just_came_is_told_with_it(watch: Inotify, tmp_path: Path) -> None:
    (tmp_path / "new" / "inner").mkdir(parents=True)
    (tmp_path / "new" / "inner" / "a").write_text("1")
    await paths_of(watch, tmp_path / "new" / "inner" / "a")
    (tmp_path / "new" / "inner" / "b").write_text("1")
    await paths_of(watch, tmp_path / "new" / "inner" / "b")


async def test_a_folder_that_moved_is_told_by_its_new_name(watch: Inotify, tmp_path: Path) -> None:
    (tmp_path / "old").rename(tmp_path / "moved")
    await paths_of(watch, tmp_path / "moved")
    (tmp_path / "moved" / "deep" / "a").write_text("1")
    told = await paths_of(watch, tmp_path / "moved" / "deep" / "a")
    assert str(tmp_path / "old" / "deep" / "a") not in told


async def test_what_moved_out_is_told_no_more(watch: Inotify, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    (tmp_path / "old").rename(outside)
    await paths_of(watch, tmp_path / "old")
    (outside / "deep" / "a").write_text("1")
    (tmp_path / "end").write_text("1")
    told = await paths_of(watch, tmp_path / "end")
    assert not any("deep" in path for path in told)


async def test_touching_a_file_is_an_event_and_a_link_to_a_folder_is_followed(
    watch: Inotify, tmp_path: Path
) -> None:
    linked = tmp_path.parent / f"{tmp_path.name}-linked"
    linked.mkdir()
    (linked / "look").write_text("")
    (tmp_path / "link").symlink_to(linked)
    await paths_of(watch, tmp_path / "link")
    os.utime(linked / "look")
    await paths_of(watch, tmp_path / "link" / "look")


async def test_a_link_to_a_folder_above_is_walked_once(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "up").symlink_to(tmp_path)
    watch = Inotify([str(tmp_path)])
    try:
        (tmp_path / "below" / "a").write_text("1")
        await paths_of(watch, tmp_path / "below" / "a")
    finally:
        watch.close()


def _kept_events() -> int:
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


async def test_more_events_than_the_system_keeps_ask_to_look_at_everything(
    watch: Inotify, tmp_path: Path
) -> None:
    kept = _kept_events()
    if kept > 100_000:
        pytest.skip("this system keeps too many events")
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("")
    two.write_text("")
    for _ in range(kept // 2 + 2):  # in turns, since equal events behind each other are one
        os.utime(one)
        os.utime(two)
    async with asyncio.timeout(60):
        assert await watch.next(lambda _path: True, 0.02, 0.1) is None
        two.write_text("1")
        assert await watch.next(lambda _path: True, 0.02, 0.1)


async def test_what_concerns_nobody_is_not_told(watch: Inotify, tmp_path: Path) -> None:
    (tmp_path / "noise").write_text("1")
    waiting = asyncio.ensure_future(watch.next(lambda path: path.endswith("wanted"), 0.02, 0.1))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    (tmp_path / "wanted").write_text("1")
    async with asyncio.timeout(60):
        events = await waiting
    assert events is not None
    assert {path for path, _ in events} == {str(tmp_path / "wanted")}


def test_a_folder_that_is_watched_already_or_gone_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "one" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "one")
    names = ("one", "one/below", "link", "gone")
    Inotify([str(tmp_path / name) for name in names]).close()


def test_no_room_for_more_watches_is_told_as_such_and_leaves_no_descriptor(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first_free = os.dup(0)
    os.close(first_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))
    try:
        with pytest.raises(LocalStorage, match="watch no more folders") as raised:
            Inotify([str(tmp_path)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "max_user_watches" in raised.value.hint
    assert passes(raised.value)
    assert len(os.listdir("/proc/self/fd")) == len(before)  # noqa: PTH208


async def test_after_more_events_than_are_kept_new_folders_are_watched(tmp_path: Path) -> None:
    kept = _kept_events()
    if kept > 100_000:
        pytest.skip("this system keeps too many events")
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("")
    two.write_text("")
    async with (
        aclosing(changes(lambda: [tmp_path], lambda _path: True, ChangeTimes(poll=3600))) as stream,
        asyncio.timeout(120),
    ):
        assert await anext(stream) is None
        for _ in range(kept // 2 + 2):
            os.utime(one)
            os.utime(two)
        (tmp_path / "new").mkdir()
        assert await anext(stream) is None
        (tmp_path / "new" / "a").write_text("1")
        told = await anext(stream)
        assert told is not None
        assert str(tmp_path / "new" / "a") in told


async def test_a_watched_folder_that_is_made_anew_is_watched_again(tmp_path: Path) -> None:
    for end in ("removed", "moved"):
        root = tmp_path / end
        root.mkdir()
        async with (
            aclosing(changes(lambda: [root], lambda _path: True, ChangeTimes(poll=3600))) as stream,  # noqa: B023
            asyncio.timeout(120),
        ):
            assert await anext(stream) is None
            if end == "removed":
                root.rmdir()
            else:
                root.rename(tmp_path / "elsewhere")
            root.mkdir()
            assert await anext(stream) is None
            (root / "a").write_text("1")
            assert await anext(stream) == frozenset({str(root / "a")})


async def test_what_is_no_folder_and_what_else_is_made_there_wakes_nobody(tmp_path: Path) -> None:
    watch = Appearing(
        [str(tmp_path / "tool" / "sessions"), str(tmp_path / "file" / "sessions"), str(tmp_path / "drop")]
    )
    (tmp_path / "other").mkdir()
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await watch.wait()
        (tmp_path / "drop").mkdir()
        async with asyncio.timeout(5):
            await watch.wait()
    finally:
        watch.close()
    (tmp_path / "file").write_text("no folder")
    watch = Appearing([str(tmp_path / "file" / "sessions")])
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await watch.wait()
    finally:
        watch.close()
