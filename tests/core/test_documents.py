"""Sources and documents: whose they are, what replaces what, and which texts go with them."""

from collections.abc import Iterator
from hashlib import sha256

import pytest

from crystal_core.documents import count_pieces, document_pieces, documents, sources
from crystal_core.replica import Replica
from crystal_core.search.search import search
from crystal_mirror.operations import (
    DropDocument,
    DropSource,
    Operation,
    PutDocument,
    PutSource,
)
from tests.core.builders import (
    DEVICE,
    NOW,
    OTHER_DEVICE,
    apply,
    capture,
    content_hash,
    forget,
    new_replica,
    one_window,
    origin,
    remember,
    texts,
)

SOURCE = PutSource("notes", "Documents/notes", ("*.md",), ("drafts/*",), NOW)


def put(
    *pieces: str, path: str = "tides.md", version: str = "1", first: int = 0, total: int | None = None
) -> PutDocument:
    total = first + len(pieces) if total is None else total
    titles = tuple(f"Part {first + number}" for number in range(len(pieces)))
    return PutDocument(
        "notes", path, sha256(version.encode()).digest(), NOW, "markdown", first, total, pieces, titles
    )


def drop(path: str = "tides.md") -> DropDocument:
    return DropDocument("notes", path)


def pieces(replica: Replica, path: str = "tides.md") -> list[str]:
    return [each.text for each in document_pieces(replica.database, "notes", path)]


def found(replica: Replica, words: str) -> set[str]:
    return {hit.text for hit in search(replica.database, words, now_ms=NOW, embedder=None).hits}


def sound(replica: Replica) -> None:
    assert replica.digest() == replica.recompute_digest()
    assert replica.database.check() == []
    twin = new_replica()
    with replica.export() as moment, twin.transaction() as transaction:
        for part in moment.parts():
            transaction.load(part)
    assert twin.digest() == replica.digest() == twin.recompute_digest()
    if not replica.provisional_origins():
        for source in sources(replica.database):
            assert documents(twin.database, source.name) == documents(replica.database, source.name)


@pytest.fixture
def replica() -> Iterator[Replica]:
    made = new_replica()
    apply(made, SOURCE)
    yield made
    sound(made)


def test_a_documents_pieces_are_found_and_stand_in_their_order(replica: Replica) -> None:
    apply(replica, put("the ebb", "the flood"))
    assert pieces(replica) == ["the ebb", "the flood"]
    assert found(replica, "flood") == {"the flood"}
    (one,) = documents(replica.database, "notes")
    assert (one.path, one.kind, one.total, one.complete, one.pending) == (
        "tides.md",
        "markdown",
        2,
        True,
        False,
    )
    assert count_pieces(replica.database, "notes") == 2
    (source,) = sources(replica.database)
    assert (source.device, source.include, source.exclude) == (DEVICE, ("*.md",), ("drafts/*",))


def test_a_new_version_takes_the_place_of_the_old_and_what_is_gone_goes(replica: Replica) -> None:
    apply(replica, put("kept", "old words", "the end"))
    apply(replica, put("new words", "kept", version="2"))
    assert pieces(replica) == ["new words", "kept"]
    assert texts(replica.database) == {"new words", "kept"}


def test_a_long_document_comes_in_several_operations_and_the_rest_of_the_old_goes_with_the_last(
    replica: Replica,
) -> None:
    apply(replica, put("a", "b", "c", "d", "e"))
    apply(replica, put("A", "B", version="2", total=4))
    assert pieces(replica) == ["A", "B", "c", "d", "e"]
    assert not documents(replica.database, "notes")[0].complete
    apply(replica, put("C", "D", version="2", first=2, total=4))
    assert pieces(replica) == ["A", "B", "C", "D"]
    assert documents(replica.database, "notes")[0].complete


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(put("late", version="1", first=1, total=3), id="a version that was replaced"),
        pytest.param(put("late", version="2", first=2, total=4), id="not behind what came"),
        pytest.param(put("late", version="2", first=1, total=5), id="another total"),
        pytest.param(put("late", path="other.md", first=1, total=4), id="a document that never began"),
    ],
)
def test_what_does_not_follow_is_of_no_effect(replica: Replica, late: PutDocument) -> None:
    apply(replica, put("a", total=3), put("b", version="2", total=4))
    apply(replica, late)
    assert texts(replica.database) == {"b"}


def test_an_empty_document_is_one(replica: Replica) -> None:
    apply(replica, put("words"), put(version="2"))
    assert pieces(replica) == []
    assert documents(replica.database, "notes")[0].complete
    assert texts(replica.database) == set()


def test_a_dropped_documents_text_goes_unless_something_else_has_it(replica: Replica) -> None:
    apply(replica, capture("said too"), remember("remembered too"), put("in another", path="other.md"))
    apply(replica, put("said too", "remembered too", "in another", "alone", "alone"))
    apply(replica, drop())
    assert texts(replica.database) == {"said too", "remembered too", "in another"}
    assert found(replica, "alone") == set()
    apply(replica, capture("alone", session="later"))
    assert found(replica, "alone") == {"alone"}, "nothing was suppressed by it"


def test_dropping_a_document_that_is_not_there_changes_nothing(replica: Replica) -> None:
    apply(replica, put("words"))
    before = documents(replica.database, "notes")
    apply(replica, drop("nowhere.md"))
    assert documents(replica.database, "notes") == before
    assert pieces(replica) == ["words"]


def test_a_forgotten_text_leaves_a_document_and_stays_out_of_it(replica: Replica) -> None:
    apply(replica, put("open", "secret words", "after"))
    apply(replica, forget("secret words"))
    assert pieces(replica) == ["open", "after"]
    with replica.transaction() as transaction:
        transaction.apply(origin(50), put("open", "secret words", version="2"), one_window)
        assert transaction.left_out
    assert pieces(replica) == ["open"]
    assert documents(replica.database, "notes")[0].complete


def test_a_source_belongs_to_the_device_that_put_it_last(replica: Replica) -> None:
    apply(replica, put("mine"))
    apply(replica, put("not yours yet", version="2"), drop(), device=OTHER_DEVICE)
    assert pieces(replica) == ["mine"]
    apply(replica, SOURCE, put("yours now", version="2"), device=OTHER_DEVICE)
    apply(replica, put("late", version="3"), drop())
    assert pieces(replica) == ["yours now"]


def test_a_source_goes_with_all_its_documents_whoever_drops_it(replica: Replica) -> None:
    apply(replica, put("one"), put("two", path="two.md"), capture("three"))
    apply(replica, DropSource("notes"), device=OTHER_DEVICE)
    assert sources(replica.database) == []
    assert texts(replica.database) == {"three"}
    apply(replica, put("one", version="9"))
    assert documents(replica.database, "notes") == []


def test_no_source_no_documents() -> None:
    replica = new_replica()
    apply(replica, put("words"))
    assert texts(replica.database) == set()
    sound(replica)


def test_vectors_are_foreseen_for_whatever_a_batch_takes_out_and_puts_back(replica: Replica) -> None:
    apply(replica, put("a", "b", "c", "d"), put("x", path="other.md"))
    batch: list[Operation] = [
        put("b", "new", version="2", total=4),
        put("e", version="2", first=2, total=4),
        put("f", version="2", first=3, total=4),
        put("a", "c", path="third.md"),
        drop("other.md"),
        put("x", "d", path="third.md", version="2"),
        DropSource("notes"),
        SOURCE,
        put("a", "x", "b"),
    ]
    foreseen = replica.unembedded(batch)
    asked: list[str] = []

    def vectors(text: str) -> list[bytes]:
        asked.append(text)
        return one_window(text)

    with replica.transaction() as transaction:
        for number, operation in enumerate(batch, start=40):
            transaction.apply(origin(number), operation, vectors)
    assert set(asked) <= set(foreseen)
    assert pieces(replica) == ["a", "x", "b"]


def test_vectors_are_foreseen_for_what_is_taken_out_and_said_in_one_batch(replica: Replica) -> None:
    apply(replica, put("amber", "birch"), vectors=one_window)
    said = capture("birch", session="later")
    assert replica.unembedded([said]) == []
    assert replica.unembedded([drop(), said]) == ["birch"]
    assert replica.unembedded([DropSource("notes"), said]) == ["birch"]
    assert replica.unembedded([put("amber", version="2"), said]) == ["birch"], (
        "the new version ends before it"
    )
    assert replica.unembedded([put("amber", "birch", version="2"), said]) == []


def test_an_unchanged_text_is_not_embedded_again(replica: Replica) -> None:
    apply(replica, put("a", "b", "c"))
    assert replica.unembedded([put("new", "a", "b", "c", version="2")]) == ["new"]


def test_pending_documents_are_there_at_once_and_hide_what_they_replace(replica: Replica) -> None:
    apply(replica, put("old words", "kept words"), put("to go words", path="gone.md"))
    before = replica.digest()
    replica.index_provisional(origin(60), put("new words", "kept words", version="2"))
    replica.index_provisional(origin(61), drop("gone.md"))
    replica.index_provisional(origin(62), put("more words", path="more.md"))
    assert pieces(replica) == ["new words", "kept words"]
    assert found(replica, "words") == {"new words", "kept words", "more words"}
    assert [(each.path, each.pending) for each in documents(replica.database, "notes")] == [
        ("more.md", True),
        ("tides.md", True),
    ]
    assert replica.digest() == before
    for number in (60, 61, 62):
        replica.drop_provisional(origin(number))
    assert found(replica, "words") == {"old words", "kept words", "to go words"}


def test_pending_operations_follow_each_other_and_the_last_counts(replica: Replica) -> None:
    replica.index_provisional(origin(60), put("first words"))
    replica.index_provisional(origin(61), put("second words", version="2"))
    assert found(replica, "words") == {"second words"} == set(pieces(replica))
    replica.index_provisional(origin(62), DropSource("notes"))
    assert found(replica, "words") == set()
    assert sources(replica.database) == []
    assert documents(replica.database, "notes") == []
    replica.index_provisional(origin(63), SOURCE)
    assert [source.pending for source in sources(replica.database)] == [True]


def test_what_pends_never_changes_what_applying_leads_to() -> None:
    operations: list[Operation] = [
        SOURCE,
        put("a", "b"),
        remember("b"),
        put("c", version="2"),
        drop(),
        put("a", version="3"),
    ]
    reference, replica = new_replica(), new_replica()
    apply(reference, *operations)
    for number, operation in enumerate(operations):
        replica.index_provisional(origin(number), operation)
    replica.index_provisional(origin(70), put("pending", "a", "b", version="7"))
    apply(replica, *operations)
    assert replica.digest() == reference.digest() == replica.recompute_digest()
    assert replica.provisional_origins() == {origin(70)}
    with replica.transaction() as transaction:
        transaction.wipe()
    assert replica.database.rows("SELECT count(*) FROM documents") == [(0,)]
    assert content_hash("pending") in {row[0] for row in replica.database.rows("SELECT id FROM chunks")}
    apply(replica, *operations)
    assert replica.digest() == reference.digest()


def test_chunks_of_one_document_share_a_frame_of_a_snapshot(replica: Replica) -> None:
    from crystal_core.snapshots.parts import decode_part

    repeated = "the same opening words of every paragraph here, over and over again "
    apply(replica, put(*(f"{repeated}{number}" for number in range(40))))
    with replica.export() as moment:
        sizes = [len(part) for part in moment.parts() if decode_part(part).texts]
    assert sum(sizes) < 40 * (len(repeated) + 32) / 2 + 40 * 32
