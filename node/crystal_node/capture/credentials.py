"""Credentials in a text, and where they stand.

What counts as one: makers' tokens (``maker_tokens``), what stands where a credential stands (``redaction_rules``), what is
assigned to a telling name (``assigned_secrets``), and Crystal's own secrets (``own_secrets``). All of these look at the text as
it stands, and at its lines with escapes as a person would read them (``escapes``); what is found is found in the original.
Overlapping matches are removed together, under the kind of the first.

A text's distinct words are gathered once. A rule is tried only if its word occurs among them, which is what makes this fast.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator

from crystal_node.capture.assigned_secrets import ASSIGNED_KIND, assigned_secrets
from crystal_node.capture.escapes import view
from crystal_node.capture.maker_tokens import RULES_BY_START, SHAPES, STARTS, TOKEN_CHARS_MIN, TokenRule
from crystal_node.capture.own_secrets import own_secrets
from crystal_node.capture.redaction_rules import (
    BEFORE_CHARS,
    CONTEXT_WORDS,
    CONTEXTS_BY_WORD,
    WORDS_WITHOUT_COMMANDS,
    ContextRule,
    addressed_secrets,
    keys_without_start,
    url_parameters,
)

LONG_MATCH_CHARS = 60
"""What a longer match took is not searched again even if it was no secret: otherwise time would grow with its square."""

MARK = re.compile(r"\[redacted:[a-z0-9-]{1,40}\]")
"""What stands where something was redacted."""

MARK_START = "[redacted:"
_tokenlike = re.compile(r"[0-9]|[A-Z]{16}|[_/-][A-Za-z_/-]{15}").search
_OPTION = re.compile(r" -{1,2}[a-z]")
_ASCII_LOWER = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def credentials(text: str) -> list[tuple[int, int, str]]:
    """Spans and kinds of credentials, in order and without overlap."""
    spans = [*_spans(text)]
    undone = view(text)
    if undone is not None:
        for start, end, kind in _spans(undone.text):
            first, last = undone.span(start, end)
            if MARK_START not in text[first:last]:
                spans.append((first, last, kind))
    if MARK_START in text:
        spans = _outside_marks(text, spans)
    joined: list[tuple[int, int, str]] = []
    # The sort is stable: of matches that begin at one place the first rule names the kind.
    for start, end, kind in sorted(spans, key=lambda span: span[0]):
        if joined and start < joined[-1][1]:
            first, last, named = joined[-1]
            joined[-1] = first, max(last, end), named
        else:
            joined.append((start, end, kind))
    return joined


def _outside_marks(text: str, spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """The spans that do not begin within a mark: what stands there was found before."""
    marks = [match.span() for match in MARK.finditer(text)]
    begins = [start for start, _ in marks]
    kept: list[tuple[int, int, str]] = []
    for span in spans:
        at = bisect_right(begins, span[0]) - 1
        if at < 0 or span[0] >= marks[at][1]:
            kept.append(span)
    return kept


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    distinct = set(text.split())
    words = "\n".join(distinct)
    long_words = "\n".join([word for word in distinct if len(word) >= TOKEN_CHARS_MIN and _tokenlike(word)])
    for start, end, kind in (*_token_spans(text, long_words), *_context_spans(text, words)):
        if not _harmless(text[start:end]):
            yield start, end, kind
    yield from own_secrets(text, words, long_words)


def _token_spans(text: str, long_words: str) -> Iterator[tuple[int, int, str]]:
    if not long_words:
        return
    tried: dict[TokenRule, None] = {}
    for start in dict.fromkeys(STARTS.findall(long_words)):
        for rule in RULES_BY_START.get(start, ()):
            tried[rule] = None
    for rule in tried:
        for word in rule.words:
            if word in long_words:
                yield from _found_at(rule, word, text, text)
    for rule in SHAPES:
        if any(word in long_words for word in rule.words) and rule.pattern.search(long_words):
            for match in rule.pattern.finditer(text):
                start_of, end = rule.span(match)
                if rule.accepts(text[start_of:end]):
                    yield start_of, end, rule.kind


def _context_spans(text: str, words: str) -> Iterator[tuple[int, int, str]]:
    lowered = _in_lower_case(text)
    lowered_words = _in_lower_case(words)
    commands = " -" in lowered and _OPTION.search(lowered) is not None
    for word in CONTEXT_WORDS if commands else WORDS_WITHOUT_COMMANDS:
        if word in lowered_words:
            for rule in CONTEXTS_BY_WORD[word]:
                yield from (
                    _before(rule, word, text, lowered)
                    if rule.before
                    else _found_at(rule, word, text, lowered)
                )
    if "://" in lowered_words:
        yield from addressed_secrets(text, lowered)
    if "=" in lowered_words:
        yield from url_parameters(text, lowered, lowered_words)
    if "-----" in lowered_words:
        yield from keys_without_start(text, lowered)
    for start, end in assigned_secrets(text, lowered, lowered_words):
        yield start, end, ASSIGNED_KIND


def _found_at(
    rule: TokenRule | ContextRule, word: str, text: str, searched: str
) -> Iterator[tuple[int, int, str]]:
    """What the rule finds at each place where its word stands. What a match took is not searched again."""
    match_at = rule.pattern.match
    at = searched.find(word)
    while at >= 0:
        match = match_at(searched, at)
        after = at + 1
        if match is not None:
            start, end = rule.span(match)
            accepted = rule.accepts(text[start:end])
            if accepted:
                yield start, end, rule.kind
            if accepted or match.end() - at > LONG_MATCH_CHARS:
                after = max(after, match.end())
        at = searched.find(word, after)


def _before(rule: ContextRule, word: str, text: str, lowered: str) -> Iterator[tuple[int, int, str]]:
    at = lowered.find(word)
    while at >= 0:
        match = rule.pattern.search(lowered, max(0, at - BEFORE_CHARS), at)
        if match is not None:
            start, end = rule.span(match)
            if rule.accepts(text[start:end]):
                yield start, end, rule.kind
        at = lowered.find(word, at + len(word))


def _harmless(secret: str) -> bool:
    """Whether it is one letter repeated, as in documentation, or redacted already."""
    return len(set(secret[-12:])) <= 2 or MARK_START in secret


def _in_lower_case(text: str) -> str:
    """The text in lower case, of the same length: if a letter would become two, only ASCII is lowered."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)
