"""A relay's directory is copied while devices write to it."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest
import pytest_asyncio

from crystal_relay.errors import BadRequest, InUse, NotFound, StoreDamaged, Unusable
from crystal_relay.local import LocalStore
from crystal_relay.local import backup as backups
from crystal_relay.local.backup import PARTIAL, back_up
from crystal_relay.local.database import lock
from crystal_relay.local.files import ObjectFiles
from crystal_relay.local.store import INLINE_BYTES_MAX
from tests.support.operating import run_crystal_relay
from tests.support.processes import eventually
from tests.support.relay_process import RelayProcess
from tests.support.relay_server import enrolled

pytestmark = pytest.mark.timeout(400)
LARGE = INLINE_BYTES_MAX + 1


async def contents(directory: Path) -> dict[str, bytes]:
    """Every object of a directory, read whole by a store of its own."""
    store = LocalStore(directory)
    found: dict[str, bytes] = {}
    after, more = "", True
    while more:
        page = await store.list("", after=after)
        for entry in page.entries:
            found[entry.key] = after_read = await (await store.get(entry.key)).read()
            assert len(after_read) == entry.size
        more = page.more
        after = page.entries[-1].key if page.entries else after
    await store.aclose()
    return found


@pytest_asyncio.fixture
async def filled(tmp_path: Path) -> AsyncGenerator[tuple[Path, LocalStore]]:
    """A store with small and large objects, which stays open, as a relay's does."""
    store = LocalStore(tmp_path / "store")
    for number in range(6):
        await store.put_new(f"v/a/{number}", os.urandom(LARGE if number % 2 else 100))
    yield tmp_path / "store", store
    await store.aclose()


async def test_a_copy_beside_devices_that_write_has_all_that_was_acknowledged_and_serves_them(
    tmp_path: Path,
) -> None:
    relay = RelayProcess(tmp_path / "store")
    await asyncio.to_thread(relay.start)
    member = await enrolled(relay.url, enroll_token=relay.enroll_token)
    store = member.store(relay.url)
    acknowledged: dict[str, bytes] = {}

    async def write(stream: int) -> None:
        for number in range(100_000):
            key = f"{member.prefix}blob/{stream}-{number}"
            body = os.urandom(LARGE if stream else 200)
            await store.put_new(key, body)
            acknowledged[key] = body
            if number % 5 == 4:  # what is gone for good when the copy looks for it
                with suppress(NotFound):
                    await store.delete(f"{member.prefix}blob/{stream}-{number - 2}")
                acknowledged.pop(f"{member.prefix}blob/{stream}-{number - 2}", None)

    writers = [asyncio.create_task(write(stream)) for stream in range(3)]
    await eventually(lambda: len(acknowledged) > 30, 120)
    before = dict(acknowledged)
    made = await run_crystal_relay(
        "backup", str(tmp_path / "copy"), "--store", relay.directory.as_uri(), "--json"
    )
    assert made.code == 0, made.err
    for writer in writers:
        writer.cancel()
    await asyncio.gather(*writers, return_exceptions=True)
    deleted = before.keys() - acknowledged.keys()
    await store.aclose()
    assert await asyncio.to_thread(relay.stop) == 0
    found = await contents(tmp_path / "copy")
    assert made.document["objects"] == len(found)
    assert {key: found.get(key) for key in before if key not in deleted} == {
        key: body for key, body in before.items() if key not in deleted
    }
    # Restored, it serves the same device, which puts back what came later.
    words = ("restore", str(tmp_path / "copy"), "--store", relay.directory.as_uri())
    refused = await run_crystal_relay(*words)
    assert (refused.code, "something already" in refused.err) == (2, True)
    relay.directory.rename(tmp_path / "aside")
    restored = await run_crystal_relay(*words)
    assert (restored.code, f"Restored {len(found)} objects" in restored.out) == (0, True), restored.err
    assert "they send again" in restored.err
    await asyncio.to_thread(relay.start)
    store = member.store(relay.url)
    for key, body in acknowledged.items():
        if key not in found:
            await store.put_new(key, body)
    for key, body in acknowledged.items():
        assert await (await store.get(key)).read() == body
    await store.aclose()
    assert await asyncio.to_thread(relay.stop) == 0


async def test_a_copy_that_broke_off_goes_on_with_what_it_has(
    filled: tuple[Path, LocalStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, store = filled
    target, copied = tmp_path / "copy", list[Path]()
    real = backups._copy_file  # pyright: ignore[reportPrivateUsage]  happens within

    def breaks_off(source: Path, place: Path, size: int | None) -> bool:
        if len(copied) == 2:
            raise KeyboardInterrupt
        copied.append(source)
        return real(source, place, size)

    monkeypatch.setattr(backups, "_copy_file", breaks_off)
    with pytest.raises(KeyboardInterrupt):
        back_up(directory, target)
    assert not target.exists()
    monkeypatch.undo()
    await store.delete("v/a/1")
    await store.put_new("v/a/later", b"x" * LARGE)
    report = back_up(directory, target)
    assert not target.with_name("copy" + PARTIAL).exists()
    assert (report.objects, report.files) == (6, 3)
    assert 1 <= report.files_kept <= 2
    await store.aclose()
    assert await contents(target) == await contents(directory)
    assert len(list((target / "files").rglob("*.*"))) == 3


async def test_a_restored_directory_has_no_enrolment_tokens_unless_they_are_kept(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    keys = [f"r/enrollment/{'a' * 64}", f"r/enrolled/{'a' * 64}/000000", f"r/vault/{'b' * 32}/record"]
    for key in keys:
        await store.put_new(key, b"{}")
    await store.aclose()
    back_up(tmp_path / "store", tmp_path / "copy")
    for name, options in (("without", ()), ("with", ("--keep-tokens",))):
        (tmp_path / name).mkdir()
        words = ("restore", str(tmp_path / "copy"), "--store", (tmp_path / name).as_uri(), *options)
        said = await run_crystal_relay(*words)
        assert (said.code, "left out" in said.err) == (0, not options), said.err
        assert sorted(await contents(tmp_path / name)) == (sorted(keys) if options else keys[2:])
        assert b"enrol" not in (tmp_path / name / "objects.db").read_bytes() or options


async def test_an_object_that_goes_while_its_file_is_looked_for_is_left_out(
    filled: tuple[Path, LocalStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, _ = filled
    real = backups._copy_rows  # pyright: ignore[reportPrivateUsage]  happens within

    def then_deleted(source: Path, place: Path) -> None:
        real(source, place)
        connection = apsw.Connection(str(source))
        [(key, name)] = connection.execute("SELECT key, file FROM object WHERE file IS NOT NULL LIMIT 1")
        connection.execute("DELETE FROM object WHERE key = ?", (key,))
        connection.close()
        ObjectFiles(directory / "files").remove(name)

    monkeypatch.setattr(backups, "_copy_rows", then_deleted)
    report = back_up(directory, tmp_path / "copy")
    assert (report.objects, report.deleted_meanwhile, report.lost) == (5, 1, 0)
    assert len(await contents(tmp_path / "copy")) == 5


async def test_an_object_that_the_store_had_lost_is_not_called_deleted(
    filled: tuple[Path, LocalStore], tmp_path: Path
) -> None:
    """As in a copy of which not all files came back from where they were kept."""
    directory, store = filled
    await store.aclose()
    next((directory / "files").rglob("*.obj")).unlink()
    report = back_up(directory, tmp_path / "copy")
    assert (report.objects, report.deleted_meanwhile, report.lost) == (5, 0, 1)
    said = await run_crystal_relay("restore", str(directory), "--store", (tmp_path / "new").as_uri())
    assert said.code == 0
    assert "1 of its objects are left out: their files are missing" in said.err
    assert len(await contents(tmp_path / "new")) == 5


async def test_what_cannot_be_copied_is_said_and_leaves_no_copy(
    filled: tuple[Path, LocalStore], tmp_path: Path
) -> None:
    directory, _ = filled
    with pytest.raises(Unusable, match="no store"):
        back_up(tmp_path / "none", tmp_path / "copy")
    with pytest.raises(BadRequest, match="something already"):
        back_up(directory, tmp_path)
    (tmp_path / f"copy{PARTIAL}").mkdir()
    held = lock(tmp_path / f"copy{PARTIAL}" / "lock")
    with pytest.raises(InUse):
        back_up(directory, tmp_path / "copy")
    held.close()
    for file in (directory / "files").rglob("*.obj"):
        file.write_bytes(b"cut short")
    with pytest.raises(StoreDamaged, match="another size"):
        back_up(directory, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
