"""Texts are found by their ids, and the beginnings of these, without reading all of them."""

import pytest

from crystal_core import messages
from crystal_core.messages import chunk_of, chunks_between
from crystal_core.replica import Replica
from crystal_core.schema import BLOCK
from tests.core.builders import apply, capture, content_hash, forget, new_replica, no_vectors

TEXTS = [f"text {number}" for number in range(BLOCK + 50)]


@pytest.fixture
def replica() -> Replica:
    """A block that is full, and one that is growing."""
    replica = new_replica()
    apply(
        replica,
        *(capture(*TEXTS[start : start + 200], message=str(start)) for start in range(0, len(TEXTS), 200)),
        vectors=no_vectors,
    )
    return replica


def rows_looked_at(replica: Replica, content: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """The rowids that a lookup goes through."""
    seen = 0
    between = messages._between  # pyright: ignore[reportPrivateUsage]

    def counting(*arguments: object) -> list[int]:
        nonlocal seen
        newest = int(replica.database.value("SELECT max(rowid) FROM chunks"))
        seen += min(int(str(arguments[4])), newest) - int(str(arguments[3])) + 1
        return between(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(messages, "_between", counting)
    assert chunk_of(replica.database, content) is not None
    return seen


def test_every_text_is_found_by_its_id_and_by_eight_digits_of_it(replica: Replica) -> None:
    database = replica.database
    assert database.value("SELECT count(*) FROM id_blocks") == 1
    for text in (TEXTS[0], TEXTS[17], TEXTS[BLOCK - 1], TEXTS[BLOCK], TEXTS[-1]):
        content = content_hash(text)
        rowid = database.value("SELECT rowid FROM chunks WHERE text = ?", (text,))
        assert chunk_of(database, content) == rowid
        assert chunks_between(database, content[:4] + bytes(28), content[:4] + b"\xff" * 28) == [rowid]
    assert chunk_of(database, content_hash("nobody said that")) is None


def test_a_lookup_reads_no_more_than_the_block_and_the_growing_one(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rows_looked_at(replica, content_hash(TEXTS[-1]), monkeypatch) <= BLOCK


def test_of_a_forgotten_text_no_digit_stays(replica: Replica) -> None:
    digits = content_hash(TEXTS[5])[:4].hex().upper()
    kept = "SELECT count(*) FROM id_blocks WHERE instr(prefixes, ?)"
    assert replica.database.value(kept, (digits,)) == 1
    apply(replica, forget(TEXTS[5]))
    assert replica.database.value(kept, (digits,)) == 0
    assert chunk_of(replica.database, content_hash(TEXTS[5])) is None
    assert chunk_of(replica.database, content_hash(TEXTS[6])) is not None


@pytest.mark.parametrize("damage", ["DELETE FROM id_blocks", "UPDATE id_blocks SET prefixes = ''"])
def test_lost_or_wrong_blocks_cost_time_and_nothing_else(replica: Replica, damage: str) -> None:
    replica.database.run(damage)
    assert chunk_of(replica.database, content_hash(TEXTS[5])) is not None


def test_a_range_without_common_digits_is_refused(replica: Replica) -> None:
    with pytest.raises(ValueError, match="four bytes"):
        chunks_between(replica.database, bytes(32), b"\xff" * 32)
