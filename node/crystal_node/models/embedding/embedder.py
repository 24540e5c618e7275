"""An embedder with what its owner needs beside embedding, and one for a device that makes no vectors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from crystal_core.embed.port import Embedder, NoEmbedding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Sample = tuple[str, bytes]
"""A text that the vault has, and the one vector that is kept of it."""


class HeldEmbedder(Embedder, Protocol):
    """``loaded``: it holds memory that ``release`` gives back. ``close`` is for good."""

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
        """There is nothing to give back."""

    def close(self) -> None:
        """There is nothing to close."""
