"""The port: a language model that answers one prompt.

Rules for every implementation, held by the contract suite in `tests/contract`:

- ``complete`` makes one request and gives the whole answer. It is tried again only where nothing can have been paid: the
  server said "too many" or "failing", or nobody was reached. An answer that got lost is an error with ``paid`` set.
- ``tokens_max`` bounds the answer, ``seconds_max`` the whole call with its waiting. Cancelled, it leaves nothing running.
- ``system`` is ours, ``data`` is not: nothing in ``data`` may reach a shell, a path or an option.
- A key is in no ``repr``, message or log.
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
"""Of prose in a language with spaces, as today's tokenizers cut it."""


@dataclass(frozen=True, slots=True)
class LlmIdentity:
    """Which model, and what is known of it.

    ``host`` is where the text goes; "" when it stays in this process. ``context_tokens``: what a request and its answer may
    have together, as far as it is known. ``overhead_tokens``: what the provider adds to a prompt at most.
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
    """``system``: what is to be done, in our words. ``data``: what it is to be done with, in anybody's."""

    system: str
    data: str


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer. ``cut``: it ended because of ``tokens_max``. Tokens are the server's count, or ``counted`` is False and they
    are the most that it can have been."""

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
        """Lets go of connections. Idempotent."""
        ...


def bytes_of(prompt: Prompt) -> int:
    return len(prompt.system.encode("utf-8", "replace")) + len(prompt.data.encode("utf-8", "replace"))


def tokens_bound(identity: LlmIdentity, prompt: Prompt) -> int:
    """More tokens than the prompt can be: tokenizers that fall back to bytes make at most one of each byte."""
    return bytes_of(prompt) + identity.overhead_tokens


def tokens_expected(size: int) -> int:
    """How many tokens so many bytes of text are, more or less: for estimates, never for a limit."""
    return -(-size * 10 // round(BYTES_PER_TOKEN * 10))
