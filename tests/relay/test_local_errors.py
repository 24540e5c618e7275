"""What the local store tells of an error of SQLite or of the file system, and what it keeps of small objects in memory."""

import asyncio
import errno
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from crystal_relay.errors import AlreadyExists, StoreDamaged, StoreFull, StoreUnavailable
from crystal_relay.local import LocalStore
from crystal_relay.local.database import error_of_sqlite, error_of_system
from crystal_relay.local.recent import (
    _OVERHEAD_BYTES,  # pyright: ignore[reportPrivateUsage]  what an object counts beyond its bytes shows nowhere else
    RECENT_OBJECT_BYTES_MAX,
    Recent,
)
from crystal_relay.store import Body


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_disk_a_quota_or_a_limit_that_is_used_up_is_a_full_disk(number: int) -> None:
    assert isinstance(error_of_system(OSError(number, "")), StoreFull)


def test_another_error_of_the_file_system_is_told_by_its_name() -> None:
    told = error_of_system(OSError(errno.EIO, ""))
    assert isinstance(told, StoreUnavailable)
    assert "EIO" in str(told)


@pytest.mark.parametrize(
    ("error", "told", "hinted"),
    [
        (apsw.FullError(), StoreFull, False),
        (apsw.CorruptError(), StoreDamaged, False),
        (apsw.NotADBError(), StoreDamaged, False),
        (apsw.CantOpenError(), StoreUnavailable, True),
        (apsw.ReadOnlyError(), StoreUnavailable, True),
        (apsw.PermissionsError(), StoreUnavailable, True),
        (apsw.BusyError(), StoreUnavailable, False),
        (apsw.IOError(), StoreUnavailable, False),
    ],
)
def test_each_error_of_sqlite_is_told_as_what_a_person_can_do_about_it(
    error: apsw.Error, told: type[Exception], hinted: bool
) -> None:
    found = error_of_sqlite(error)
    assert type(found) is told
    assert ("permissions of the relay's directory" in (found.hint or "")) is hinted


def test_small_objects_stay_in_memory_up_to_a_number_of_bytes() -> None:
    recent = Recent(bytes_max=3 * (_OVERHEAD_BYTES + 10))
    for _ in range(5):  # what was dropped leaves all of its room
        for key in ("a", "b", "c"):
            recent.keep(key, key.encode() * 10)
        assert [recent.get(key) for key in "abc"] == [b"a" * 10, b"b" * 10, b"c" * 10]
        for key in ("a", "b", "c", "never kept"):
            recent.drop(key)
        assert [recent.get(key) for key in "abc"] == [None, None, None]
    for key in ("a", "b", "c", "d"):
        recent.keep(key, key.encode() * 10)
    assert [recent.get(key) is not None for key in "abcd"] == [False, True, True, True]
    recent.keep("c", b"C" * 10)
    assert (recent.get("b"), recent.get("c")) == (b"b" * 10, b"C" * 10), (
        "a newer one takes the place of its own"
    )
    recent.keep("b", bytes(RECENT_OBJECT_BYTES_MAX + 1))
    assert recent.get("b") is None, "and what is too large leaves nothing older behind"
    roomy = Recent()
    roomy.keep("b", bytes(RECENT_OBJECT_BYTES_MAX))
    assert roomy.get("b") == bytes(RECENT_OBJECT_BYTES_MAX)


def test_a_database_that_cannot_be_read_does_not_look_empty(tmp_path: Path) -> None:
    async def run() -> None:
        store = LocalStore(tmp_path / "store")
        await store.put_new("v/a/x/1", b"kept")
        with closing(sqlite3.connect(next((tmp_path / "store").glob("*.db")))) as connection:
            connection.execute("ALTER TABLE object RENAME TO elsewhere")
            connection.commit()
        for call in (store.list("v/a/"), store.get("v/a/x/2")):
            with pytest.raises(StoreUnavailable):
                await call
        with closing(sqlite3.connect(next((tmp_path / "store").glob("*.db")))) as connection:
            connection.execute("ALTER TABLE elsewhere RENAME TO object")
            connection.commit()
        await store.aclose()

    asyncio.run(run())


def test_a_large_object_whose_key_is_taken_is_not_received(tmp_path: Path) -> None:
    size = 1024 * 1024
    asked: list[int] = []

    async def pieces() -> AsyncIterator[bytes]:
        asked.append(size)
        yield bytes(size)

    async def run() -> None:
        store = LocalStore(tmp_path / "store")
        await store.put_new("v/a/blob/1", bytes(size))
        with pytest.raises(AlreadyExists):
            await store.put_new("v/a/blob/1", Body(size, pieces))
        assert asked == []
        await store.aclose()

    asyncio.run(run())
