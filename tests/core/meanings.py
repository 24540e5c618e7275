"""A small embedder for tests of search: a text is the sum of its words' directions, and words of one meaning share theirs."""

import re
from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from crystal_core.embed.port import EmbeddingError
from crystal_core.replica import Replica

DIMENSIONS = 96
MEANINGS = {"automobile": "car", "vehicle": "car", "kitten": "cat", "feline": "cat", "ocean": "sea"}


class MeaningEmbedder:
    """Deterministic, real in every respect but the size of its vocabulary."""

    def __init__(
        self, identity: str = "meanings/1/96", dimensions: int = DIMENSIONS, *, broken: bool = False
    ) -> None:
        self.identity = identity
        self.dimensions = dimensions
        self._broken = broken

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        return [
            [self.embed_query(window).astype("<f2").tobytes() for window in _windows(text)] for text in texts
        ]

    def embed_query(self, text: str) -> NDArray[np.float32]:
        if self._broken:
            raise EmbeddingError("the model is not at home")
        total = np.full(self.dimensions, 1e-3, np.float32)
        words: list[str] = re.findall(r"\w+", text.lower())
        for word in words:
            total += _direction(MEANINGS.get(word, word), self.dimensions)
        return total / np.float32(np.linalg.norm(total))

    def vectors(self, text: str) -> list[bytes]:
        """As `apply` asks for them."""
        return self.embed_windows([text])[0]


def _windows(text: str) -> list[str]:
    """Texts with a bar in them have several windows."""
    return text.split("|")


def _direction(word: str, dimensions: int) -> NDArray[np.float32]:
    seed = int.from_bytes(sha256(word.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(dimensions).astype(np.float32)


def set_model(replica: Replica, identity: str) -> None:
    with replica.transaction() as transaction:
        transaction.meta_set("model", identity.encode())
