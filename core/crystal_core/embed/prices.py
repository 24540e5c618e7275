"""What is known of providers' embedding models, as data: dimensions, how much they read at once, list prices, what they want to
be told before a text.

Prices are US dollars for a million tokens and change without notice, so a sum is always called an estimate and given with the
date of this table. A model that is not in it has no known price, which is said; a model on the person's own machine costs
nothing. A change of what is put before a text changes its vectors: the scheme's version
(``crystal_node.models.embedding.windows``)
must go up with it.
"""

from dataclasses import dataclass

PRICES_OF = "2025-11"
"""The month of the list prices below, to the best of our knowledge."""

BYTES_PER_TOKEN = 3.6
"""Of prose in a language with spaces."""
OVERLAP_FACTOR = 1.08
"""Neighbouring windows of long texts share something, which is paid twice."""

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class KnownModel:
    """``tokens`` is what it reads at once; ``price`` is None where it runs on the person's own machine."""

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
}
"""Each provider's model where none is named."""


def known_model(provider: str, model: str) -> KnownModel | None:
    """What is known of it. A tag (``nomic-embed-text:latest``) or an owner (``sentence-transformers/…``) changes nothing."""
    names = {model, model.partition(":")[0], model.removeprefix("sentence-transformers/")}
    return next((known for known in TABLE if known.provider == provider and known.model in names), None)


def dollars(price: float, size: int) -> float:
    """What so many bytes of text cost, more or less."""
    return tokens_expected(size) * price / _MILLION


def tokens_expected(size: int) -> int:
    """How many tokens so many bytes of text are with the windows' overlap, more or less: for estimates, never for a limit."""
    return round(size * OVERLAP_FACTOR / BYTES_PER_TOKEN)
