"""Redaction: credentials are removed from text before it is stored or sent, and counted by kind.

``redaction_rules`` says what counts as one. Overlapping matches are removed together, under the kind of the first.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from crystal_node.capture.redaction_rules import ASSIGNED_KIND, CONTEXTS, RUN, TOKENS, Rule, assigned_secrets

ROUNDS_MAX = 8
"""A text without credentials takes one round, others usually two."""

_MARK = "[redacted:"
_ASCII_LOWER = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


@dataclass(frozen=True, slots=True)
class Redacted:
    """``text`` with every match replaced by ``[redacted:kind]``, and the number of matches by kind."""

    text: str
    counts: Counter[str]


def redact(text: str) -> Redacted:
    """Removes the credentials from ``text``. What was redacted before is not counted again."""
    counts: Counter[str] = Counter()
    for _ in range(ROUNDS_MAX):
        found = _joined(text)
        if not found:
            break
        # Once more: what directly followed a secret, within a word, now begins after a mark.
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
    """Spans and kinds of credentials, in order and without overlap."""
    joined: list[tuple[int, int, str]] = []
    # The sort is stable: of matches that begin at one place the first rule names the kind.
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
    """Whether it is one letter repeated, as in documentation, or redacted already."""
    return len(set(secret[-12:])) <= 2 or _MARK in secret


def _in_lower_case(text: str) -> str:
    """The text in lower case, of the same length: if a letter would become two, only ASCII is lowered."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)
