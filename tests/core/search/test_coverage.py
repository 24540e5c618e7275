"""How much of a memory has vectors, told without looking at all of it."""

from collections.abc import Generator

import pytest

from crystal_core.replica import Replica
from crystal_core.search.coverage import percent_embedded
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.operations import Remember
from crystal_mirror.types import Origin

DEVICE, INCARNATION = bytes(16), bytes(8)


@pytest.fixture
def replica() -> Generator[Replica]:
    replica = Replica.open(":memory:", VaultSecret(bytes(32)))
    yield replica
    replica.close()


def _add(replica: Replica, numbers: range, *, vectors: bool) -> None:
    with replica.transaction() as transaction:
        for number in numbers:
            origin = Origin(DEVICE, INCARNATION, number)
            operation = Remember(f"fact number {number}", "fact", "agent", 1)
            transaction.apply(origin, operation, lambda _text: [bytes([0, 60]) * 8] if vectors else [])
            transaction.mark_done(origin)


def test_an_empty_memory_and_one_in_which_all_have_theirs_are_whole(replica: Replica) -> None:
    assert percent_embedded(replica.database) == 100
    _add(replica, range(50), vectors=True)
    assert percent_embedded(replica.database) == 100


def test_it_is_about_right_at_any_share(replica: Replica) -> None:
    _add(replica, range(300), vectors=True)
    _add(replica, range(300, 400), vectors=False)
    assert 70 <= percent_embedded(replica.database) <= 80
    _add(replica, range(400, 1200), vectors=False)
    assert 20 <= percent_embedded(replica.database) <= 30


def test_none_at_all_is_nothing(replica: Replica) -> None:
    _add(replica, range(200), vectors=False)
    assert percent_embedded(replica.database) <= 1
