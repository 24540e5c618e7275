"""The rules themselves: each one is used, and sees what it needs."""

import re
import time

from crystal_node.capture.assigned_secrets import WORDS
from crystal_node.capture.maker_tokens import PREFIXED, RULES_BY_START, SHAPES, STARTS, TOKEN_CHARS_MIN
from crystal_node.capture.redaction import redact
from crystal_node.capture.redaction_rules import CONTEXTS, CONTEXTS_BY_WORD
from tests.node.capture import redaction_cases as cases
from tests.node.capture.credentials.corpus import read_cases


def test_every_kind_of_rule_finds_something() -> None:
    """Nothing is kept that finds none of all the examples."""
    texts = [secret for secret, _ in cases.TOKENS] + [text for text, *_ in cases.PARTLY] + cases.KEY_FILES
    texts += [case.text for case in read_cases("seen.txt") + read_cases("held_back.txt")]
    found = {kind for text in texts for kind in redact(text).counts}
    assert {rule.kind for rule in CONTEXTS} - found <= {"crystal-invite", "crystal-token"}
    assert {rule.kind for rule in PREFIXED + SHAPES} - found <= {"honeycomb-key", "crystal-token"}


def test_a_token_is_long_enough_to_be_looked_at_and_its_rule_is_found_by_its_start() -> None:
    for secret, _ in cases.TOKENS:
        assert len(secret) >= TOKEN_CHARS_MIN
    for rule in PREFIXED:
        for word in rule.words:
            assert rule in RULES_BY_START[word[:2]]
            assert STARTS.match(word), "a prefix begins with a letter or digit, and has two characters"


def test_every_rule_begins_with_its_words() -> None:
    for rule in PREFIXED + SHAPES:
        assert rule.words
        assert all(word.strip() for word in rule.words)
    for context in CONTEXTS:
        assert all(context in CONTEXTS_BY_WORD[word] for word in context.words)
        assert not re.search(r"[A-Z]", re.sub(r"\\[A-Z]|\(\?P[<=]", "", context.pattern.pattern)), (
            "they see lower case"
        )
    for word in (*CONTEXTS_BY_WORD, *WORDS):
        assert word == word.lower()


def test_usual_text_is_fast() -> None:
    """Twenty megabytes a second were asked for on a machine that does nothing else: this is the order of magnitude."""
    text = (
        "\n".join(cases.HARMLESS) + "\n" + "Plain words about the tide gauge on the old pier. " * 100
    ) * 10
    start = time.process_time()
    for _ in range(10):
        redact(text)
    assert len(text) * 10 / (time.process_time() - start) > 2_000_000
