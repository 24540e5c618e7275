"""Estimate of a run's cost before it begins. Only the budget is binding."""

from dataclasses import dataclass

from crystal_core.llm.port import LlmIdentity, tokens_expected
from crystal_core.llm.prices import PRICES_OF, price_of
from crystal_core.weaver.answers import (
    DOCUMENT_INPUT_BYTES,
    FACTS_TOKENS,
    JOURNAL_TOKENS,
    REFLECTION_TOKENS,
)

_PROMPT_TOKENS = 700
_DOCUMENTS = 3


@dataclass(frozen=True, slots=True)
class Estimate:
    """``dollars``: by the list prices of ``prices_of``; None if the price is unknown."""

    sessions: int
    pieces: int
    size: int
    batches: int
    calls: int
    tokens_in: int
    tokens_out: int
    dollars: float | None
    prices_of: str = PRICES_OF

    def document(self) -> dict[str, object]:
        return {
            "sessions": self.sessions,
            "pieces": self.pieces,
            "bytes": self.size,
            "batches": self.batches,
            "calls": self.calls,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "dollars": None if self.dollars is None else round(self.dollars, 4),
            "prices_of": self.prices_of,
        }


def estimated(sessions: int, pieces: int, size: int, batches: int, identity: LlmIdentity | None) -> Estimate:
    """Estimate a run over this much input. Without a model it makes no calls and costs nothing."""
    if identity is None or not batches:
        return Estimate(sessions, pieces, size, batches, 0, 0, 0, 0.0)
    reflection, journal, facts = (share // 2 for share in (REFLECTION_TOKENS, JOURNAL_TOKENS, FACTS_TOKENS))
    calls = batches * 3 + _DOCUMENTS
    tokens_in = tokens_expected(size) + calls * _PROMPT_TOKENS + batches * (2 * reflection + journal)
    tokens_in += _DOCUMENTS * tokens_expected(DOCUMENT_INPUT_BYTES)
    tokens_out = batches * (reflection + journal + facts) + _DOCUMENTS * JOURNAL_TOKENS
    price = price_of(identity.provider, identity.model, local=identity.local)
    dollars = None if price is None else price.dollars(tokens_in, tokens_out)
    return Estimate(sessions, pieces, size, batches, calls, tokens_in, tokens_out, dollars)
