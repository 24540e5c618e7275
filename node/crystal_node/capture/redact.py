"""Redaction: credentials are taken out of text before it is stored or sent, and counted by kind.

The patterns of known token formats come from ``detect-secrets``, a maintained rule set, where its patterns are bounded;
a few of its patterns take quadratic time on hostile text, and some formats are not in it: those are written here, bounded.
Its entropy and keyword detectors are not used: conversations about code are full of hashes and of the word "password", and
a redaction that eats commit ids makes the memory worthless.

Every rule has a trigger, a plain substring that all its matches contain: text without it costs one search, no pattern.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import cast

_Pattern = re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Rule:
    """``triggers``: at least one of them is part of every match. ``group``: what is replaced, 0 for all of the match."""

    kind: str
    triggers: tuple[str, ...]
    pattern: _Pattern
    group: int = 0


@dataclass(frozen=True, slots=True)
class Redacted:
    """``text`` with every find replaced by ``[redacted:kind]``, and how many of each kind there were."""

    text: str
    counts: Counter[str]


def redact(text: str) -> Redacted:
    """Takes the credentials out of ``text``."""
    spans = sorted(_spans(text))
    if not spans:
        return Redacted(text, Counter())
    kept: list[str] = []
    counts: Counter[str] = Counter()
    at = 0
    for start, end, kind in spans:
        if start < at:
            # Overlapping finds are one secret; what sticks out is taken out as well.
            if end > at:
                at = end
            continue
        kept.append(text[at:start])
        kept.append(f"[redacted:{kind}]")
        counts[kind] += 1
        at = end
    kept.append(text[at:])
    return Redacted("".join(kept), counts)


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    lowered: str | None = None
    for rule in _rules():
        if rule.pattern.flags & re.IGNORECASE:
            lowered = text.lower() if lowered is None else lowered
            if not any(trigger in lowered for trigger in rule.triggers):
                continue
        elif not any(trigger in text for trigger in rule.triggers):
            continue
        for match in rule.pattern.finditer(text):
            if match.start(rule.group) >= 0 and not _harmless(match[rule.group]):
                yield match.start(rule.group), match.end(rule.group), rule.kind


def _harmless(secret: str) -> bool:
    """Placeholders: documentation is full of them, and they say nothing."""
    bare = secret.strip("\"'`<>[]{}()$ ")
    return len(set(bare)) <= 2 or secret.startswith("[redacted:") or bare.lower() in _PLACEHOLDERS


_PLACEHOLDERS = frozenset(
    [
        "password",
        "passwd",
        "secret",
        "token",
        "api_key",
        "apikey",
        "changeme",
        "example",
        "your-token",
        "none",
        "null",
    ]
)


def _own(kind: str, triggers: tuple[str, ...], pattern: str, group: int = 0, flags: int = 0) -> Rule:
    return Rule(kind, triggers, re.compile(pattern, flags), group)


_I = re.IGNORECASE
_ASSIGNED = (
    "(?:password|passwd|secret[_-]?key|api[_-]?key|apikey|access[_-]?token|auth[_-]?token"
    "|client[_-]?secret|private[_-]?key)"
)
_OWN_RULES: tuple[Rule, ...] = (
    _own(
        "private-key",
        ("PRIVATE KEY",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?!-----BEGIN)[\s\S]){0,20000}?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    _own("jwt", ("eyJ",), r"\beyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{4,4000}\.[A-Za-z0-9_-]{0,4000}"),
    _own("anthropic-key", ("sk-ant-",), r"\bsk-ant-[A-Za-z0-9_-]{16,300}"),
    _own("openai-key", ("sk-",), r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{32,300}"),
    _own("github-token", ("github_pat_",), r"\bgithub_pat_[A-Za-z0-9_]{22,255}"),
    _own("google-key", ("AIza",), r"\bAIza[A-Za-z0-9_-]{35}"),
    _own(
        "npm-token",
        ("_authToken", "npm_"),
        r"(?:_authToken\s{0,5}=\s{0,5}|\b(?=npm_))([A-Za-z0-9_-]{20,200})",
        1,
    ),
    _own("hugging-face-token", ("hf_",), r"\bhf_[A-Za-z0-9]{30,100}"),
    _own("crystal-code", ("mc1:",), r"\bmc1:[A-Za-z0-9+/_-]{42,44}={0,2}", 0, _I),
    _own("crystal-invite", ("mc2:",), r"\bmc2:[A-Z2-7]{40,2000}", 0, _I),
    _own("crystal-token", (".",), r"\b[0-9a-f]{32}\.[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    _own(
        "authorization",
        ("bearer ", "basic "),
        r"\b(?:authorization\s{0,3}[:=]\s{0,3}[\"']?)(?:bearer|basic)\s{1,3}([A-Za-z0-9._~+/=-]{12,4000})",
        1,
        _I,
    ),
    _own(
        "basic-auth", ("://",), r"[a-z][a-z0-9+.-]{1,20}://[^\s:/?#\[\]@]{1,200}:([^\s:/?#\[\]@]{3,200})@", 1
    ),
    _own(
        "assigned-secret",
        ("passw", "secret", "api", "token", "private"),
        rf"\b[\w-]{{0,40}}{_ASSIGNED}[\"']?\s{{0,3}}(?::=|=>|=|:)\s{{0,3}}[\"']([^\s\"']{{8,400}})[\"']",
        1,
        _I,
    ),
    _own(
        "assigned-secret",
        ("PASSW", "SECRET", "KEY", "TOKEN"),
        r"\b[A-Z0-9_]{0,60}(?:PASSWORD|PASSWD|SECRET|API_KEY|TOKEN|ACCESS_KEY)=(?![\"'$<{(\[])([^\s\"'`;&|)]{8,400})",
        1,
    ),
)


def _maintained() -> Iterator[tuple[str, tuple[str, ...], Callable[[], object]]]:
    """The detectors of ``detect-secrets`` whose patterns are bounded, each with a trigger."""
    from detect_secrets.plugins.aws import AWSKeyDetector
    from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
    from detect_secrets.plugins.discord import DiscordBotTokenDetector
    from detect_secrets.plugins.github_token import GitHubTokenDetector
    from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
    from detect_secrets.plugins.mailchimp import MailchimpDetector
    from detect_secrets.plugins.openai import OpenAIDetector
    from detect_secrets.plugins.pypi_token import PypiTokenDetector
    from detect_secrets.plugins.sendgrid import SendGridDetector
    from detect_secrets.plugins.slack import SlackDetector
    from detect_secrets.plugins.square_oauth import SquareOAuthDetector
    from detect_secrets.plugins.stripe import StripeDetector
    from detect_secrets.plugins.telegram_token import TelegramBotTokenDetector

    yield "aws-key", ("A3T", "ABIA", "ACCA", "AKIA", "ASIA", "aws", "AWS"), AWSKeyDetector
    yield "azure-key", ("AccountKey=",), AzureStorageKeyDetector
    yield "discord-token", (".",), DiscordBotTokenDetector
    yield "github-token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), GitHubTokenDetector
    yield "gitlab-token", ("gl", "GR1348941"), GitLabTokenDetector
    yield "mailchimp-key", ("-us",), MailchimpDetector
    yield "openai-key", ("T3BlbkFJ",), OpenAIDetector
    yield "pypi-token", ("pypi-AgE",), PypiTokenDetector
    yield "sendgrid-key", ("SG.",), SendGridDetector
    yield "slack-token", ("xox", "hooks.slack.com"), SlackDetector
    yield "square-secret", ("sq0csp-",), SquareOAuthDetector
    yield "stripe-key", ("k_live_",), StripeDetector
    yield "telegram-token", (":",), TelegramBotTokenDetector


@cache
def _rules() -> tuple[Rule, ...]:
    from detect_secrets.plugins.base import RegexBasedDetector

    rules = list(_OWN_RULES)
    for kind, triggers, detector in _maintained():
        plugin = detector()
        assert isinstance(plugin, RegexBasedDetector), "these detectors work by patterns"
        patterns = cast("Iterable[_Pattern]", plugin.denylist)
        rules.extend(Rule(kind, triggers, pattern) for pattern in patterns)
    return tuple(rules)
