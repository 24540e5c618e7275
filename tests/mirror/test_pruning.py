"""Pruning at once loses nothing for anybody, and after everything was sealed anew an older key opens nothing of it."""

import pytest

from crystal_crypto.entry import parse
from crystal_crypto.errors import CryptoError
from crystal_crypto.hierarchy import GenerationKey
from crystal_mirror.entries.control_state import newest_snapshot, published_floor
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import FilePart, PutFile, Remember
from crystal_mirror.retention.pruning import (
    Rewritten,
    all_blobs,
    condemn_others,
    prune_now,
    seal_files_anew,
    snapshot_wanted,
)
from crystal_mirror.retention.status import retention_status
from crystal_mirror.snapshots.blobs import BlobRef, get_blob, name_of, put_blob
from crystal_mirror.snapshots.creation import make_snapshot
from tests.mirror.household import Household, same
from tests.support.blobs import whatever_it_holds

NOW = 1_800_000_000_000


def put_file(home: Household, member: Member, path: str, *contents: bytes) -> None:
    parts: list[FilePart] = []
    for content in contents:
        ref = home.store.run(put_blob(member, content))
        parts.append(FilePart(ref.content, ref.length, ref.named))
    row = member.replica.file(path)
    member.accept(PutFile(path, row.version if row else None, False, 1, tuple(parts)))


@pytest.fixture
def home() -> Household:
    home = Household()
    home.laptop, home.lost = home.add("laptop"), home.add("lost")
    for number in range(30):
        home.core.accept(Remember(f"fact number {number}", "fact", "agent", 1))
    home.sync(home.core, home.laptop, home.lost)
    put_file(home, home.laptop, "notes.md", b"first part" * 100, b"second part" * 100)
    put_file(home, home.core, "copy.md", b"first part" * 100)
    home.laptop.accept(Remember("made on the laptop", "fact", "agent", 2))
    home.sync(home.laptop, home.core, home.laptop, home.lost)
    assert home.store.run(make_snapshot(home.core)) is not None
    home.sync(home.core, home.laptop)
    return home


def rewrite(home: Household) -> Rewritten:
    there = home.store.run(all_blobs(home.core))
    report = home.store.run(seal_files_anew(home.core))
    home.sync(home.core)
    assert home.store.run(make_snapshot(home.core, anew=True)) is not None
    home.sync(home.core)
    home.store.run(condemn_others(home.core, there))
    home.store.run(prune_now(home.core, NOW))
    home.sync(home.core)
    return report


def opens_with(home: Household, key: GenerationKey, name: str, data: bytes) -> bool:
    try:
        if "/blob/" not in name:
            return bool(parse(data).open(key))
        blob = bytes.fromhex(name.rpartition("/")[2])
        return bool(whatever_it_holds(data, name=blob, vault=home.core.vault, key=key))
    except CryptoError:
        return False


def opened_by(home: Household, key: GenerationKey) -> list[str]:
    kinds = ("/mirror/", "/conversations/", "/blob/")
    return [
        name
        for name, data in home.store.items()
        if any(kind in name for kind in kinds) and opens_with(home, key, name, data)
    ]


def test_after_sealing_anew_the_old_key_opens_nothing_and_nobody_lacks_anything(home: Household) -> None:
    old = home.core.generation_key
    home.revoke(home.lost)
    home.sync(home.core, home.laptop)
    assert {name.split("/")[2] for name in opened_by(home, old)} == {"mirror", "conversations", "blob"}
    before = len(home.store)
    report = rewrite(home)
    assert (report.files, report.parts, report.lacking) == (2, 2, {})
    assert opened_by(home, old) == []
    assert len(home.store) < before
    late = home.add("late")
    home.sync(home.laptop, late, home.core)
    assert same(home.core, home.laptop, late)
    for row in late.replica.files():
        assert all(isinstance(part.named, bytes) for part in row.parts)
        for part in row.parts:
            assert home.store.run(get_blob(late, BlobRef.of(part)))


def test_sealing_anew_twice_or_without_an_older_key_moves_nothing(home: Household) -> None:
    assert rewrite(home) == Rewritten()
    blobs = {name for name in home.store if "/blob/" in name}
    assert rewrite(home) == Rewritten()
    assert len({name for name in home.store if "/blob/" in name} & blobs) >= len(blobs) - 1, (
        "but the manifest"
    )
    assert {row.version for row in home.core.replica.files()} == {
        row.version for row in home.laptop.replica.files()
    }


def test_a_file_that_was_put_before_it_was_sealed_anew_and_arrives_after_it_loses_nothing(
    home: Household,
) -> None:
    put_file(home, home.laptop, "late.md", b"under way" * 50)
    home.revoke(home.lost)
    rewrite(home)
    home.sync(home.laptop, home.core, home.laptop)
    row = home.core.replica.file("late.md")
    if row is not None:
        for part in row.parts:
            assert home.store.run(get_blob(home.core, BlobRef.of(part)))
    assert same(home.core, home.laptop)


def test_a_part_that_the_relay_lost_leaves_its_file_as_it_is_and_is_named(home: Household) -> None:
    home.revoke(home.lost)
    row = home.core.replica.file("notes.md")
    assert row is not None
    name = name_of(home.core, BlobRef.of(row.parts[1]))
    del home.store[home.core.keys.blob(name)]
    report = rewrite(home)
    assert list(report.lacking) == ["notes.md"]
    assert home.core.replica.file("notes.md") == row
    copied = home.core.replica.file("copy.md")
    assert copied is not None
    assert [type(part.named) for part in copied.parts] == [bytes]


def test_pruning_now_shows_before_what_it_does(home: Household) -> None:
    home.core.accept(Remember("one more", "fact", "agent", 3))
    home.sync(home.core)
    assert snapshot_wanted(home.core)
    assert home.store.run(make_snapshot(home.core)) is not None
    home.sync(home.core)
    assert not snapshot_wanted(home.core)
    foreseen = retention_status(home.core, NOW, force=True)
    assert foreseen.floor == (0, 0)
    floor = home.store.run(prune_now(home.core, NOW))
    newest = newest_snapshot(home.core.replica)
    assert newest is not None
    assert floor == published_floor(home.core.replica) == (newest.epoch, newest.sequence)
    after = retention_status(home.core, NOW)
    assert [kept.place for kept in after.snapshots] == [floor]
    assert after.expired == after.acked > 0
    assert [reader.place < floor for reader in after.readers] == [reader.passed for reader in after.readers]
    home.sync(home.laptop, home.lost, home.core)
    assert same(home.core, home.laptop, home.lost)
