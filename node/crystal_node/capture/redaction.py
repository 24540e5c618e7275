"""Redaction: credentials are taken out of text before it is stored or sent, and counted by kind.

What counts as one is in ``rules.py`` and ``assignments.py``. Where finds overlap, what they cover together is taken out once,
under the kind of the one that begins first.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from crystal_node.capture.redaction_rules import ASSIGNED_KIND, CONTEXTS, RUN, TOKENS, Rule, assigned_secrets

ROUNDS_MAX = 8
"""Texts without a credential take one round, others two."""

_MARK = "[redacted:"
_ASCII_LOWER = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


@dataclass(frozen=True, slots=True)
class Redacted:
    """``text`` with every find replaced by ``[redacted:kind]``, and how many of each kind there were."""

    text: str
    counts: Counter[str]


def redact(text: str) -> Redacted:
    """Takes the credentials out of ``text``. What was redacted before stays as it is and is not counted again."""
    counts: Counter[str] = Counter()
    for _ in range(ROUNDS_MAX):
        found = _joined(text)
        if not found:
            break
        # Once more: what stood directly at the end of a secret, and began in the middle of a word, now begins behind a mark.
        text = _replaced(text, found)
        counts.update(kind for *_, kind in found)
    return Redacted(text, counts)


def _replaced(text: str, found: list[tuple[int, int, str]]) -> str:
    kept: list[str] = []
    at = 0
    for start, end, kind in found:
        kept += (text[at:start], f"{_MARK}{kind}]")
        at = end
    return "".join([*kept, text[at:]])


def _joined(text: str) -> list[tuple[int, int, str]]:
    """Where credentials are, in order and apart from each other, with their kinds."""
    joined: list[tuple[int, int, str]] = []
    # The sort is stable: of finds that begin at one place the first rule names the kind.
    for start, end, kind in sorted(_spans(text), key=lambda span: span[0]):
        if joined and start < joined[-1][1]:
            first, last, named = joined[-1]
            joined[-1] = first, max(last, end), named
        else:
            joined.append((start, end, kind))
    return joined


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    runs = "\n".join(RUN.findall(text))
    for rule in TOKENS:
        if any(trigger in runs for trigger in rule.triggers) and rule.pattern.search(runs):
            yield from _found(rule, text, text)
    lowered = _in_lower_case(text)
    for rule in CONTEXTS:
        yield from _found(rule, text, lowered)
    for start, end in assigned_secrets(text, lowered):
        if not _harmless(text[start:end]):
            yield start, end, ASSIGNED_KIND


def _found(rule: Rule, text: str, searched: str) -> Iterator[tuple[int, int, str]]:
    for match in rule.pattern.finditer(searched):
        start, end = rule.span(match)
        secret = text[start:end]
        if not _harmless(secret) and rule.accepts(secret):
            yield start, end, rule.kind


def _harmless(secret: str) -> bool:
    """One letter over and over stands in documentation and says nothing; what is redacted need not be again."""
    return len(set(secret[-12:])) <= 2 or _MARK in secret


def _in_lower_case(text: str) -> str:
    """The text in lower case, character for character (a few letters become two when lowered: then ASCII alone is)."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)
