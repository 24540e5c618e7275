"""Identities of models other than the built-in one, as recorded beside their vectors.

::

    ollama/nomic-embed-text/768/w1-1984-1024-128
    provider/model/dimensions/scheme: the scheme is how a text is sent to the model, its windows in bytes and its prefix

The scheme's number increases with any change of what is sent for a text, so that vectors of different schemes are never
compared. A model's name may contain slashes. The built-in model's identity has another form, see `builtin`.
"""

import re

from msgspec import Struct

from crystal_core.embed.port import EmbeddingError

IDENTITY_CHARS_MAX = 200
"""The log's limit."""
DIMENSIONS_MAX = 8192
REMOTE_PROVIDERS = ("ollama", "openai", "google", "sentence-transformers", "multilingual")
LOCAL_PROVIDERS = ("ollama", "sentence-transformers", "multilingual")
"""Those whose models run on the person's own machines and cost nothing."""

_MODEL = re.compile(r"[!-~]{1,120}")


class ModelIdentity(Struct, frozen=True):
    """The parts of an identity, see the module."""

    provider: str
    model: str
    dimensions: int
    scheme: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}/{self.dimensions}/{self.scheme}"


def checked_model(name: str) -> str:
    """Return the model's name if an identity can contain it. Raises EmbeddingError."""
    if _MODEL.fullmatch(name) is None:
        raise EmbeddingError("the name of an embedding model is 1 to 120 plain characters without spaces")
    return name


def parse_identity(text: str) -> ModelIdentity | None:
    """Parse such an identity; None for the built-in model's and for anything else."""
    provider, _, rest = text.partition("/")
    model, _, tail = rest.rpartition("/")
    model, _, dimensions = model.rpartition("/")
    if provider not in REMOTE_PROVIDERS or not model or not tail or not dimensions.isdecimal():
        return None
    number = int(dimensions[:6])
    return ModelIdentity(provider, model, number, tail) if 0 < number <= DIMENSIONS_MAX else None
