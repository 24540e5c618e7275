"""Embedders as their owners hold them: the protocol, one that makes no vectors, and the sample to compare models with."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from crystal_core.embed.port import Embedder, NoEmbedding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
from crystal_core.database import Database
from crystal_core.state.vectors import float16_vectors

Sample = tuple[str, bytes]
"""A text of the vault with its one vector."""


class HeldEmbedder(Embedder, Protocol):
    """An embedder and what its owner needs. ``loaded``: it holds memory that ``release`` frees. ``close`` is final."""

    @property
    def loaded(self) -> bool: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


class NoEmbedder:
    """Makes no vectors, and says why."""

    def __init__(self, why: str, hint: str = "") -> None:
        self._why = why
        self._hint = hint or NoEmbedding.hint
        self.loaded = False

    @property
    def identity(self) -> str:
        """The identity of no model."""
        return ""

    @property
    def dimensions(self) -> int:
        return 0

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        """Raises NoEmbedding."""
        if not texts:
            return []
        raise NoEmbedding(self._why, hint=self._hint)

    def embed_query(self, text: str) -> "NDArray[np.float32]":
        """Raises NoEmbedding."""
        raise NoEmbedding(self._why, hint=self._hint)

    def release(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


_BYTES_MIN, _BYTES_MAX = 24, 800
"""Long enough to tell models apart, short enough to be one window of any model."""
_LOOKED_AT = 2000


def compare_with(embedder: HeldEmbedder | None, database: Database) -> None:
    """Makes a remote model compare itself with the vault before its next answer. Does nothing for the built-in one."""
    expect = getattr(embedder, "expect", None)
    if expect is not None:
        expect(sample_of(database))


def sample_of(database: Database) -> Sample | None:
    """A text that every device of the vault has; None if there is none."""
    row = database.row(
        "SELECT c.rowid, c.text FROM (SELECT rowid, text, provisional FROM chunks ORDER BY rowid LIMIT ?) c"
        " WHERE c.provisional = 0 AND length(CAST(c.text AS BLOB)) BETWEEN ? AND ?"
        " AND (SELECT count(*) FROM windows w WHERE w.chunk = c.rowid) = 1 ORDER BY c.rowid LIMIT 1",
        (_LOOKED_AT, _BYTES_MIN, _BYTES_MAX),
    )
    if row is None:
        return None
    vectors = float16_vectors(database, row[0])
    return (row[1], vectors[0]) if vectors else None
