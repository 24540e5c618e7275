"""The store in a directory: what a crash leaves, who may open it, and what happens when the disk lies."""

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest

from crystal_relay.errors import (
    BadRequest,
    Busy,
    Closed,
    InUse,
    NotFound,
    RelayError,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
    Unusable,
)
from crystal_relay.local import LocalStore
from crystal_relay.local import writer as writer_module
from crystal_relay.local.database import error_of_sqlite, open_for_reading
from crystal_relay.local.files import ObjectFiles
from crystal_relay.local.reader import RowReader, Rows
from crystal_relay.local.writer import Results, RowWriter, Write
from crystal_relay.store import Object
from crystal_relay.wire import ListedObject, ListReply
from tests.support.processes import eventually

KEY = "v/a/blob/1"
LARGE = 400_000


def files_of(directory: Path) -> list[Path]:
    return [path for path in (directory / "files").rglob("*") if path.is_file()]


def open_files() -> int:
    """Descriptors of this process; 0 on systems that do not tell."""
    descriptors = Path("/proc/self/fd")
    return len(list(descriptors.iterdir())) if descriptors.exists() else 0


async def test_what_was_deleted_leaves_no_bytes_in_the_directory_while_the_relay_runs(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    kept, gone = secrets.token_bytes(3_000), secrets.token_bytes(9_000)
    for number in range(20):
        await store.put_new(f"v/a/blob/{number}", kept + bytes([number]))
    await store.put_new(KEY + "0000", gone)

    def on_disk(body: bytes) -> bool:
        piece = body[1_000:1_064]
        return any(piece in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    assert on_disk(gone)
    await store.delete(KEY + "0000")
    await eventually(lambda: not on_disk(gone))
    assert on_disk(kept)
    await store.aclose()


async def test_what_was_stored_is_there_after_opening_again(tmp_path: Path) -> None:
    bodies = {
        f"v/a/blob/{size}": secrets.token_bytes(size) for size in (0, 1, 5_000, 262_144, 262_145, LARGE)
    }
    store = LocalStore(tmp_path)
    for key, body in bodies.items():
        await store.put_new(key, body)
    await store.aclose()
    store = LocalStore(tmp_path)
    assert store.swept == 0
    for key, body in bodies.items():
        assert await (await store.get(key)).read() == body
    await store.aclose()


async def test_a_copy_without_its_empty_folders_is_opened_all_the_same(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put_new(KEY, b"small")
    await store.aclose()
    shutil.rmtree(tmp_path / "files")
    store = LocalStore(tmp_path)
    assert await (await store.get(KEY)).read() == b"small"
    await store.put_new(KEY + "1", bytes(LARGE))
    assert len(await (await store.get(KEY + "1")).read()) == LARGE
    await store.aclose()


async def test_small_objects_are_rows_and_large_ones_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put_new("v/a/blob/small", bytes(262_144))
    assert files_of(tmp_path) == []
    await store.put_new("v/a/blob/large", bytes(262_145))
    assert [path.stat().st_size for path in files_of(tmp_path)] == [262_145]
    await store.aclose()


async def test_a_file_goes_with_its_row(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for _ in range(3):
        await store.put(KEY, secrets.token_bytes(LARGE))
    with pytest.raises(RelayError):
        await store.put_new(KEY, secrets.token_bytes(LARGE))
    await asyncio.gather(
        *(store.put_new("v/a/blob/2", secrets.token_bytes(LARGE)) for _ in range(8)), return_exceptions=True
    )
    await store.put(KEY, b"small now")
    await store.delete("v/a/blob/2")
    await store.aclose()
    assert files_of(tmp_path) == []


async def test_what_a_crash_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put_new(KEY, bytes(LARGE))
    await store.aclose()
    [kept] = files_of(tmp_path)
    (kept.parent / ("0" * 32 + ".tmp")).write_bytes(b"half")
    (kept.parent / ("0" * 32 + ".obj")).write_bytes(b"whole, but no row names it")
    (tmp_path / "files" / "README").write_text("somebody's note")
    store = LocalStore(tmp_path)
    assert store.swept == 2
    assert set(files_of(tmp_path)) == {kept, tmp_path / "files" / "README"}
    assert len(await (await store.get(KEY)).read()) == LARGE
    assert len((await store.list("")).entries) == 1
    await store.aclose()


async def test_a_directory_belongs_to_one_store_at_a_time(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with pytest.raises(InUse, match="another process"):
        LocalStore(tmp_path)
    script = f"from pathlib import Path; from crystal_relay.local import LocalStore; LocalStore(Path({str(tmp_path)!r}))"
    other = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "InUse" in other.stderr
    await store.put_new(KEY, b"still works")
    await store.aclose()
    await LocalStore(tmp_path).aclose()


async def test_other_peoples_databases_and_newer_ones_are_left_alone(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "objects.db"))) as connection:
        connection.execute("CREATE TABLE diary (entry TEXT)")
    with pytest.raises(StoreDamaged, match="another program"):
        LocalStore(tmp_path)
    (tmp_path / "objects.db").unlink()
    await LocalStore(tmp_path).aclose()
    with closing(apsw.Connection(str(tmp_path / "objects.db"))) as connection:
        connection.pragma("user_version", 99)
    with pytest.raises(StoreDamaged, match="version 99"):
        LocalStore(tmp_path)


async def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "objects.db").write_bytes(b"This is not a database. " * 1000)
    with pytest.raises(StoreDamaged, match="damaged"):
        LocalStore(tmp_path)


async def test_a_directory_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Unusable, match="file"):
            LocalStore(directory)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(Unusable):
        LocalStore(tmp_path / "store")


async def test_the_directory_is_its_owners_alone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    await store.put_new(KEY, bytes(LARGE))
    await store.aclose()
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in files_of(tmp_path / "store"))


async def test_a_missing_or_shortened_file_is_an_error_and_never_other_bytes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put_new(KEY, bytes(LARGE))
    [file] = files_of(tmp_path)
    file.write_bytes(bytes(LARGE - 1))
    with pytest.raises(StoreDamaged, match="size"):
        await store.get(KEY)
    file.unlink()
    with pytest.raises(StoreDamaged, match="missing"):
        await store.get(KEY)
    await store.aclose()


async def test_too_many_waiting_writes_are_refused_and_the_rest_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "PENDING_WRITES_MAX", 50)
    store = LocalStore(tmp_path)
    results = await asyncio.gather(
        *(store.put_new(f"v/a/blob/{number}", b"x") for number in range(200)), return_exceptions=True
    )
    refused = [result for result in results if result is not None]
    assert refused
    assert all(isinstance(result, Busy) for result in refused)
    assert len((await store.list("")).entries) == 200 - len(refused)
    for number in range(200, 400):
        await store.put_new(f"v/a/blob/{number}", b"x")
    await store.aclose()


async def test_closing_finishes_what_was_accepted(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    writes = [
        asyncio.create_task(store.put_new(f"v/a/blob/{number}", bytes(number * 5_000)))
        for number in range(100)
    ]
    await asyncio.sleep(0)
    await store.aclose()
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert all(result is None or isinstance(result, Closed) for result in results)
    store = LocalStore(tmp_path)
    assert len((await store.list("")).entries) == results.count(None) > 0
    assert store.swept == 0
    await store.aclose()


async def test_cancelled_writes_leave_whole_objects_or_none(tmp_path: Path) -> None:
    """Cancelled at any point, a write is there whole or not at all, and no descriptor or file stays behind."""
    open_before = open_files()
    store = LocalStore(tmp_path)
    body = secrets.token_bytes(LARGE)
    for number in range(60):
        write = asyncio.create_task(store.put_new(f"v/a/blob/{number}", body))
        await asyncio.sleep(number * 0.0002)
        write.cancel()
        await asyncio.gather(write, return_exceptions=True)
    await store.aclose()
    store = LocalStore(tmp_path)
    listed = (await store.list("")).entries
    for entry in listed:
        assert await (await store.get(entry.key)).read() == body
    assert (len(files_of(tmp_path)), store.swept) == (len(listed), 0)
    await store.aclose()
    assert open_files() <= open_before


async def test_files_of_writes_whose_callers_left_go_before_the_store_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which file is of no use any more is known after the commit, when callers may have gone."""
    commit = RowWriter._commit  # pyright: ignore[reportPrivateUsage]
    committing = threading.Event()

    def slowly(self: RowWriter, group: list[Write], *, one_by_one: bool = False) -> Results:
        committing.set()
        time.sleep(0.1)
        return commit(self, group, one_by_one=one_by_one)

    store = LocalStore(tmp_path)
    await store.put_new(KEY, secrets.token_bytes(LARGE))
    with monkeypatch.context() as patched:
        patched.setattr(RowWriter, "_commit", slowly)
        writing = asyncio.create_task(store.put(KEY, secrets.token_bytes(LARGE)))
        assert await asyncio.to_thread(committing.wait, 10)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await store.aclose()
    store = LocalStore(tmp_path)
    assert (store.swept, len(files_of(tmp_path))) == (0, 1)
    await store.aclose()


async def test_a_lookup_that_fails_in_an_unforeseen_way_is_an_error_and_not_a_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    await store.put_new(KEY, bytes(100_000))

    def fail(self: RowReader, keys: list[str]) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(RowReader, "select_rows", fail)
        async with asyncio.timeout(10):
            with pytest.raises(StoreUnavailable):
                await store.get(KEY)
    assert len(await (await store.get(KEY)).read()) == 100_000
    await store.aclose()


async def test_a_lookup_that_fails_takes_none_of_its_batch_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    keys = [f"{KEY}{number}" for number in range(8)]
    for number, key in enumerate(keys):
        await store.put_new(key, bytes(20_000 + number))  # not in memory
    select_rows = RowReader.select_rows

    def select(self: RowReader, asked: Sequence[str]) -> Rows:
        if keys[3] in asked:
            raise apsw.CorruptError("a damaged page")
        return select_rows(self, asked)

    monkeypatch.setattr(RowReader, "select_rows", select)
    found = await asyncio.gather(*(store.get(key) for key in keys), return_exceptions=True)
    assert isinstance(found.pop(3), StoreDamaged)
    assert [each.size for each in found if isinstance(each, Object)] == [
        20_000 + number for number in (0, 1, 2, 4, 5, 6, 7)
    ]
    await store.aclose()


async def test_lookups_of_one_turn_of_the_loop_are_one_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, keys = LocalStore(tmp_path), [f"{KEY}{number}" for number in range(8)]
    for number, key in enumerate(keys):
        await store.put_new(key, bytes(20_000 + number))  # not in memory
    select_rows, statements = RowReader.select_rows, list[Sequence[str]]()

    def select(self: RowReader, asked: Sequence[str]) -> Rows:
        statements.append(asked)
        return select_rows(self, asked)

    monkeypatch.setattr(RowReader, "select_rows", select)
    found = await asyncio.gather(*(store.get(key) for key in keys))
    assert [each.size for each in found] == [20_000 + number for number in range(8)]
    assert statements == [keys]
    await store.aclose()


async def test_cancelled_reads_leave_no_open_file(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put_new(KEY, bytes(LARGE))
    for number in range(50):
        read = asyncio.create_task(store.get(KEY))
        await asyncio.sleep(number % 5 * 0.0001)
        read.cancel()
        result = (await asyncio.gather(read, return_exceptions=True))[0]
        if not isinstance(result, BaseException):
            await result.aclose()
    await store.aclose()  # an open file would be reported, and reports are errors in these tests


async def test_a_large_body_needs_little_memory(tmp_path: Path) -> None:
    """Pieces are written as they come: a 64 MiB body goes through a process that may not grow by half of that."""
    script = f"""
import asyncio, resource
from pathlib import Path
from crystal_relay.local import LocalStore
from crystal_relay.store import Body
async def zeros():
    for _ in range(1024):
        yield bytes(65536)
async def main():
    store = LocalStore(Path({str(tmp_path)!r}))
    await store.put_new("v/a/blob/warm", bytes(1000000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await store.put_new("v/a/blob/big", Body(1024 * 65536, zeros))
    async with await store.get("v/a/blob/big") as found:
        assert sum([len(piece) async for piece in found]) == 1024 * 65536
    await store.aclose()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
asyncio.run(main())
"""
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    grown_kib = int(run.stdout) / (1024 if sys.platform == "darwin" else 1)
    assert grown_kib < 32 * 1024


async def test_missing_objects_are_not_made_by_looking(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with pytest.raises(NotFound):
        await store.get(KEY)
    await store.delete(KEY)
    assert (await store.list("")).entries == ()
    await store.aclose()


async def test_a_store_belongs_to_one_event_loop(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put_new(KEY, b"")

    async def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="event loop"):
            await store.get(KEY)

    await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
    await store.aclose()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (apsw.FullError("x"), StoreFull),
        (apsw.CorruptError("x"), StoreDamaged),
        (apsw.NotADBError("x"), StoreDamaged),
        (apsw.IOError("x"), StoreUnavailable),
        (apsw.BusyError("x"), StoreUnavailable),
        (apsw.ReadOnlyError("x"), StoreUnavailable),
    ],
)
def test_sqlites_errors_have_a_meaning(error: apsw.Error, kind: type[RelayError]) -> None:
    assert type(error_of_sqlite(error)) is kind


async def test_a_list_reads_nothing_of_what_stands_before_its_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite begins at one lower bound only: with two of them, each first page read the keys of all vaults before its own."""
    store = LocalStore(tmp_path)
    await asyncio.gather(*(store.put_new(f"v/{'a' * 32}/devlog/{number:04d}", b"") for number in range(3000)))
    mine = f"v/{'b' * 32}/"
    for number in range(3):
        await store.put_new(f"{mine}devlog/{number}", b"")
    await store.aclose()
    hundreds = 0

    def count() -> bool:
        nonlocal hundreds
        hundreds += 1
        return False

    def opened(path: Path) -> apsw.Connection:
        connection = open_for_reading(path)
        connection.set_progress_handler(count, 100)
        return connection

    monkeypatch.setattr("crystal_relay.local.reader.open_for_reading", opened)
    reader = RowReader(tmp_path / "objects.db", ObjectFiles(tmp_path / "files"))
    for after in ("", f"v/{'a' * 32}/devlog/0001", f"{mine}devlog/0"):
        wanted = [f"{mine}devlog/{number}" for number in range(1 if after.startswith(mine) else 0, 3)]
        assert [each.key for each in reader.select(mine, after, 10)] == wanted
        text, _ = reader.select_json(mine, after, 10, 0)
        assert [each["key"] for each in msgspec.json.decode(text)] == wanted
    assert 0 < hundreds < 50
    reader.close()


async def test_a_list_as_json_says_what_a_list_says(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for number in range(12):
        await store.put_new(f"v/{'a' * 32}/devlog/{number:02d}", bytes(number))
    await store.put_new(f"v/{'b' * 32}/devlog/00", b"")
    mine = f"v/{'a' * 32}/"
    for prefix in (mine, f"{mine}devlog/0", f"{mine}devlog/2", "v/", ""):
        for after in ("", f"{mine}devlog/04", f"v/{'b' * 32}/devlog/00"):
            for limit in (1, 2, 7, 12, 13, 1000):
                for cut in (0, len(mine)):
                    page = await store.list(prefix, after=after, limit=limit)
                    text, more = await store.list_json(prefix, after=after, limit=limit, cut=cut)
                    wanted = ListReply(
                        [ListedObject(each.key[cut:], each.size) for each in page.entries], page.more
                    )
                    assert (text, more) == (msgspec.json.encode(wanted.entries), wanted.more)
    with pytest.raises(BadRequest):
        await store.list_json("", limit=0)
    with pytest.raises(BadRequest):
        await store.list_json("/")
    await store.aclose()
    with pytest.raises(Closed):
        await store.list_json("")
