"""After a forget the text is in no byte of the database's files: not in rows, indexes, vectors, free pages or the WAL."""

import re
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from crystal_core.database import Database
from crystal_core.replica import Replica
from crystal_mirror.operations import DropDocument, DropSource, Operation, PutDocument, PutSource, Remember
from tests.core.builders import (
    SECRET,
    apply,
    capture,
    forget,
    keyword_rowids,
    new_replica,
    origin,
    remember,
    target,
    vector,
)

LETTERS = "bcdfghjklmnpqrstvwxz"


def nonsense(random: Random, words: int) -> str:
    """Words that stand nowhere else and that stemming leaves alone, some longer than a page's share of a row."""
    return " ".join("".join(random.choices(LETTERS, k=random.choice([13, 17, 60]))) for _ in range(words))


@dataclass(frozen=True)
class Stored:
    """The files' bytes at one moment, and every run of ten letters in them."""

    content: bytes
    grams: frozenset[bytes]


def stored(path: Path) -> Stored:
    content = b"".join(
        part.read_bytes() for part in (path, path.with_name(path.name + "-wal")) if part.exists()
    )
    runs = re.findall(rb"[%s]{10,}" % LETTERS.encode(), content)
    return Stored(content, frozenset(run[i : i + 10] for run in runs for i in range(len(run) - 9)))


def traces(text: str, found: Stored) -> list[str]:
    """Words of the text that are there, if only from their fourth letter on: indexes cut off what neighbours share."""
    return [word for word in text.split() if word[3:13].encode() in found.grams]


def test_no_byte_of_a_forgotten_text_or_its_vector_is_left(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    random = Random(1)
    kept = [nonsense(random, 120) for _ in range(200)]
    gone = [nonsense(random, random.choice([3, 120, 2000])) for _ in range(40)]
    everything = kept + gone
    random.shuffle(everything)
    replica = new_replica(path)
    for start in range(0, len(everything), 20):
        apply(replica, *(capture(text, message=str(start)) for text in everything[start : start + 20]))
    apply(replica, *(remember(text) for text in gone[:10]))
    # Rows moved about by other deletions leave copies of themselves in the slack of pages.
    apply(replica, forget(*kept[::7]))
    replica.database.scrub()
    found = stored(path)
    assert all(len(traces(text, found)) > 0.9 * len(text.split()) for text in gone), (
        "but for some across two pages"
    )
    assert vector(gone[0]) in found.content

    apply(replica, forget(*gone))

    found = stored(path)
    assert [traces(text, found) for text in gone if traces(text, found)] == []
    assert [text for text in gone if vector(text) in found.content] == []
    assert all(vector(text) in found.content for text in set(kept) - set(kept[::7]))
    assert replica.database.check() == []


@pytest.mark.parametrize("pending", [True, False])
def test_no_byte_of_a_text_is_left_that_stood_in_documents_and_memories(
    tmp_path: Path, pending: bool
) -> None:
    path = tmp_path / "crystal.db"
    random = Random(6)
    kept, gone, newer = nonsense(random, 40), nonsense(random, 40), nonsense(random, 40)
    operations: list[Operation] = [
        PutSource("notes", "", (), (), 1),
        PutDocument("notes", "a.md", bytes(32), 1, "md", 0, 2, (kept, gone), ("", "")),
        remember(gone),
        Remember(newer, "fact", "agent", 2, supersedes=(target(gone),)),
    ]
    replica = new_replica(path)
    apply(replica, *operations)
    if pending:
        for number, operation in enumerate(operations[1:], start=50):
            replica.index_provisional(origin(number), operation)
    replica.database.scrub()
    assert len(traces(gone, stored(path))) > 30

    apply(replica, forget(gone))
    for number in range(50, 53):
        replica.drop_provisional(origin(number))

    found = stored(path)
    assert traces(gone, found) == []
    assert len(traces(kept, found)) > 30 < len(traces(newer, found))
    assert replica.digest() == replica.recompute_digest()


def test_a_reader_of_an_older_state_delays_the_scrub_and_does_not_prevent_it(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    random = Random(2)
    text = nonsense(random, 50)
    replica = new_replica(path)
    apply(replica, capture(text))
    reader = Database.open(path)
    with reader.snapshot():
        assert reader.value("SELECT count(*) FROM chunks") == 1
        apply(replica, forget(text))
        assert traces(text, stored(path)), "the reader may still need it"
        assert reader.value("SELECT text FROM chunks") == text
    apply(replica, capture("anything else"))
    assert traces(text, stored(path)) == []


def test_what_could_not_be_scrubbed_is_scrubbed_by_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    text = nonsense(Random(3), 50)
    replica = new_replica(path)
    apply(replica, capture(text))
    reader = Database.open(path)
    with reader.snapshot():
        reader.value("SELECT count(*) FROM chunks")
        apply(replica, forget(text))
    assert traces(text, stored(path))
    again = Replica.open(path, SECRET)
    assert traces(text, stored(path)) == []
    again.close()
    replica.close()
    reader.close()


@pytest.mark.parametrize("pending_first", [True, False])
def test_provisional_copies_of_a_forgotten_text_go_too(tmp_path: Path, pending_first: bool) -> None:
    path = tmp_path / "crystal.db"
    text = nonsense(Random(4), 50)
    replica = new_replica(path)
    if pending_first:
        replica.index_provisional(origin(5), capture(text))
    apply(replica, capture(text))
    replica.index_provisional(origin(6), capture(text))
    apply(replica, forget(text))
    assert traces(text, stored(path)) == []


def test_a_wipe_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    text = nonsense(Random(5), 200)
    replica = new_replica(path)
    apply(replica, capture(text), capture("another"))
    with replica.transaction() as transaction:
        transaction.wipe()
    found = stored(path)
    assert traces(text, found) == []
    assert vector(text) not in found.content


def page_starts(replica: Replica) -> set[bytes]:
    return {bytes(row[0][1:]) for row in replica.database.rows("SELECT term FROM chunks_fts_idx") if row[0]}


@pytest.mark.parametrize("batch", [1, 20, 200])
def test_words_that_lead_the_indexs_pages_go_too(tmp_path: Path, batch: int) -> None:
    """FTS5's secure deletion leaves them: see `fulltext.py`."""
    random = Random(6)
    texts = [
        "bcdfghjklm".join(["", *nonsense(random, 40).split()]).replace("bcdf", " bcdf") for _ in range(200)
    ]
    replica = new_replica(tmp_path / "crystal.db")
    for start in range(0, len(texts), batch):
        apply(replica, *(capture(text, message=str(start)) for text in texts[start : start + batch]))
    starts = page_starts(replica)
    exposed = [
        text for text in texts if any(word.encode().startswith(tuple(starts)) for word in text.split())
    ]
    assert len(exposed) > 3, "else this shows nothing"
    apply(replica, forget(*exposed[:3]))
    replica.database.run("CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'chunks_fts', 'row')")
    live = [row[0].encode() for row in replica.database.rows("SELECT term FROM temp.terms")]
    assert [start for start in page_starts(replica) if not any(term.startswith(start) for term in live)] == []
    assert replica.database.check() == []
    assert len(keyword_rowids(replica.database, exposed[3].split()[0])) == 1


def test_a_suppressed_text_that_was_only_pending_leaves_no_traces_either(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    text = nonsense(Random(7), 400)
    replica = new_replica(path)
    apply(replica, forget(text))
    replica.index_provisional(origin(5), remember(text))
    assert len(traces(text, stored(path))) > 0
    replica.drop_provisional(origin(5))
    assert traces(text, stored(path)) == []


@pytest.mark.parametrize("dropped", [DropDocument("notes", "a.md"), DropSource("notes")])
def test_no_byte_of_a_document_is_left_that_was_dropped(
    tmp_path: Path, dropped: DropDocument | DropSource
) -> None:
    path = tmp_path / "crystal.db"
    random = Random(7)
    kept, gone = nonsense(random, 40), nonsense(random, 40)
    replica = new_replica(path)
    apply(
        replica,
        remember(kept),
        PutSource("notes", "", (), (), 1),
        PutDocument("notes", "a.md", bytes(32), 1, "md", 0, 2, (kept, gone), ("", "")),
    )
    assert len(traces(gone, stored(path))) > 30
    apply(replica, dropped)
    found = stored(path)
    assert traces(gone, found) == []
    assert len(traces(kept, found)) > 30
