"""The rules themselves: each one is used, and sees what it needs."""

import re
import time

from crystal_node.capture.redaction import redact
from crystal_node.capture.redaction_rules import CONTEXTS, RUN, TOKENS
from tests.node.capture import redaction_cases as cases


def test_every_rule_for_tokens_is_tried_and_its_run_is_found() -> None:
    found = {kind for _, kind in cases.TOKENS} | {kind for *_, kind in cases.PARTLY}
    assert {rule.kind for rule in TOKENS} <= found
    assert {rule.kind for rule in CONTEXTS} <= found | {"private-key", "assigned-secret"}
    for secret, _ in cases.TOKENS:
        assert RUN.fullmatch(secret), "a token is one run, or rules for tokens would never see it"


def test_every_prefix_is_a_trigger_of_its_rule() -> None:
    for rule in TOKENS:
        assert rule.triggers
        assert all(trigger.strip() for trigger in rule.triggers)
    for rule in CONTEXTS:
        assert not rule.triggers
        assert not re.search(r"[A-Z]", re.sub(r"\\[A-Z]|\(\?P<|\\Z", "", rule.pattern.pattern)), (
            "they see lower case"
        )


def test_usual_text_is_fast() -> None:
    """Five megabytes a second were asked for, and there is a margin for slow machines: this is the order of magnitude."""
    text = (
        "\n".join(cases.HARMLESS) + "\n" + "Plain words about the tide gauge on the old pier. " * 100
    ) * 10
    start = time.process_time()
    for _ in range(10):
        redact(text)
    assert len(text) * 10 / (time.process_time() - start) > 1_000_000
