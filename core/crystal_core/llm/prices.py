"""Table of the providers' list prices, in US dollars per million tokens.

Prices change without notice, so a sum is always called an estimate and given with the date of this table. A model that is
not listed has no known price; a local model costs nothing.
"""

from dataclasses import dataclass

PRICES_OF = "2025-11"
"""The month of the list prices below, to the best of our knowledge."""

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens, in and out."""

    tokens_in: float
    tokens_out: float

    def dollars(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.tokens_in + tokens_out * self.tokens_out) / _MILLION


FREE = Price(0.0, 0.0)

TABLE: tuple[tuple[str, str, Price], ...] = (
    ("openai", "gpt-4.1-nano", Price(0.10, 0.40)),
    ("openai", "gpt-4.1-mini", Price(0.40, 1.60)),
    ("openai", "gpt-4.1", Price(2.00, 8.00)),
    ("openai", "gpt-4o-mini", Price(0.15, 0.60)),
    ("openai", "gpt-4o", Price(2.50, 10.00)),
    ("openai", "gpt-5-nano", Price(0.05, 0.40)),
    ("openai", "gpt-5-mini", Price(0.25, 2.00)),
    ("openai", "gpt-5", Price(1.25, 10.00)),
    ("anthropic", "claude-haiku-4-5", Price(1.00, 5.00)),
    ("anthropic", "claude-sonnet-4-5", Price(3.00, 15.00)),
    ("anthropic", "claude-sonnet-4", Price(3.00, 15.00)),
    ("anthropic", "claude-opus-4-5", Price(5.00, 25.00)),
    ("anthropic", "claude-opus-4-1", Price(15.00, 75.00)),
)
"""Provider, prefix of the model's name, price."""


def price_of(provider: str, model: str, *, local: bool) -> Price | None:
    """Return a model's price; None if unknown. A dated name (``gpt-4.1-mini-2025-04-14``) has its model's price."""
    if local:
        return FREE
    fits = [
        (len(name), price)
        for vendor, name, price in TABLE
        if vendor == provider and (model == name or _dated(model, name))
    ]
    return max(fits, key=lambda fit: fit[0])[1] if fits else None


def _dated(model: str, name: str) -> bool:
    date = model.removeprefix(f"{name}-")
    return date != model and bool(date) and (date == "latest" or date.replace("-", "").isdigit())
