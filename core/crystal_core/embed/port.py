"""The port to whatever turns text into vectors, and the errors that it raises.

Rules that every implementation holds:

- A text gives at least one window, an empty text too. A long text gives several, in reading order, so that
  what stands at its end is found by meaning as well as what stands at its beginning.
- A vector is L2-normalised: the dot product of two of them is their cosine. Stored vectors are
  `dimensions` little-endian float16 numbers, `2 * dimensions` bytes; a query's vector is float32.
- The same text gives the same bytes, whatever stands beside it in the call and whoever asks, as long as
  `identity`, the machine and the installed libraries are the same. Elsewhere, and from a remote provider, the
  same `identity` gives vectors that are as good as equal. Vectors of different identities are never compared.
- Nothing is written, logged or sent that holds the text, unless the provider is a remote one by choice.
- Calls may come from several threads; an implementation serialises them itself where it has to.

Making an embedder is cheap: models and libraries are loaded at the first call that needs them.
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
    """The files of the model are missing or are not the ones that were shipped."""

    exit_code = 8
    hint = "Install memory-crystal again; until then search works by keyword"


class EmbedderClosed(EmbeddingError):
    """The embedder was closed for good, and then asked for vectors."""


class EmbedderUnavailable(EmbeddingError):
    """The provider does not answer, or wants to be asked later. It may pass.

    ``after``: so many seconds the provider wants to be left alone. ``paid``: it may have cost something all the same.
    """

    exit_code = 12
    hint = "See to the provider's server or the network; until it answers, search works by keyword."

    def __init__(
        self, message: str, *, hint: str | None = None, after: float | None = None, paid: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.after = after
        self.paid = paid


class EmbedderRefused(EmbeddingError):
    """The provider answers and does not want this: a wrong key, no such model, no money. It won't pass by itself."""

    exit_code = 12
    hint = "`crystal config` shows provider, model and address; `crystal embed status` tries them."


class AnotherModel(EmbedderRefused):
    """What answers under the model's name gives other vectors than those that are kept. Nothing was mixed."""

    hint = "Bring back the model that made the vault's vectors, or make all anew: `crystal embed migrate --anew` on the Core."


class NoEmbedding(EmbeddingError):
    """This device makes no vectors, by its settings or because it cannot have those of the vault's model."""

    exit_code = 12
    hint = "Choose a provider: `crystal config set embedding_provider builtin`."


class Embedder(Protocol):
    """Turns texts into vectors. See the rules at the top of this module."""

    @property
    def identity(self) -> str:
        """The model, its quantisation, its revision and its dimensions, as one printable ASCII word.

        Stored beside the vectors. It changes whenever the same text could give other vectors.
        """
        ...

    @property
    def dimensions(self) -> int:
        """Numbers in a vector."""
        ...

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        """Return for each text, in the order given, the stored form of its windows' vectors (one or more).

        Raises `EmbeddingError`, and then nothing of the call has an effect.
        """
        ...

    def embed_query(self, text: str) -> "NDArray[np.float32]":
        """Return the vector to search with, one dimension, float32. Only the first window counts.

        Raises `EmbeddingError`.
        """
        ...
