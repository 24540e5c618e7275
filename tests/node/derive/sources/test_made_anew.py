"""Where sources are is known as long as it may be needed: while the memory is rebuilt, and when its database is damaged."""

from random import Random

import pytest

from crystal_mirror.entries.control_state import META_RESTORE
from crystal_mirror.operations import DropSource, PutSource
from crystal_node.base.errors import HomeBusy, NoSuchEntry
from crystal_node.derive.sources import service
from crystal_node.derive.sources.database import SourceDatabase
from tests.node.derive.sources.conftest import Folder


def known(folder: Folder) -> bool:
    with SourceDatabase.open(folder.device.settings.home.sources_database) as database:
        return database.source(folder.name) is not None


async def test_nothing_is_read_or_let_go_of_while_the_memory_is_made_anew(folder: Folder) -> None:
    folder.write("a.md", "Something.")
    replica = folder.device.replica
    try:
        with replica.transaction() as transaction:
            transaction.meta_set(META_RESTORE, b"some part of it")
        with pytest.raises(HomeBusy, match="being rebuilt"):
            await folder.sync()
    finally:
        with replica.transaction() as transaction:
            transaction.meta_set(META_RESTORE, None)
    assert (await folder.sync()).new == 1


async def test_a_source_that_the_rows_do_not_have_yet_is_still_known_when_they_do(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("a.md", "Something.")
    await folder.sync()
    folder.device.accept(
        [DropSource(folder.name)]
    )  # as the rows are behind a snapshot from before the source
    with pytest.raises(NoSuchEntry):
        await folder.sync()
    folder.device.accept([PutSource(folder.name, "notes", (), (), 1)])
    assert (await folder.sync()).new == 1
    folder.device.accept([DropSource(folder.name)])
    with pytest.raises(NoSuchEntry):
        await folder.sync()
    assert known(folder)
    monkeypatch.setattr(service, "KEPT_MILLISECONDS", -1)
    with pytest.raises(NoSuchEntry):
        await folder.sync()
    assert not known(folder)


async def test_a_book_that_is_damaged_in_its_middle_is_begun_anew_and_knows_its_sources(
    folder: Folder,
) -> None:
    for number in range(300):
        folder.write(f"{number:04} {'long ' * 20}.md", f"Number {number}.")
    await folder.sync()
    before = folder.device.journal.outbox_count()
    path = folder.device.settings.home.sources_database
    data = bytearray(path.read_bytes())
    for page in range(3, len(data) // 4096):  # behind the first leaves: those hold the sources
        data[page * 4096 : page * 4096 + 512] = Random(page).randbytes(512)
    path.write_bytes(data)
    synced = await folder.sync()
    assert (synced.files, synced.new, synced.changed, synced.removed) == (300, 0, 0, 0)
    assert folder.device.journal.outbox_count() == before
    assert path.with_name(path.name + ".damaged").exists()
