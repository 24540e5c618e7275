"""Vectors are kept in the same form, whether NumPy looks at them or not."""

import struct
import subprocess
import sys
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_core.errors import UnusableVectors
from crystal_core.state import vectors

_NUMBERS = st.one_of(st.floats(width=16, allow_nan=False, allow_infinity=False), st.just(-0.0))

_STORED = """
import sys
from crystal_core.database import Database
from crystal_core.state import vectors
database = Database.open(":memory:")
with database.transaction():
    database.run("PRAGMA defer_foreign_keys = 1")
    vectors.store_block(database, [1], [vectors.FEW], b"\\x00\\x3c" * 8 * vectors.FEW)
    print(database.value("SELECT count(*) FROM vectors"), "numpy" in sys.modules)
    database.run("DELETE FROM vectors")
    database.run("DELETE FROM windows")
"""


@given(
    st.integers(1, 20).flatmap(
        lambda size: st.lists(st.lists(_NUMBERS, min_size=size, max_size=size), min_size=1)
    )
)
def test_a_few_are_kept_as_many_are(rows: list[list[float]]) -> None:
    size = len(rows[0])
    block = b"".join(struct.pack(f"<{size}e", *row) for row in rows)
    few = [(bytes(vector), bytes(bits)) for vector, bits in vectors.rows_of_few(block, size)]
    many = [(bytes(vector), bytes(bits)) for vector, bits in vectors.rows_by_numpy(block, size)]
    assert few == many


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("rows", [vectors.rows_of_few, vectors.rows_by_numpy])
def test_what_is_no_number_is_refused(rows: Callable[[bytes, int], Iterable[object]], number: float) -> None:
    with pytest.raises(UnusableVectors):
        list(rows(struct.pack("<4e", 0.5, 1, number, 2), 2))


def test_a_few_are_stored_without_numpy() -> None:
    """Measured: it would take 11 MB of a background service that gets a message now and then."""
    finished = subprocess.run(
        [sys.executable, "-c", _STORED], capture_output=True, text=True, timeout=60, check=True
    )
    assert finished.stdout == f"{vectors.FEW} False\n"
