"""Keyed hashes in bulk are the keyed hashes one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_crypto.digest import TableDigest
from crystal_crypto.errors import Malformed
from crystal_crypto.hierarchy import VaultSecret

SECRET = VaultSecret(bytes(range(32)))


@given(st.lists(st.binary(max_size=200)))
def test_rows_added_together_give_the_digest_of_rows_added_one_by_one(rows: list[bytes]) -> None:
    together, single = TableDigest(SECRET.state_key, "table"), TableDigest(SECRET.state_key, "table")
    together.add_many(rows)
    for row in rows:
        single.add(row)
    assert together == single
    for row in reversed(rows):
        together.remove(row)
    assert (together.sum, together.count) == (0, 0)


@given(st.lists(st.binary(min_size=32, max_size=32)))
def test_forget_hashes_are_the_forget_hash_of_each(hashes: list[bytes]) -> None:
    assert SECRET.forget_hashes(hashes) == [SECRET.forget_hash(content) for content in hashes]


def test_a_content_hash_of_another_length_is_refused() -> None:
    with pytest.raises(Malformed):
        SECRET.forget_hashes([bytes(32), bytes(31)])
