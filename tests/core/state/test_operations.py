"""What operations do to the replicated state, one by one."""

import pytest

from crystal_core.errors import ForeignSecret, UnusableVectors
from crystal_core.replica import Replica
from crystal_core.state import mirror_log
from crystal_core.state.vectors import float16_vectors
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror import ports
from crystal_mirror.entries.control_state import META_MODEL
from crystal_mirror.operations import Capture, Operation, Piece
from crystal_mirror.types import START, EntryState, KeptEntry, Position
from tests.core.builders import (
    OTHER_DEVICE,
    SECRET,
    apply,
    capture,
    content_hash,
    forget,
    keyword_rowids,
    new_replica,
    no_vectors,
    one_window,
    origin,
    remember,
    target,
    texts,
    vector,
    windows,
)


def test_the_replica_is_the_protocols_port() -> None:
    replica: ports.Replica = new_replica()
    with replica.transaction() as transaction:
        part: ports.ReplicaTransaction = transaction
        assert part.position() == START
    assert mirror_log.MODEL == META_MODEL


def test_a_text_is_one_chunk_and_every_place_it_came_from_is_kept() -> None:
    replica = new_replica()
    apply(replica, capture("the same words", session="one"), capture("the same words", session="two"))
    apply(replica, capture("the same words", session="one", agent="another"))
    apply(replica, capture("the same words", session="one"), device=OTHER_DEVICE)
    assert texts(replica.database) == {"the same words"}
    places = replica.database.rows("SELECT agent, session FROM occurrences ORDER BY agent, session")
    assert places == [("agent", "one"), ("agent", "two"), ("another", "one")]
    assert replica.database.value("SELECT id FROM chunks") == content_hash("the same words")


def test_the_first_of_two_accounts_of_one_place_stays() -> None:
    replica = new_replica()
    apply(replica, capture("words", project="first"), capture("words", project="second"))
    assert replica.database.rows("SELECT project FROM occurrences") == [("first",)]


def test_vectors_are_asked_for_once_per_new_chunk_in_order() -> None:
    replica = new_replica()
    apply(replica, capture("known"))
    asked: list[str] = []

    def vectors(text: str) -> list[bytes]:
        asked.append(text)
        return one_window(text)

    operations: list[Operation] = [
        capture("b", "known", "a", "b"),
        remember("c"),
        forget("a", "never seen"),
        capture("a", "never seen", "d"),
        remember("a"),
        remember("c", "skill"),
    ]
    foreseen = replica.unembedded(operations)
    with replica.transaction() as transaction:
        assert transaction.unembedded(operations) == foreseen
        for sequence, operation in enumerate(operations, start=1):
            transaction.apply(origin(sequence), operation, vectors)
        assert transaction.unembedded(operations) == ["a"], (
            "of these, only what is forgotten again is new again"
        )
    assert asked == ["b", "a", "c", "d", "a"]
    assert foreseen == ["b", "a", "c", "d"], "each once"


def test_stored_vectors_come_back_bit_for_bit() -> None:
    replica = new_replica()
    awkward = bytes.fromhex("0000 0080 0100 ff03 0004 ff7b fffb 003c 00bc 3555 0100 0180 6666 cdcc 0002 ff83")
    assert len(awkward) == 32
    given = [awkward, vector("plain")]
    apply(replica, capture("text"), vectors=lambda _: given)
    chunk = replica.database.value("SELECT rowid FROM chunks")
    assert float16_vectors(replica.database, chunk) == given
    assert replica.digest() == replica.recompute_digest()


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param([vector("a")[:-2]], id="shorter than those kept"),
        pytest.param([vector("a") + b"\x00\x00"], id="longer than those kept"),
        pytest.param([vector("a"), vector("a")[:-1]], id="cut within a number"),
        pytest.param([b"\x00\x7c" * 16], id="infinite"),
        pytest.param([b"\x01\x7e" * 16], id="not a number"),
        pytest.param([b""], id="empty"),
    ],
)
def test_vectors_that_cannot_be_kept_are_refused_and_leave_nothing(bad: list[bytes]) -> None:
    replica = new_replica()
    apply(replica, capture("first"))
    before = replica.digest()
    with pytest.raises(UnusableVectors):
        apply(replica, capture("second"), vectors=lambda _: bad)
    assert replica.digest() == before == replica.recompute_digest()
    assert texts(replica.database) == {"first"}
    assert replica.database.check() == []


@pytest.mark.parametrize("bad", [[b"\x00"], [b"\x00" * (8193 * 2)], [b"\x00\x7c"]])
def test_the_first_vectors_are_checked_too(bad: list[bytes]) -> None:
    replica = new_replica()
    with pytest.raises(UnusableVectors):
        apply(replica, capture("first"), vectors=lambda _: bad)
    assert texts(replica.database) == set()
    apply(replica, capture("first"))
    assert replica.database.check() == []


def test_forgetting_removes_a_text_with_all_that_hangs_on_it_and_for_good() -> None:
    replica = new_replica()
    apply(replica, capture("secret plan", "other plan"), remember("secret plan"), vectors=windows)
    apply(replica, forget("secret plan"))
    assert texts(replica.database) == {"other plan"}
    assert keyword_rowids(replica.database, "secret") == []
    assert len(keyword_rowids(replica.database, "plan")) == 1
    assert replica.database.value("SELECT count(*) FROM memories") == 0
    assert replica.database.value("SELECT count(*) FROM occurrences") == 1
    assert replica.database.check() == []
    apply(replica, capture("secret plan", session="a backfill"), device=OTHER_DEVICE)
    assert texts(replica.database) == {"other plan"}
    assert replica.digest() == replica.recompute_digest()


def test_forgetting_ahead_of_the_text_keeps_it_out() -> None:
    replica = new_replica()
    apply(replica, forget("not yet seen"), capture("not yet seen"))
    assert texts(replica.database) == set()


def test_only_a_remember_lifts_a_forget() -> None:
    replica = new_replica()
    apply(replica, capture("words"), forget("words"), remember("words"), capture("words", session="later"))
    assert texts(replica.database) == {"words"}
    assert replica.database.value("SELECT count(*) FROM suppressed") == 0
    assert replica.database.rows("SELECT session FROM occurrences") == [("later",)]


def test_remembering_again_changes_the_category_and_nothing_else() -> None:
    replica = new_replica()
    apply(replica, remember("tea, not coffee", "fact", created_at=1))
    apply(
        replica, remember("tea, not coffee", "preference", agent="another", created_at=2), device=OTHER_DEVICE
    )
    rows = replica.database.rows("SELECT category, agent, created_at FROM memories")
    assert rows == [("preference", "agent", 1)]
    before = replica.digest()
    with replica.transaction() as transaction:
        transaction.apply(origin(9), remember("tea, not coffee", "preference"), no_vectors)
    assert replica.digest() == before == replica.recompute_digest()


def test_applying_the_same_again_changes_nothing() -> None:
    replica = new_replica()
    operations: list[Operation] = [capture("a", "b"), remember("c"), forget("b")]
    apply(replica, *operations, vectors=windows)
    before = replica.digest()
    with replica.transaction() as transaction:
        for sequence, operation in enumerate(operations):
            if not transaction.done(origin(sequence)):
                transaction.apply(origin(sequence), operation, no_vectors)
            transaction.mark_done(origin(sequence))
        transaction.apply(origin(2), operations[2], no_vectors)
    assert replica.digest() == before == replica.recompute_digest()


def test_equal_rows_in_another_order_have_equal_digests() -> None:
    one, two = new_replica(), new_replica()
    apply(one, capture("a", session="1"), capture("b", session="2"), remember("c"), vectors=windows)
    with two.transaction() as transaction:
        for sequence, operation in (
            (2, remember("c")),
            (0, capture("a", session="1")),
            (1, capture("b", session="2")),
        ):
            transaction.apply(origin(sequence), operation, windows)
            transaction.mark_done(origin(sequence))
    assert one.digest() == two.digest()
    assert one.digest().hex() == two.digest().hex()


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (capture("a"), capture("b")),
        (capture("a", agent="x", session="yz"), capture("a", agent="xy", session="z")),
        (capture("a", created_at=1), capture("a", created_at=2)),
        (capture("a", project="p"), capture("a", project="q")),
        (capture("a"), remember("a")),
        (remember("a", "fact"), remember("a", "event")),
        (capture("a"), capture("a", "a")),
    ],
)
def test_different_states_have_different_digests(one: Operation, two: Operation) -> None:
    first, second = new_replica(), new_replica()
    apply(first, one)
    apply(second, two)
    assert first.digest() != second.digest()


def test_the_digest_covers_vectors() -> None:
    first, second = new_replica(), new_replica()
    apply(first, capture("a"), vectors=lambda _: [vector("a"), vector("b")])
    apply(second, capture("a"), vectors=lambda _: [vector("b"), vector("a")])
    assert first.digest() != second.digest()


def test_the_device_that_spoke_is_part_of_the_state() -> None:
    first, second = new_replica(), new_replica()
    for replica, device in ((first, OTHER_DEVICE), (second, SECRET.to_bytes()[:16])):
        with replica.transaction() as transaction:
            transaction.apply(origin(0, device), capture("a"), one_window)
    assert first.digest() != second.digest()


def fail_half_way(replica: Replica) -> None:
    with replica.transaction() as transaction:
        before = transaction.digest()
        transaction.apply(origin(1), capture("lost", "kept"), windows)
        transaction.apply(origin(2), forget("kept"), windows)
        transaction.mark_done(origin(1))
        transaction.mark_done(origin(7))
        transaction.set_position(Position(3, 4, b"p" * 32))
        transaction.keep_entry(1, 0, b"sealed", EntryState.SENT)
        transaction.meta_set("name", b"value")
        assert transaction.digest() != before
        raise LookupError


def test_a_failed_transaction_leaves_everything_as_it_was() -> None:
    replica = new_replica()
    apply(replica, capture("kept"), vectors=windows)
    before, position = replica.digest(), replica.position()
    with pytest.raises(LookupError):
        fail_half_way(replica)
    assert (replica.digest(), replica.position()) == (before, position)
    assert replica.recompute_digest() == before
    assert texts(replica.database) == {"kept"}
    assert replica.meta_get("name") is None
    assert replica.kept(EntryState.SENT) == []
    assert replica.database.check() == []
    apply(replica, capture("kept", "more"), vectors=windows)
    assert replica.digest() == replica.recompute_digest()


def test_a_transaction_is_of_no_use_after_its_end() -> None:
    replica = new_replica()
    with replica.transaction() as transaction:
        pass
    with pytest.raises(RuntimeError):
        transaction.apply(origin(0), capture("late"), one_window)
    with pytest.raises(RuntimeError), replica.transaction(), replica.transaction():
        pass


def test_a_wiped_replica_takes_the_same_history_to_the_same_digest() -> None:
    replica = new_replica()
    operations: list[Operation] = [capture("a", "b"), remember("c"), forget("b"), capture("d")]
    apply(replica, *operations, vectors=windows)
    with replica.transaction() as transaction:
        transaction.keep_entry(1, 0, b"sealed", EntryState.SENT)
        transaction.set_position(Position(1, 1, b"h" * 32))
        transaction.meta_set("name", b"value")
    before = replica.digest()
    with replica.transaction() as transaction:
        transaction.wipe()
        assert transaction.digest() == new_replica().digest()
    assert replica.position() == START
    assert replica.acks() == []
    assert replica.recompute_digest() == replica.digest() == new_replica().digest()
    assert replica.entries(1, 0, 10) == [KeptEntry(1, 0, b"sealed", EntryState.SENT)]
    assert replica.meta_get("name") == b"value"
    assert keyword_rowids(replica.database, "a") == []
    apply(replica, *operations, vectors=windows)
    assert replica.digest() == before == replica.recompute_digest()
    assert replica.database.check() == []


def test_a_wiped_replica_takes_vectors_of_another_model() -> None:
    replica = new_replica()
    apply(replica, capture("a"))
    with replica.transaction() as transaction:
        transaction.wipe()
    apply(replica, capture("a"), vectors=lambda _: [bytes(2 * 24)])
    assert float16_vectors(replica.database, replica.database.value("SELECT rowid FROM chunks")) == [
        bytes(48)
    ]


def test_texts_of_any_script_and_with_nul_characters_survive() -> None:
    replica = new_replica()
    awkward = [
        "nul \0 within",
        "日本語のテキスト",
        "Ünïcödé e\u0301",
        "👩‍👩‍👧 family",
        "\ufffe\uffff",
        "'; DROP TABLE chunks; --",
    ]
    apply(replica, *(capture(text, message=str(i)) for i, text in enumerate(awkward)))
    assert texts(replica.database) == set(awkward)
    assert replica.digest() == replica.recompute_digest()
    assert replica.database.check() == []
    apply(replica, forget(*awkward))
    assert texts(replica.database) == set()
    assert replica.database.check() == []


def test_rows_of_another_vault_are_not_taken_for_ours() -> None:
    replica = new_replica()
    apply(replica, capture("a"))
    with pytest.raises(ForeignSecret):
        Replica(replica.database, VaultSecret(b"s" * 32))
    assert Replica(replica.database, SECRET).digest() == replica.digest()


def test_a_clone_goes_its_own_way() -> None:
    replica = new_replica()
    apply(replica, capture("a"), vectors=windows)
    clone = replica.clone()
    assert clone.digest() == replica.digest()
    apply(clone, capture("b"), vectors=windows)
    assert texts(replica.database) == {"a"}
    assert clone.recompute_digest() == clone.digest() != replica.digest()


def test_names_of_the_database_itself_are_out_of_reach() -> None:
    with new_replica().transaction() as transaction, pytest.raises(ValueError, match="reserved"):
        transaction.meta_set("core.secret", b"")


def test_many_texts_in_one_transaction_are_all_indexed() -> None:
    replica = new_replica()
    pieces = [Piece(f"number{i} of many", "user", 0, "m", i) for i in range(5000)]
    operations = [Capture("a", "s", "", "", "", tuple(pieces[i : i + 250])) for i in range(0, 5000, 250)]
    apply(replica, *operations)
    assert len(keyword_rowids(replica.database, "many")) == 5000
    assert len(keyword_rowids(replica.database, "number4321")) == 1
    assert replica.database.check() == []
    assert replica.digest() == replica.recompute_digest()


def test_a_forget_after_texts_of_the_same_transaction_finds_them_indexed() -> None:
    replica = new_replica()
    apply(replica, capture("short lived", "long lived"), forget("short lived"), capture("after"))
    assert keyword_rowids(replica.database, "short") == []
    assert len(keyword_rowids(replica.database, "lived")) == 1
    assert len(keyword_rowids(replica.database, "after")) == 1
    assert replica.database.check() == []


def test_target_hashes_are_keyed() -> None:
    assert target("a") != content_hash("a")
