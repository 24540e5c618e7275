"""What is kept beside the memory and derived, or kept for convenience, is begun anew wherever damage to it is met."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from crystal_core.database import Database
from crystal_core.deep.answers import Expansions
from crystal_core.deep.engine import Known as Answered
from crystal_core.sqlite_file import MEMORY
from crystal_node.derive.sources.database import KeptSource, KnownFile, LastScan, SourceDatabase
from crystal_node.derive.sources.scan import SourceStamp
from crystal_node.models.embedding.prepared import PreparedVectors
from crystal_node.search.finding.deep_cache import DeepCache, key_of
from crystal_node.search.recall.database import RecallDatabase

NOW = 1_700_000_000_000
PAGE_BYTES = 4096


def recall_book(path: Path) -> None:
    book = RecallDatabase.open(path)
    try:
        book.given("session", ["one"])
        book.note("session", [str(number) for number in range(2000)], NOW)
        book.clear("another")
    finally:
        book.close()


def source_book(path: Path) -> None:
    with SourceDatabase.open(path) as book:
        book.put(KeptSource("notes", Path("/notes"), (), (), 1, 1, 1, LastScan()))
        known = KnownFile(SourceStamp(1, 1, 1, 1), bytes(32), "")
        book.note("notes", [(f"{number}.md", known) for number in range(2000)])
        book.files("notes")
        book.totals("notes")


def made_vectors(path: Path) -> None:
    made = PreparedVectors.open(path)
    with Database.open(MEMORY) as nothing:
        made.begin("model", 4)
        made.vectors("text 1")
        made.prune(nothing)
        made.add([(number, f"text {number}", [bytes(8)]) for number in range(2000)])
        assert made.model == "model"
    made.close()


def answers(path: Path) -> None:
    cache = DeepCache(path)
    said = Answered(Expansions("words " * 80, "phrase " * 80, "passage " * 80), {})
    for number in range(20):
        cache.put(key_of("model", 1, str(number), ""), "mark", said, NOW)
    cache.get(key_of("model", 1, "5", ""), "mark", NOW)
    cache.follow("mark")


@pytest.mark.parametrize("use", [recall_book, source_book, made_vectors, answers])
@pytest.mark.parametrize("how", ["cut", "zeroed", "noise"])
def test_damage_anywhere_in_it_stops_nothing(tmp_path: Path, use: Callable[[Path], None], how: str) -> None:
    path = tmp_path / "beside.db"
    use(path)
    whole = path.read_bytes()
    draw = Random(1)
    for _ in range(5):
        data = bytearray(whole)
        at = draw.randrange(1, len(data) // PAGE_BYTES) * PAGE_BYTES
        if how == "cut":
            del data[at:]
        else:
            data[at : at + PAGE_BYTES] = bytes(PAGE_BYTES) if how == "zeroed" else draw.randbytes(PAGE_BYTES)
        for ending in ("-wal", "-shm", ".damaged"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        path.write_bytes(data)
        use(path)
        use(path)
