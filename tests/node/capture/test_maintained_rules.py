"""Our rules against those of detect-secrets: what the maintained set knows, ours find, too, and a new detector is noticed."""

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from random import Random
from string import ascii_letters, digits
from typing import Any, cast

import pytest

from crystal_node.capture.redaction import redact
from tests.node.capture import redaction_cases as cases

plugins = pytest.importorskip("detect_secrets.plugins", reason="the set to compare with is not installed")
RegexBasedDetector: Any = importlib.import_module("detect_secrets.plugins.base").RegexBasedDetector

COVERED = frozenset(
    {
        *("AWSKeyDetector", "AzureStorageKeyDetector", "DiscordBotTokenDetector", "GitHubTokenDetector"),
        *(
            "GitLabTokenDetector",
            "JwtTokenDetector",
            "MailchimpDetector",
            "OpenAIDetector",
            "PypiTokenDetector",
        ),
        *(
            "SendGridDetector",
            "SlackDetector",
            "SquareOAuthDetector",
            "StripeDetector",
            "TelegramBotTokenDetector",
        ),
        "TwilioKeyDetector",
    }
)
LEFT_OUT = {
    "ArtifactoryDetector": "any word of ten letters behind AKC would do; ours has the true length",
    "BasicAuthDetector": "ours asks for three characters and no placeholder",
    "CloudantDetector": "a product's name before an assignment; assignments are covered whatever the product",
    "IPPublicDetector": "an address is no credential",
    "IbmCloudIamDetector": "as Cloudant",
    "IbmCosHmacDetector": "as Cloudant",
    "NpmDetector": "takes the rest of the line, whatever it is",
    "PrivateKeyDetector": "finds the first line only; ours takes the key",
    "SoftlayerDetector": "as Cloudant",
}
PATTERNS_LEFT_OUT = frozenset({r"AC[a-z0-9]{32}"})
"""Twilio's account number: it is printed on every invoice."""


def _detectors() -> Iterator[Any]:
    for module in pkgutil.iter_modules(plugins.__path__, "detect_secrets.plugins."):
        for thing in vars(importlib.import_module(module.name)).values():
            known = isinstance(thing, type) and issubclass(thing, RegexBasedDetector)
            if known and thing is not RegexBasedDetector and thing.__module__ == module.name:
                yield thing


def _patterns() -> list[re.Pattern[str]]:
    found: list[re.Pattern[str]] = []
    for detector in _detectors():
        patterns = cast("Iterable[re.Pattern[str]]", detector().denylist)
        found.extend(pattern for pattern in patterns if detector.__name__ in COVERED)
    return [pattern for pattern in found if pattern.pattern not in PATTERNS_LEFT_OUT]


def test_every_detector_of_the_maintained_set_is_covered_or_left_out_for_a_reason() -> None:
    """A new version of detect-secrets may bring more: then somebody has to decide."""
    assert {detector.__name__ for detector in _detectors()} == COVERED | set(LEFT_OUT)


B64 = cases.B62 + cases.B62
SEEDS = [
    *(secret for secret, _ in cases.TOKENS),
    *(text for text, *_ in cases.PARTLY),
    f"aws_key = '{B64[:40]}'",
    f"AccountKey={B64[:86]}==",
    *(f"{prefix}{B64[:20]}" for prefix in ("glpat-", "GR1348941", "glcbt-")),
    *(
        f"{prefix}{B64[: int(length)]}"
        for prefix, length in (("glimt-", 25), ("glptt-", 40), ("glagent-", 50), ("gloas-", 64))
    ),
    f"sk-{B64[:20]}T3BlbkFJ{B64[20:40]}",
    f"pypi-AgENdGVzdC5weXBpLm9yZw{B64[:80]}",
    f"https://hooks.slack.com/services/T{B64[:8]}/B{B64[8:16]}/{B64[16:40]}",
    f"xoxp-123456789012-123456789012-{cases.HEX[:32]}",
    f"SK{cases.HEX[:32]}",
]
STEPS = 600


@pytest.mark.parametrize("pattern", _patterns(), ids=lambda pattern: pattern.pattern[:40])
def test_what_the_maintained_set_finds_we_find(pattern: re.Pattern[str]) -> None:
    """A random walk through the strings that the maintained pattern finds, from one that we have as an example."""
    # Tokens are made with the case that their maker writes; XOXB- and HTTPS:// in capitals are nobody's.
    pattern = re.compile(pattern.pattern, pattern.flags & ~re.IGNORECASE)
    start = next((seed for seed in SEEDS if pattern.search(seed)), None)
    assert start is not None, "there is an example of each pattern"
    walk = Random(pattern.pattern)
    secret = start
    for _ in range(STEPS):
        at = walk.randrange(len(secret))
        changed = secret[:at] + walk.choice(ascii_letters + digits) + secret[at + 1 :]
        if (found := pattern.search(changed)) and changed.isascii():
            secret = changed
            assert redact(f"use {found[0]} now").counts or redact(f"use {changed} now").counts, changed
