"""What happens seldom in the flows of replication: large batches, several copies of a device, a relay that loses or hides."""

import random
from collections.abc import Generator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from crystal_core.replica import Replica
from crystal_core.state.vectors import float16_vectors
from crystal_crypto.limits import BLOB_BYTES_MAX
from crystal_mirror import round as rounds
from crystal_mirror.entries.control_state import newest_snapshot, published_floor, read_base
from crystal_mirror.errors import Unready
from crystal_mirror.file_paths import PATH_BYTES_MAX, conflict_path, conflict_paths
from crystal_mirror.handover.core import look_for_calls
from crystal_mirror.membership.cursors import read_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.operations import Remember
from crystal_mirror.replication import collect as collecting
from crystal_mirror.replication.claim import claim, lost_by_claim
from crystal_mirror.replication.collect import TEXTS_BATCH_MAX, collect
from crystal_mirror.replication.publish import publish
from crystal_mirror.replication.rebuild import begin_rebuild, mark_rebuild, rebuild_pending
from crystal_mirror.requests import Embed, Request
from crystal_mirror.retention import gc
from crystal_mirror.retention.forgets import DAY_MS, pending_forgets
from crystal_mirror.retention.gc import RetentionState, listed_blobs, read_state, retain
from crystal_mirror.retention.status import retention_summary
from crystal_mirror.round import FULL_CHECK_ROUNDS, sync_round
from crystal_mirror.snapshots.blobs import BlobDamaged, get_blob, put_blob
from crystal_mirror.snapshots.creation import make_snapshot
from crystal_mirror.streams.outbox import push, restart_stream
from crystal_mirror.types import Origin
from crystal_node.device.journal import SqliteJournal
from tests.mirror.household import MODEL, Household, has, same
from tests.mirror.support import driven, reembed, seeded
from tests.mirror.test_snapshots import NOW, remember, snapshot


@pytest.fixture
def home() -> Household:
    home = Household()
    home.laptop = home.add("laptop")
    remember(home.core, "the first fact")
    home.sync(home.core, home.laptop)
    return home


def embedded_as(home: Household, windows: int, flow: Generator[Request, Any, Any]) -> Any:
    """Runs a flow with an embedder that makes so many windows of every text."""

    def answer(request: Request) -> Any:
        if isinstance(request, Embed):
            return [
                [(number % 50 + 1).to_bytes(1, "big") + b"\x30" * 767 for number in range(windows)]
                for _ in request.texts
            ]
        return home.store.answer(request)

    return driven(flow, answer)


def vectors_of(member: Member, text: str) -> list[bytes]:
    assert isinstance(member.replica, Replica)
    database = member.replica.database
    return float16_vectors(database, database.value("SELECT rowid FROM chunks WHERE text = ?", (text,)))


def lines_in(home: Household, member: Member, *texts: str) -> None:
    for text in texts:
        remember(member, text)
    home.store.run(push(member))


def settled(home: Household, *members: Member) -> bool:
    """Whether everybody has everything after some rounds."""
    for _ in range(3):
        home.sync(*members)
    return same(*members) and not any(member.journal.names() for member in members)


# What the Core takes in at once.


def test_a_backlog_is_found_by_its_words_first_and_embedded_afterwards(home: Household) -> None:
    texts = [f"fact number {number}" for number in range(TEXTS_BATCH_MAX + 40)]
    lines_in(home, home.core, *texts[:64])
    lines_in(home, home.laptop, *texts[64 : 64 + 60])
    tablet = home.add("tablet")
    lines_in(home, tablet, *texts[64 + 60 :])
    taken = home.store.run(collect(home.core, MODEL))
    assert (taken.operations, taken.more) == (len(texts), False)
    home.store.run(publish(home.core))
    lines_in(home, home.laptop, "a fresh message")
    assert settled(home, home.core, home.laptop, tablet)
    assert all(has(tablet, text) for text in texts)
    assert not any(vectors_of(tablet, text) for text in texts)
    assert vectors_of(tablet, "a fresh message")
    assert home.store.run(reembed(home.core, MODEL)) == len(texts)
    assert settled(home, home.core, home.laptop, tablet)
    assert all(vectors_of(tablet, text) for text in texts)


def test_a_batch_whose_vectors_are_too_large_is_made_smaller(home: Household) -> None:
    texts = [f"fact number {number}" for number in range(8)]
    lines_in(home, home.laptop, *texts)
    taken = embedded_as(home, 100, collect(home.core, MODEL))
    assert (taken.operations, taken.more) == (4, True), (
        "100 windows of 768 bytes each: seven texts are over 512 KiB"
    )
    assert [len(vectors_of(home.core, text)) for text in texts[:4]] == [100] * 4, "none was left out"
    home.store.run(publish(home.core))
    for _ in range(4):
        embedded_as(home, 100, sync_round(home.core, MODEL))
    home.sync(home.laptop)
    assert same(home.core, home.laptop)
    assert all(has(home.laptop, text) for text in texts)


def test_of_one_text_with_too_many_windows_every_second_one_is_kept(home: Household) -> None:
    lines_in(home, home.laptop, "a very long text", "a text behind it")
    taken = embedded_as(home, 1000, collect(home.core, MODEL))
    assert taken.operations == 1
    kept = vectors_of(home.core, "a very long text")
    assert len(kept) in (500, 250)
    assert [vector[0] for vector in kept[:3]] == [1, 1 + 1000 // len(kept), 1 + 2 * (1000 // len(kept))]


def test_what_is_read_at_once_is_limited_and_the_rest_comes_later(
    home: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "OPERATION_BYTES_BATCH_MAX", 20_000)
    rng = random.Random(1)
    texts = [f"{number} {rng.randbytes(2000).hex()}" for number in range(40)]
    lines_in(home, home.laptop, *texts)
    first = home.store.run(collect(home.core, MODEL))
    assert first.more and 0 < first.operations < 16
    home.store.run(publish(home.core))
    assert settled(home, home.core, home.laptop)
    assert all(has(home.core, text) for text in texts)


def test_a_batch_has_no_more_offers_than_its_limit(home: Household, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "OFFERS_MAX", 5)
    tablet = home.add("tablet")
    lines_in(home, home.laptop, *(f"laptop {number}" for number in range(4)))
    lines_in(home, tablet, *(f"tablet {number}" for number in range(4)))
    taken = home.store.run(collect(home.core, MODEL))
    assert (taken.operations, taken.more) == (5, True)
    home.store.run(publish(home.core))
    assert settled(home, home.core, home.laptop, tablet)
    assert all(has(home.core, f"{who} {number}") for who in ("laptop", "tablet") for number in range(4))


@pytest.mark.parametrize(("batches", "enough"), [(1, False), (9, True)])
def test_a_core_with_more_to_do_than_a_round_takes_announces_what_is_ready(
    home: Household, monkeypatch: pytest.MonkeyPatch, batches: int, enough: bool
) -> None:
    monkeypatch.setattr(rounds, "BATCHES_PER_ROUND_MAX", batches)
    monkeypatch.setattr(collecting, "OFFERS_MAX", 1)
    made = home.store.run(make_snapshot(home.core))
    lines_in(home, home.laptop, "one", "two", "three")
    report = home.store.run(sync_round(home.core, MODEL, enough=lambda: enough))
    assert report.more and not report.caught_up
    assert newest_snapshot(home.core.replica) == made


def test_an_entry_at_another_place_than_it_was_made_for_is_held(home: Household) -> None:
    remember(home.laptop, "the first")
    remember(home.laptop, "the second")
    first, second = (
        home.laptop.keys.conversation(home.laptop.device_id, name.incarnation, name.sequence)
        for name in home.laptop.journal.names()
    )
    home.store.run(push(home.laptop))
    right, home.store[second] = home.store[second], home.store[first]
    home.sync(home.core)
    assert Notice.STREAM_TAMPERED in home.core.notices.current()
    assert has(home.core, "the first") and not has(home.core, "the second")
    home.store[second] = right
    assert settled(home, home.core, home.laptop)
    assert has(home.core, "the second")


def test_an_entry_that_names_a_device_log_that_is_hidden_here_waits_for_it(home: Household) -> None:
    before = set(home.store)
    home.by_kit("tablet")
    (joined,) = (key for key in home.store.keys() - before if "/devlog/" in key)
    home.read(home.laptop)
    lines_in(home, home.laptop, "sealed when the tablet was in")
    hidden = home.store.pop(joined)
    home.store.run(collect(home.core, MODEL))
    home.core.notices.save()
    assert Notice.PEER_AHEAD in home.core.notices.current()
    home.store[joined] = hidden
    assert settled(home, home.core, home.laptop)
    assert has(home.core, "sealed when the tablet was in")


# Several copies of one device.


def image_of(member: Member) -> bytes:
    assert isinstance(member.journal, SqliteJournal)
    return member.journal.connection.serialize("main")


def put_back(member: Member, image: bytes, path: Path) -> Member:
    """The device after its `state.db` was restored from a backup."""
    path.write_bytes(image)
    journal = SqliteJournal.open(path)
    return Member.open(
        member.identity, member.vault, journal, member.replica, seeded("put back"), member.root
    )


def moved_to_another_stream(home: Household, *texts: str) -> None:
    """The laptop records these, begins another stream for them, and stores them: the places of their names stay empty."""
    for text in texts:
        remember(home.laptop, text)
    with home.laptop.journal.transaction() as transaction:
        restart_stream(home.laptop, transaction)
    home.store.run(push(home.laptop))


def test_names_that_were_given_to_others_before_a_restore_are_given_up(
    home: Household, tmp_path: Path
) -> None:
    remember(home.laptop, "before the backup")
    home.sync(home.laptop, home.core, home.laptop)
    image = image_of(home.laptop)
    moved_to_another_stream(home, "lost with the disk", "lost as well")
    laptop = put_back(home.laptop, image, tmp_path / "state.db")
    remember(laptop, "recorded after the restore")
    home.sync(laptop)
    remember(laptop, "recorded later")
    assert settled(home, home.core, laptop)
    for text in ("lost with the disk", "lost as well", "recorded after the restore", "recorded later"):
        assert has(home.core, text) and has(laptop, text), text


def test_a_name_that_is_not_used_up_stays_though_another_copy_has_written_on(
    home: Household, tmp_path: Path
) -> None:
    remember(home.laptop, "waits in the backup too")
    image = image_of(home.laptop)
    moved_to_another_stream(home, "lost with the disk")
    laptop = put_back(home.laptop, image, tmp_path / "state.db")
    first = laptop.journal.names()[0]
    home.sync(laptop)
    assert first.origin in [each.origin for each in laptop.journal.names()]
    assert settled(home, home.core, laptop)
    for text in ("waits in the backup too", "lost with the disk"):
        assert has(home.core, text) and has(laptop, text), text


def test_what_another_copy_of_the_device_stored_in_its_own_places_is_kept(
    home: Household, tmp_path: Path
) -> None:
    remember(home.laptop, "before the backup")
    home.sync(home.laptop, home.core, home.laptop)
    image = image_of(home.laptop)
    lines_in(home, home.laptop, "by the lost disk", "also by the lost disk")
    laptop = put_back(home.laptop, image, tmp_path / "state.db")
    remember(laptop, "by the restored one")
    home.sync(laptop)
    assert settled(home, home.core, laptop)
    for text in ("by the lost disk", "also by the lost disk", "by the restored one"):
        assert has(home.core, text) and has(laptop, text), text


# Who leads.


def test_what_a_claim_would_lose_is_what_others_have_applied_and_the_relay_does_not_show(
    home: Household,
) -> None:
    tablet = home.add("tablet")
    home.sync(tablet)
    remember(home.core, "not seen by the laptop")
    home.sync(home.core, tablet)
    home.read(home.laptop)
    home.store.run(read_cursors(home.laptop))
    assert home.store.run(lost_by_claim(home.laptop)) == []
    position = home.core.replica.position()
    del home.store[home.core.keys.mirror(position.epoch, position.sequence - 1)]
    lost = home.store.run(lost_by_claim(home.laptop))
    devices = {cursor.device for cursor in lost}
    assert devices == {home.core.device_id, tablet.device_id}
    assert home.store.run(lost_by_claim(tablet)) == []


def test_who_claims_puts_back_what_the_relay_lost_before_it_seals() -> None:
    home = Household()
    laptop = home.by_kit("laptop")
    remember(home.core, "one")
    home.sync(home.core, laptop)
    remember(home.core, "two")
    home.sync(home.core, laptop)
    position = laptop.replica.position()
    key = laptop.keys.mirror(position.epoch, position.sequence - 1)
    lost = home.store.pop(key)
    last_of_log = max(each for each in home.store if "/devlog/" in each)
    lost_log = home.store.pop(last_of_log)
    report = home.store.run(claim(laptop, home.root, force=True))
    assert report.epoch == 2
    assert (home.store[key], home.store[last_of_log]) == (lost, lost_log)
    assert settled(home, laptop, home.core)
    assert has(home.core, "two")


def test_a_device_without_a_grant_claims_only_with_the_root(home: Household) -> None:
    with pytest.raises(Unready, match="no grant"):
        home.store.run(claim(home.laptop, None))
    assert home.core.is_core


# What is rebuilt.


def test_a_marked_rebuild_is_made_by_the_next_round(home: Household) -> None:
    for member in (home.core, home.laptop):
        mark_rebuild(member, None)
        assert rebuild_pending(member)
        report = home.store.run(sync_round(member, MODEL))
        assert report.rebuilt and not rebuild_pending(member)
        assert Notice.REBUILT in member.notices.current()
    assert same(home.core, home.laptop)


def test_rows_are_not_given_up_while_the_relay_lacks_their_snapshot(home: Household) -> None:
    snapshot(home)
    late = home.add("late")
    home.sync(late)
    assert read_base(late.replica) is not None
    for key in [key for key in home.store if "/blob/" in key]:
        del home.store[key]
    before = late.replica.digest()
    with pytest.raises(BlobDamaged, match="does not have the snapshot"):
        home.store.run(begin_rebuild(late, None))
    assert late.replica.digest() == before
    assert has(late, "the first fact")


def test_a_state_that_differs_again_after_a_rebuild_is_held_and_not_rebuilt_for_ever(home: Household) -> None:
    assert isinstance(home.core.replica, Replica)
    home.core.replica.database.run("UPDATE memories SET confidence = 7")
    home.core.accept(Remember("the first fact", "fact", "agent", 2, 50))
    home.sync(home.core)
    stands = home.laptop.replica.position()
    first = home.store.run(sync_round(home.laptop, MODEL))
    assert first.rebuilt
    again = home.store.run(sync_round(home.laptop, MODEL))
    assert not again.rebuilt and not again.caught_up
    assert Notice.QUARANTINED in home.laptop.notices.current()
    assert home.laptop.replica.position() == stands
    assert has(home.laptop, "the first fact")


def test_a_slot_that_the_relay_changed_is_found_by_who_stands_before_it_and_nothing_is_lost(
    home: Household,
) -> None:
    for number in range(3):
        remember(home.core, f"fact number {number}")
        home.sync(home.core, home.laptop)
    home.store[home.core.keys.mirror(1, 1)] = b"junk" * 50
    late = home.add("late")
    home.sync(late)
    assert has(late, "the first fact") and not has(late, "fact number 2")
    home.core.rounds = FULL_CHECK_ROUNDS
    report = home.store.run(sync_round(home.core, MODEL))
    assert report.restored == 1 and not report.claimed, "it is put back in its place"
    home.laptop.rounds = FULL_CHECK_ROUNDS
    assert settled(home, home.core, home.laptop, late)
    assert all(has(late, f"fact number {number}") for number in range(3))


def test_a_blob_that_is_larger_than_any_is_not_opened(home: Household) -> None:
    ref = home.store.run(put_blob(home.core, b"a part"))
    assert home.store.run(get_blob(home.core, ref)) == b"a part"
    (key,) = (key for key in home.store if "/blob/" in key)
    home.store[key] = bytes(BLOB_BYTES_MAX + 1)
    with pytest.raises(BlobDamaged, match="too large"):
        home.store.run(get_blob(home.core, ref))


def test_a_node_that_looks_whether_it_is_called_reads_the_cores_cursor_alone(home: Household) -> None:
    home.sync(home.core, home.add("tablet"))
    home.read(home.laptop)
    asked: list[Request] = []

    def answer(request: Request) -> Any:
        asked.append(request)
        return home.store.answer(request)

    assert driven(look_for_calls(home.laptop), answer) is False
    core, others = home.core.device_id.hex(), [info.device.hex() for info in home.laptop.log.active()]
    assert asked and all(core in repr(request) for request in asked)
    others.remove(core)
    assert not any(device in repr(request) for device in others for request in asked)


# What is deleted, and what is told of it.


def test_a_clock_that_was_set_back_keeps_no_conversations_for_ever(home: Household) -> None:
    lines_in(home, home.laptop, "from the laptop")
    home.sync(home.core)
    prefix = f"{home.core.keys.conversations_prefix}{home.laptop.device_id.hex()}"
    home.store.run(retain(home.core, NOW + 400 * DAY_MS))
    for days in (0, 1.1):
        home.store.run(publish(home.core))
        home.store.run(retain(home.core, NOW + int(days * DAY_MS)))
    assert not any(key.startswith(prefix) for key in home.store)


def test_blobs_are_listed_page_by_page_and_what_is_no_blob_is_left_out(
    home: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [bytes([number]) * 32 for number in range(7)]
    for name in names:
        home.store[home.core.keys.blob(name)] = b"sealed"
    for other in ("not hexadecimal", (b"\xab" * 32).hex().upper()):
        home.store[home.core.keys.blob_prefix + other] = b"sealed"
    monkeypatch.setattr(gc, "LIST_PAGE", 2)
    assert sorted(home.store.run(listed_blobs(home.core))) == names


def test_what_another_version_noted_of_its_garbage_collection_is_begun_again(home: Household) -> None:
    with home.core.journal.transaction() as transaction:
        transaction.meta_set(gc.META, b"of another version")
    assert read_state(home.core) == RetentionState()
    assert home.store.run(retain(home.core, NOW))


def test_a_summary_tells_what_is_kept_and_whom_it_waits_for(home: Household) -> None:
    for number in range(20):
        remember(home.core, f"fact number {number}")
        home.sync(home.core)
    snapshot(home)
    home.store.run(read_cursors(home.core))
    home.store.run(retain(home.core, NOW))
    newest = newest_snapshot(home.core.replica)
    assert newest is not None
    told = retention_summary(home.core, NOW)
    assert (told.base, told.snapshot, told.since) == (newest.position[:2], newest.position[:2], NOW)
    assert told.size == read_state(home.core).size > 0
    assert told.floor == published_floor(home.core.replica)
    assert [reader.device for reader in told.waits_for] == [home.laptop.device_id]
    assert told.forgets == pending_forgets(home.core) != ()
    late = home.add("late")
    home.sync(late)
    seen = retention_summary(late, NOW)
    assert (seen.base, seen.snapshot) == (newest.position[:2], newest.position[:2])
    assert (seen.since, seen.size, seen.waits_for) == (0, 0, ())


def test_embedding_anew_takes_fewer_texts_where_their_vectors_fit_no_entry(home: Household) -> None:
    for number in range(40):
        remember(home.core, f"fact number {number}")
    home.sync(home.core, home.laptop)
    assert embedded_as(home, 60, reembed(home.core, "other/2")) == 41
    home.sync(home.laptop)
    assert same(home.core, home.laptop)
    assert home.laptop.replica.without_vectors(1) == []


# Where the second of two versions of a file is kept.


def test_places_for_the_second_version_of_a_file() -> None:
    version = Origin(b"\xab" * 16, b"\1" * 16, 7)
    mark = "(conflict abababab-7)"
    first = list(islice(conflict_paths("a/b/c.md", version), 4))
    assert first == [f"a/b/c {mark}.md", f"a/b {mark}/c.md", f"a {mark}/b/c.md", f"c {mark}.md"]
    both = list(islice(conflict_paths("a/b/c.md", version), 8))
    assert len(set(both)) == 8, "the next ones have another mark"
    assert [path.replace(both[4][7:-3], "MARK") for path in both[4:]] == [
        "a/b/c (MARK.md",
        "a/b (MARK/c.md",
        "a (MARK/b/c.md",
        "c (MARK.md",
    ]


def test_a_path_that_would_get_too_long_goes_nearer_to_the_root() -> None:
    version = Origin(b"\xab" * 16, b"\1" * 16, 7)
    folder = "/".join(["x" * 100] * 9)
    path = f"{folder}/{'y' * (PATH_BYTES_MAX - len(folder) - 1)}"
    assert len(path) == PATH_BYTES_MAX
    kept = conflict_path(path, version.device, version.sequence)
    assert len(kept) <= PATH_BYTES_MAX and kept.count("/") == 8
    assert all(len(each.encode()) <= PATH_BYTES_MAX for each in islice(conflict_paths(path, version), 20))
