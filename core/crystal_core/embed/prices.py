"""Table of providers' embedding models: dimensions, context length, list prices, prefixes.

Prices are US dollars per million tokens and change without notice, so a sum is always called an estimate and given with the
date of this table. A model that is not listed has no known price; a local model costs nothing. A change of a prefix changes
the vectors, so the scheme's version (``crystal_node.models.embedding.windows``) must increase with it.
"""

from dataclasses import dataclass

PRICES_OF = "2025-11"
"""The month of the list prices below, to the best of our knowledge."""

BYTES_PER_TOKEN = 3.6
"""For prose in a language with spaces."""
OVERLAP_FACTOR = 1.08
"""Overlap of neighbouring windows in long texts, which is paid twice."""

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class KnownModel:
    """``tokens``: context length; ``price``: None for a local model."""

    provider: str
    model: str
    dimensions: int
    tokens: int
    price: float | None = None
    document: str = ""
    query: str = ""


_SEARCH_PASSAGES = "Represent this sentence for searching relevant passages: "

TABLE: tuple[KnownModel, ...] = (
    KnownModel("ollama", "nomic-embed-text", 768, 2048, None, "search_document: ", "search_query: "),
    KnownModel("ollama", "mxbai-embed-large", 1024, 512, None, "", _SEARCH_PASSAGES),
    KnownModel("ollama", "snowflake-arctic-embed", 1024, 512, None, "", _SEARCH_PASSAGES),
    KnownModel("ollama", "all-minilm", 384, 256),
    KnownModel("ollama", "bge-m3", 1024, 8192),
    KnownModel("openai", "text-embedding-3-small", 1536, 8191, 0.02),
    KnownModel("openai", "text-embedding-3-large", 3072, 8191, 0.13),
    KnownModel("openai", "text-embedding-ada-002", 1536, 8191, 0.10),
    KnownModel("google", "text-embedding-004", 768, 2048, 0.0),
    KnownModel("google", "gemini-embedding-001", 3072, 2048, 0.15),
    KnownModel("sentence-transformers", "all-MiniLM-L6-v2", 384, 256),
    KnownModel("sentence-transformers", "all-mpnet-base-v2", 768, 384),
    KnownModel("sentence-transformers", "BAAI/bge-small-en-v1.5", 384, 512),
)

DEFAULTS = {
    "ollama": "nomic-embed-text",
    "openai": "text-embedding-3-small",
    "google": "text-embedding-004",
    "sentence-transformers": "all-MiniLM-L6-v2",
    "multilingual": "minilm-l6-v2+use-multilingual-v3",
}
"""Each provider's default model."""


def known_model(provider: str, model: str) -> KnownModel | None:
    """Look up a model, ignoring a tag (``nomic-embed-text:latest``) or owner (``sentence-transformers/…``)."""
    names = {model, model.partition(":")[0], model.removeprefix("sentence-transformers/")}
    return next((known for known in TABLE if known.provider == provider and known.model in names), None)


def dollars(price: float, size: int) -> float:
    """Estimate the cost of ``size`` bytes of text."""
    return tokens_expected(size) * price / _MILLION


def tokens_expected(size: int) -> int:
    """Estimate the tokens in ``size`` bytes of text with the windows' overlap. Not for limits."""
    return round(size * OVERLAP_FACTOR / BYTES_PER_TOKEN)
