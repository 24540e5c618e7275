"""Port: a language model that answers one prompt.

Rules for every implementation, checked by the contract suite in `tests/contract`:

- ``complete`` makes one request and returns the whole answer. It retries only where nothing can have been paid: the server
  reported "too many requests" or a failure, or was not reached. A lost answer is an error with ``paid`` set.
- ``tokens_max`` bounds the answer, ``seconds_max`` the whole call with its retries. A cancelled call leaves nothing running.
- ``system`` is trusted, ``data`` is not: nothing in ``data`` may reach a shell, a path or an option.
- A key appears in no ``repr``, message or log.
"""

from dataclasses import dataclass
from typing import Protocol

from crystal_core.llm.errors import (
    Declined,
    LlmError,
    MalformedAnswer,
    RateLimited,
    Refused,
    TooLong,
    Unavailable,
)

__all__ = [
    "Completion",
    "Declined",
    "Llm",
    "LlmError",
    "LlmIdentity",
    "MalformedAnswer",
    "Prompt",
    "RateLimited",
    "Refused",
    "TooLong",
    "Unavailable",
    "bytes_of",
    "tokens_bound",
    "tokens_expected",
]

BYTES_PER_TOKEN = 3.6
"""For prose in a language with spaces and current tokenizers."""


@dataclass(frozen=True, slots=True)
class LlmIdentity:
    """A model and what is known about it.

    ``host``: where the text goes; "" if it stays in this process. ``context_tokens``: limit of a request and its answer
    together, if known. ``overhead_tokens``: maximum that the provider adds to a prompt.
    """

    provider: str
    model: str
    host: str
    local: bool
    context_tokens: int = 16_384
    overhead_tokens: int = 64

    def __str__(self) -> str:
        return f"{self.model} ({self.provider})"


@dataclass(frozen=True, slots=True)
class Prompt:
    """``system``: trusted instructions. ``data``: untrusted content."""

    system: str
    data: str


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer. ``cut``: ended by ``tokens_max``. Tokens are the server's count; an upper bound if ``counted`` is False."""

    text: str
    tokens_in: int
    tokens_out: int
    model: str
    cut: bool = False
    counted: bool = True


class Llm(Protocol):
    """A language model."""

    @property
    def identity(self) -> LlmIdentity: ...

    async def complete(self, prompt: Prompt, *, tokens_max: int, seconds_max: float) -> Completion:
        """Raises LlmError."""
        ...

    async def aclose(self) -> None:
        """Close connections. Idempotent."""
        ...


def bytes_of(prompt: Prompt) -> int:
    return len(prompt.system.encode("utf-8", "replace")) + len(prompt.data.encode("utf-8", "replace"))


def tokens_bound(identity: LlmIdentity, prompt: Prompt) -> int:
    """Return an upper bound of the prompt's tokens: tokenizers that fall back to bytes make at most one per byte."""
    return bytes_of(prompt) + identity.overhead_tokens


def tokens_expected(size: int) -> int:
    """Estimate the tokens in ``size`` bytes of text. Not for limits."""
    return -(-size * 10 // round(BYTES_PER_TOKEN * 10))
