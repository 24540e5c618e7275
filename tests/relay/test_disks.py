"""Disks that are full, or that fail: an error for what did not fit, never a false success, and service goes on."""

import asyncio
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from crystal_relay.errors import NotFound, StoreFull
from crystal_relay.local import LocalStore
from crystal_relay.local.disk_space import AMPLE_BYTES, AMPLE_SECONDS, RESERVE_BYTES, DiskSpace
from crystal_relay.store import Body
from tests.support.hand_written import connected, put_head
from tests.support.relay_server import enrolled, served

pytestmark = pytest.mark.disk

DISK_BYTES = RESERVE_BYTES + 14 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of its own, a little larger than the reserve. Needs the right to mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
    if (
        sys.platform != "linux"
        or os.geteuid() != 0
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("mounting is not permitted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def body_of(key: str) -> bytes:
    size = int(key.rpartition("-")[2])
    return random.Random(key).randbytes(size)


async def fill(store: LocalStore, size: int) -> list[str]:
    """Put until it does not fit any more; the keys that did."""
    keys: list[str] = []
    while True:
        key = f"v/a/blob/{len(keys)}-{size}"
        try:
            await store.put_new(key, body_of(key))
        except StoreFull:
            return keys
        keys.append(key)


async def check(store: LocalStore, keys: list[str]) -> None:
    """These are there, whole, and nothing else is."""
    listed: list[str] = []
    while True:
        page = await store.list("", after=listed[-1] if listed else "")
        listed += [entry.key for entry in page.entries]
        if not page.more:
            break
    assert sorted(listed) == sorted(keys)
    for key in keys:
        assert await (await store.get(key)).read() == body_of(key)


@pytest.mark.parametrize("sizes", [(4_000,), (300_000,), (300_000, 4_000), (100_000, 4_000)])
async def test_a_full_store_refuses_whole_and_can_be_emptied(
    small_disk: Path, sizes: tuple[int, ...]
) -> None:
    store = LocalStore(small_disk / "store")
    keys = [key for size in sizes for key in await fill(store, size)]
    assert sum(len(body_of(key)) for key in keys) > 6_000_000
    for size in (max(sizes), 500_000, 3_000_000):
        with pytest.raises(StoreFull):
            await store.put_new(f"v/a/blob/over-{size}", bytes(size))
    empty = await fill(store, 0)
    assert len(empty) < 400, "names alone take the reserve away"
    keys += empty
    await check(store, keys)
    gone, keys = keys[::2], keys[1::2]
    for key in gone:
        await store.delete(key)
    await check(store, keys)
    for key in gone[: len(gone) // 2]:
        await store.put_new(key, body_of(key))
    keys += gone[: len(gone) // 2]
    await check(store, keys)
    await store.aclose()
    store = LocalStore(small_disk / "store")
    await check(store, keys)
    await store.aclose()


@pytest.mark.parametrize("size", [4_000, 300_000])
async def test_a_disk_that_others_fill_refuses_everything_and_recovers(small_disk: Path, size: int) -> None:
    store = LocalStore(small_disk / "store")
    keys = [f"v/a/blob/{number}-{size}" for number in range(10)]
    for key in keys:
        await store.put_new(key, body_of(key))
    await asyncio.to_thread(_fill_up, small_disk / "somebody-elses")
    for attempt in (10, 4_000, 131_000, 200_000, 300_000):
        with pytest.raises(StoreFull):
            await store.put_new(f"v/a/blob/over-{attempt}", bytes(attempt))
        with pytest.raises(NotFound):
            await store.get(f"v/a/blob/over-{attempt}")
    await check(store, keys)
    await asyncio.to_thread((small_disk / "somebody-elses").unlink)
    for number in range(10, 20):
        keys.append(f"v/a/blob/{number}-{size}")
        await store.put_new(keys[-1], body_of(keys[-1]))
    await check(store, keys)
    await store.aclose()
    assert list((small_disk / "store" / "files").rglob("*.tmp")) == []


async def test_large_uploads_at_once_leave_the_reserve_alone(small_disk: Path) -> None:
    """Each fits by itself; together they would leave no room to delete anything."""
    store = LocalStore(small_disk / "store")
    size = 4 * 1024 * 1024
    go_on = asyncio.Event()

    async def slow(number: int) -> AsyncGenerator[bytes]:
        for at in range(8):
            if at == 4:
                await go_on.wait()
            yield bytes([number]) * (size // 8)

    async def put(number: int) -> bool:
        try:
            await store.put_new(f"v/a/blob/{number}", Body(size, lambda: slow(number)))
        except StoreFull:
            return False
        return True

    uploads = [asyncio.create_task(put(number)) for number in range(8)]
    await asyncio.wait(uploads, timeout=1.0)  # those that are refused are refused before they begin
    assert shutil.disk_usage(small_disk).free >= RESERVE_BYTES
    go_on.set()
    stored = sum(await asyncio.gather(*uploads))
    assert 2 <= stored <= 3
    assert shutil.disk_usage(small_disk).free >= RESERVE_BYTES - 1024 * 1024
    while stored:
        page = await store.list("v/a/")
        await store.delete(page.entries[0].key)
        stored -= 1
    for number in range(8, 10):
        assert await put(number), "what was promised to refused and finished uploads was given back"
    await store.aclose()


async def test_a_full_relay_answers_507(small_disk: Path) -> None:
    store = LocalStore(small_disk / "store")
    async with served(store) as relay:
        lead = await enrolled(relay.url)
        await asyncio.to_thread(_fill_up, small_disk / "somebody-elses")
        async with connected(relay.url) as connection:
            for size in (10, 500_000):
                await connection.send(put_head(lead, "blob/x", size) + bytes(size))
                reply = await connection.reply()
                assert (reply.status, reply.json["error"]) == (507, "full")
            await connection.send(b"GET /health/ready HTTP/1.1\r\nHost: relay\r\n\r\n")
            reply = await connection.reply()
            assert (reply.status, reply.json) == (200, {"ok": True, "full": "disk"})
        await asyncio.to_thread((small_disk / "somebody-elses").unlink)
        async with connected(relay.url) as connection:
            await connection.send(put_head(lead, "blob/x", 4) + b"good")
            assert (await connection.reply()).status == 201
    await store.aclose()


def _fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for piece in (1024 * 1024, 4096, 1):
            try:
                while True:
                    file.write(bytes(piece))
            except OSError:
                continue


# --- what the disk is told, seen from outside ---

PUTS = """
import asyncio, os, sys
from pathlib import Path
from crystal_relay.errors import RelayError
from crystal_relay.local import LocalStore
async def main():
    store = LocalStore(Path(sys.argv[1]))
    os.write(1, b"READY")
    for number in range(6):
        try:
            await store.put_new(f"v/a/blob/{number}", bytes(int(sys.argv[2])))
            os.write(1, b"STORED")
        except RelayError as error:
            os.write(1, b"FAILED " + type(error).__name__.encode())
    os._exit(0)
asyncio.run(main())
"""


def traced(directory: Path, size: int, *options: str) -> str:
    """The system calls of a process that stores six objects."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    log = directory.with_name("trace")
    tracer = ("strace", "-f", "-o", str(log), "-e", "trace=write,fsync,fdatasync,rename", *options)
    run = subprocess.run(
        [*tracer, sys.executable, "-c", PUTS, str(directory), str(size)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if not log.exists() or "READY" not in run.stdout:
        pytest.skip(f"strace does not run here: {run.stderr[-200:]}")
    return log.read_text()


@pytest.mark.parametrize(
    ("size", "order"),
    [(1_000, r"(?:fdatasync|fsync)"), (300_000, r"fsync.*?rename.*?fsync.*?(?:fdatasync|fsync)")],
)
def test_success_is_said_after_the_disk_has_said_so(tmp_path: Path, size: int, order: str) -> None:
    log = traced(tmp_path / "store", size)
    between = re.split(r'write\(1, "(?:READY|STORED)"', log)
    assert len(between) == 8, "one part before, one for each object, one after"
    for calls in between[1:-1]:
        assert re.search(order, calls, re.DOTALL), calls


@pytest.mark.parametrize("size", [1_000, 300_000])
def test_a_disk_that_cannot_make_things_durable_is_never_a_success(tmp_path: Path, size: int) -> None:
    directory = tmp_path / "store"
    asyncio.run(_make(directory))
    log = traced(directory, size, "-e", "inject=fsync,fdatasync:error=EIO")
    assert "STORED" not in log
    assert log.count("FAILED StoreUnavailable") == 6
    asyncio.run(_is_empty_or_whole(directory, size))


def test_a_flush_that_finds_the_disk_full_is_not_taken_for_nothing_stored(tmp_path: Path) -> None:
    """All was written before the flush, so a crash may bring it back: `full` would say that it cannot."""
    directory = tmp_path / "store"
    asyncio.run(_make(directory))
    log = traced(directory, 1_000, "-e", "inject=fdatasync:error=ENOSPC")
    assert "STORED" not in log
    assert log.count("FAILED StoreUnavailable") == 6


async def _make(directory: Path) -> None:
    await LocalStore(directory).aclose()


async def _is_empty_or_whole(directory: Path, size: int) -> None:
    store = LocalStore(directory)
    for entry in (await store.list("")).entries:
        assert len(await (await store.get(entry.key)).read()) == size
    await store.aclose()


class _Disk(DiskSpace):
    """A disk with as much space as the test says."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.free = 0
        self.looks = 0

    def _free(self) -> int:
        self.looks += 1
        return self.free


def test_a_disk_with_ample_space_is_looked_at_now_and_then_and_any_other_each_time(tmp_path: Path) -> None:
    disk = _Disk(tmp_path)
    with closing(apsw.Connection(str(tmp_path / "a.db"))) as connection:
        disk.free = RESERVE_BYTES + AMPLE_BYTES - 1
        assert disk.has_for_rows(connection, 1)
        disk.free = RESERVE_BYTES
        assert not disk.has_for_rows(connection, 1), "it was not ample"
        disk.free, disk.looks = 2 * AMPLE_BYTES, 0
        assert all(disk.has_for_rows(connection, 1) for _ in range(1_000))
        assert disk.looks < 1_000, "a look counts for a while"
        disk.free = RESERVE_BYTES
        time.sleep(2 * AMPLE_SECONDS)
        assert not disk.has_for_rows(connection, 1), "that is too long ago"
        disk.free = 2 * AMPLE_BYTES
        assert disk.has_for_rows(connection, 1)
        claim = disk.claim(disk.free - RESERVE_BYTES)
        assert not disk.has_for_rows(connection, 1), "what a file has claimed is no longer there"
        claim.release()
