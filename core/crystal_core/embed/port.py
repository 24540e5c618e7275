"""Port: an embedder turns text into vectors; and its errors.

Rules for every implementation:

- A text has at least one window, even an empty text. A long text has several, in reading order, so that its end is found
  by meaning as well as its beginning.
- Vectors are L2-normalised: the dot product of two is their cosine. Stored vectors are `dimensions` little-endian float16
  numbers, `2 * dimensions` bytes; a query's vector is float32.
- The same text gives the same bytes, regardless of the other texts in the call, while `identity`, machine and installed
  libraries are the same. Elsewhere, and from a remote provider, the same `identity` gives vectors that are practically
  equal. Vectors of different identities are never compared.
- The text is never written, logged or sent, unless the user has chosen a remote provider.
- Calls may come from several threads; an implementation serialises them if necessary.

Creating an embedder is cheap: models and libraries are loaded at the first call that needs them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from crystal_crypto.errors import CrystalError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VECTOR_COMPONENT_BYTES = 2
"""Size of one number of a stored vector: IEEE 754 half precision, little-endian."""


class EmbeddingError(CrystalError):
    """A text could not be turned into vectors. Nothing was stored; the call may be repeated."""

    exit_code = 1


class ModelDamaged(EmbeddingError):
    """The model's files are missing or are not the shipped ones."""

    exit_code = 8
    hint = "Install memory-crystal again; until then search works by keyword"


class EmbedderClosed(EmbeddingError):
    """The embedder was used after it was closed."""


class EmbedderUnavailable(EmbeddingError):
    """The provider does not answer, or asks to retry later. Temporary.

    ``after``: seconds until the provider accepts a retry. ``paid``: the call may have cost something all the same.
    """

    exit_code = 12
    hint = "See to the provider's server or the network; until it answers, search works by keyword."

    def __init__(
        self, message: str, *, hint: str | None = None, after: float | None = None, paid: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.after = after
        self.paid = paid


class EmbedderDied(EmbedderUnavailable):
    """The model's process ended, or was ended because it was late, before it answered."""


class EmbedderRefused(EmbeddingError):
    """The provider rejects the request: wrong key, unknown model, no credit. Permanent until somebody acts."""

    exit_code = 12
    hint = "`crystal config` shows provider, model and address; `crystal embed status` tries them."


class AnotherModel(EmbedderRefused):
    """The model under this name gives other vectors than those stored. Nothing was mixed."""

    hint = "Bring back the model that made the vault's vectors, or make all anew: `crystal embed migrate --anew` on the Core."


class NoEmbedding(EmbeddingError):
    """This device makes no vectors: by its settings, or because it cannot use the vault's model."""

    exit_code = 12
    hint = "Choose a provider: `crystal config set embedding_provider builtin`."


class Embedder(Protocol):
    """Turns texts into vectors. See the rules at the top of this module."""

    @property
    def identity(self) -> str:
        """Model, quantisation, revision and dimensions as one printable ASCII word.

        Stored beside the vectors. Changes whenever the same text could give other vectors.
        """
        ...

    @property
    def dimensions(self) -> int:
        """Numbers in a vector."""
        ...

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        """Return for each text, in order, the stored form of its windows' vectors (one or more).

        Raises `EmbeddingError`, and then nothing of the call has an effect.
        """
        ...

    def embed_query(self, text: str) -> "NDArray[np.float32]":
        """Return the query's vector, one-dimensional, float32. Only the first window counts.

        Raises `EmbeddingError`.
        """
        ...
