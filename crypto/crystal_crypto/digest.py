"""The state digest: equal on two devices exactly when their replicated tables hold the same rows.

Per table it is the sum, modulo 2**256, of HMAC-SHA256(state key, table name | 0 | row) and the number of rows. A sum can be
updated row by row in any order. XOR would not do: a row stored twice would cancel itself out. The key prevents anyone who
sees digests from testing guesses about rows and from building rows that collide.
"""

import hmac
from collections.abc import Iterable

from crystal_crypto.limits import HASH_BYTES

_MODULUS_MASK = 2**256 - 1


class TableDigest:
    """One table's digest. `row` is the row's canonical encoding; removing the same bytes undoes adding them."""

    __slots__ = ("_begun", "count", "sum", "table")

    def __init__(self, state_key: bytes, table: str, sum: int = 0, count: int = 0) -> None:  # noqa: A002
        """Raises ValueError for a name that is empty or not printable ASCII, or a sum or count out of range."""
        if not table or not table.isascii() or not table.isprintable():  # §4.2-4
            raise ValueError("a table name must be printable ASCII")
        if not 0 <= sum <= _MODULUS_MASK or count < 0:
            raise ValueError("a table digest's sum or count is out of range")
        self._begun = hmac.new(state_key, table.encode("ascii") + b"\x00", "sha256")
        self.table = table
        self.sum = sum
        self.count = count

    def add(self, row: bytes) -> None:
        self.sum = (self.sum + self._row_hash(row)) & _MODULUS_MASK  # §4.2-4, §11.6-1
        self.count += 1

    def add_many(self, rows: Iterable[bytes]) -> None:
        """Adds each of the rows."""
        copy, total, count = self._begun.copy, 0, 0
        for row in rows:
            keyed = copy()
            keyed.update(row)
            total += int.from_bytes(keyed.digest(), "big")
            count += 1
        self.sum = (self.sum + total) & _MODULUS_MASK
        self.count += count

    def remove(self, row: bytes) -> None:
        """Raises ValueError when the table is empty: the caller's accounting is broken."""
        if self.count == 0:
            raise ValueError(f"a row cannot be removed from the empty digest of table {self.table!r}")
        self.sum = (self.sum - self._row_hash(row)) & _MODULUS_MASK
        self.count -= 1

    @property
    def sum_bytes(self) -> bytes:
        """The sum as 32 bytes, big-endian."""
        return self.sum.to_bytes(HASH_BYTES, "big")

    def _row_hash(self, row: bytes) -> int:
        keyed = self._begun.copy()  # half the cost of a new one
        keyed.update(row)
        return int.from_bytes(keyed.digest(), "big")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TableDigest):
            return NotImplemented
        return (self.table, self.sum, self.count) == (other.table, other.sum, other.count)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TableDigest({self.table!r}, count={self.count}, sum={self.sum:064x})"
