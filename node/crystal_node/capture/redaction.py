"""Redaction: credentials are removed from text before it is stored or sent, and counted by kind.

Overlapping matches are removed together, under the kind of the first. Short texts in which nothing was found are remembered
for a while: what tools are given and answer (paths, commands, "done") is the same again and again. The rules are loaded by the
first text: they take 20 ms, and commands such as `crystal status` know the tools but read no text.
"""

from collections import Counter
from dataclasses import dataclass

ROUNDS_MAX = 8
"""A text without credentials takes one round, others usually two."""
CLEAN_CHARS_MAX = 256
CLEAN_TEXTS_MAX = 4096
_clean: set[str] = set()
"""Texts of at most ``CLEAN_CHARS_MAX`` without credentials, the latest ones. Never one with a credential."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """``text`` with every match replaced by ``[redacted:kind]``, and the number of matches by kind."""

    text: str
    counts: Counter[str]


def redact(text: str) -> Redacted:
    """Removes the credentials from ``text``. What was redacted before is not counted again."""
    counts: Counter[str] = Counter()
    if text in _clean:
        return Redacted(text, counts)
    from crystal_node.capture.credentials import MARK_START, credentials  # lazy: see above

    for _ in range(ROUNDS_MAX):
        found = credentials(text)
        if not found:
            break
        # Once more: what directly followed a secret, within a word, now begins after a mark.
        kept: list[str] = []
        at = 0
        for start, end, kind in found:
            kept += (text[at:start], f"{MARK_START}{kind}]")
            at = end
        text = "".join([*kept, text[at:]])
        counts.update(kind for *_, kind in found)
    if not counts and len(text) <= CLEAN_CHARS_MAX:
        if len(_clean) >= CLEAN_TEXTS_MAX:
            _clean.clear()
        _clean.add(text)
    return Redacted(text, counts)
