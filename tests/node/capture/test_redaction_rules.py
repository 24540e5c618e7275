"""The rules themselves: each one is used, none can be made slow, and none of a maintained set's finds gets past them."""

import importlib
import pkgutil
import re
import time
from collections.abc import Iterable, Iterator
from random import Random
from string import ascii_letters, digits
from typing import cast

import detect_secrets.plugins
import pytest
from detect_secrets.plugins.base import RegexBasedDetector

from crystal_node.capture.redact import redact
from crystal_node.capture.rules import CONTEXTS, RUN, TOKENS
from tests.node.capture import test_redaction as cases

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


def _detectors() -> Iterator[type[RegexBasedDetector]]:
    for module in pkgutil.iter_modules(detect_secrets.plugins.__path__, "detect_secrets.plugins."):
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


HOSTILE = [
    *(
        "eyJ",
        "eyJaaaaaaaa.",
        "://",
        "a://b:",
        "://a:b",
        "_authToken=",
        "xox",
        "xoxb-",
        "xoxb-1-",
        "aws'",
        "aws",
        "sk-",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAA\n",
        "-----",
        "-",
        "\n",
        "\x00",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----\nProc-Type:",
        " \\n\"'",
        "private-lines: 3 ",
        "password='",
        "password=",
        "password: ",
    ),
    *(
        "pass",
        "passpwd",
        "A",
        "KEY",
        "api_key",
        "api_key=",
        "A_",
        "SECRET",
        "secret]\"'",
        'token="',
        "token:str=",
        "key ",
    ),
    *(
        "bearer ",
        "authorization:",
        "authorization: bearer ",
        "crystal-recovery ",
        "password is ",
        "--password",
        "--a-",
    ),
    *(
        ".",
        ":1234567890",
        ":",
        "-us",
        "SG.",
        "SG.aaaaaaaaaaaaaaaaaaaa",
        "MNO..",
        "M",
        "hvs.",
        "dp.st.",
        "pat",
        "a.",
    ),
    *(
        "patAAAAAAAAAAAAAA.",
        "cio",
        "SK",
        "SK0123456789abcdef",
        "glpat-aaaaaaaaaaaaaaaaaaaaaaaa.",
        "mc1:",
        "MC2:AAAA",
    ),
    *(
        "0123456789abcdef0123456789abcdef.",
        "curl -u ",
        "curl ",
        "curl",
        "login x ",
        "login password ",
        "\\",
        '"',
        "'a'",
    ),
    *(
        "?a",
        "?key=",
        "&token=",
        "?aaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "hooks.slack.com/",
        "discord.com/api/webhooks/1/",
        "=",
    ),
    *("ATATT3", "AccountKey=", "İ", "İpassword='x1x1x1x1'", "aA1", "[redacted:jwt]", "secret=[redacted:"),
]
HOSTILE_CHARS = 60_000


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """60 KB in half a second is a hundredth of the usual speed; a quadratic pattern takes minutes on this."""
    repeated = unit * (HOSTILE_CHARS // len(unit) + 1)
    for end in ("", "password='x", "A" * 50, "=1a2b3c4d5e6f", "-----END", "@"):
        start = time.process_time()
        redact(repeated + end)
        assert time.process_time() - start < 0.5


def test_usual_text_is_fast() -> None:
    """Five megabytes a second were asked for, and there is a margin for slow machines: this is the order of magnitude."""
    text = (
        "\n".join(cases.HARMLESS) + "\n" + "Plain words about the tide gauge on the old pier. " * 100
    ) * 10
    start = time.process_time()
    for _ in range(10):
        redact(text)
    assert len(text) * 10 / (time.process_time() - start) > 1_000_000
