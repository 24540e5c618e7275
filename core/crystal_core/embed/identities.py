"""The identities of models that are not the built-in one, as they are recorded beside the vectors.

::

    ollama/nomic-embed-text/768/w1-1984-1024-128
    provider/model/dimensions/scheme: how a text is put to the model: its windows in bytes, and what is said before it

The scheme's number goes up with any change of what is sent for a text, so that vectors of two ways are never compared. A
model's name may have slashes itself. The built-in model's identity has another shape and is made in `builtin`.
"""

import re
from dataclasses import dataclass

from crystal_core.embed.port import EmbeddingError

IDENTITY_CHARS_MAX = 200
"""As long as the log lets it be."""
DIMENSIONS_MAX = 8192
REMOTE_PROVIDERS = ("ollama", "openai", "google", "sentence-transformers")

_MODEL = re.compile(r"[!-~]{1,120}")


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """See the module."""

    provider: str
    model: str
    dimensions: int
    scheme: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}/{self.dimensions}/{self.scheme}"


def checked_model(name: str) -> str:
    """A model's name that can stand in an identity. Raises EmbeddingError."""
    if _MODEL.fullmatch(name) is None:
        raise EmbeddingError("the name of an embedding model is 1 to 120 plain characters without spaces")
    return name


def parse_identity(text: str) -> ModelIdentity | None:
    """The parts of such an identity; None for the built-in model's and for anything else."""
    provider, _, rest = text.partition("/")
    model, _, tail = rest.rpartition("/")
    model, _, dimensions = model.rpartition("/")
    if provider not in REMOTE_PROVIDERS or not model or not tail or not dimensions.isdecimal():
        return None
    number = int(dimensions[:6])
    return ModelIdentity(provider, model, number, tail) if 0 < number <= DIMENSIONS_MAX else None
