"""Credentials do not survive; hashes, ids and talk about passwords do."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_node.capture.redact import redact

FORTY = "wJalrXUtnFEMIK7MDENGbPxRfiCYzEXAMPLEKEY1"

SECRETS = [
    ("AKIAIOSFODNN7EXAMPLQ", "aws-key"),
    ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "github-token"),
    ("github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz0123456789", "github-token"),
    ("glpat-AbCdEfGhIjKlMnOpQrSt", "gitlab-token"),
    ("sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz", "anthropic-key"),
    ("sk-proj-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789", "openai-key"),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "google-key"),
    ("xoxb-123456789012-abcdefghij", "slack-token"),
    ("sk_live_4eC39HqLyjWDarjtT1zdp7dc", "stripe-key"),
    ("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", "sendgrid-key"),
    ("npm_abcdefghijklmnopqrstuvwxyz0123456789", "npm-token"),
    ("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "hugging-face-token"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c", "jwt"),
    ("mc1:" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789AbCdEfG=", "crystal-code"),
    ("0123456789abcdef0123456789abcdef." + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789AbCdEfG", "crystal-token"),
]

CONTEXTS = [
    (f"AWS_SECRET_ACCESS_KEY={FORTY}", FORTY),
    ('password = "hunter2hunter2"', "hunter2hunter2"),
    ("  apiKey: 'abc123def456'", "abc123def456"),
    ('{"client_secret": "abc123def456"}', "abc123def456"),
    ("Authorization: Bearer abcdef1234567890", "abcdef1234567890"),
    ("-H 'authorization: basic dXNlcjpwYXNzd29yZA=='", "dXNlcjpwYXNzd29yZA"),
    ("postgres://bob:tr0ub4dor@db.example.org/x", "tr0ub4dor"),
    (
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH PRIVATE KEY-----",
        "b3BlbnNzaC1rZXk",
    ),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA the rest was cut off", "MIIEpAIBAAKCAQEA"),
    ("//registry.example.org/:_authToken=0123456789abcdef01234567", "0123456789abcdef01234567"),
]

HARMLESS = [
    "commit 3f2a9c8e7b6d5a4f3e2d1c0b9a8f7e6d5c4b3a29",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "123e4567-e89b-12d3-a456-426614174000",
    "def login(user: str, password: str) -> Token:",
    "the password is checked in constant time, the token is hashed",
    'os.environ["API_KEY"]',
    "SECRET=$FOO TOKEN=${TOKEN} PASSWORD=<yours>",
    'password = "********"',
    "2026-11-21T04:45:14.123Z, 12:30:45",
    "git@example.org:owner/name.git and https://example.org:8443/a@b",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "task-based risk-free disk-abcdefghijklmnopqrstuvwxyzabcdefgh",
]


@pytest.mark.parametrize(("secret", "kind"), SECRETS)
@pytest.mark.parametrize("frame", ["{}", "use {} now", '"{}"', "x={}\n", "({})", "line\n{}\nline"])
def test_known_tokens_are_taken_out(secret: str, kind: str, frame: str) -> None:
    redacted = redact(frame.format(secret))
    assert secret not in redacted.text
    assert sum(redacted.counts.values()) == 1
    assert f"[redacted:{kind}]" in redacted.text or "[redacted:assigned-secret]" in redacted.text


@pytest.mark.parametrize(("text", "secret"), CONTEXTS)
def test_secrets_named_by_their_context_are_taken_out(text: str, secret: str) -> None:
    assert secret in text
    redacted = redact(f"before {text} after")
    assert secret not in redacted.text
    assert redacted.text.startswith("before ")
    assert sum(redacted.counts.values()) == 1


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text).text == text
    assert not redact(text).counts


def test_text_around_a_secret_stays_as_it_was() -> None:
    token = SECRETS[1][0]
    assert redact(f"push with {token}, then stop").text == "push with [redacted:github-token], then stop"


@given(st.text(max_size=300))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text).text
    assert redact(once).text == once


@pytest.mark.parametrize(
    "hostile",
    [
        "eyJ" * 40_000,
        "://" * 40_000,
        "a://b:" * 20_000,
        "_authToken=" * 10_000 + "/" * 50_000,
        "xoxb-" + "1-" * 50_000,
        "-----BEGIN PRIVATE KEY-----" * 4_000,
        "password='" * 10_000,
        "authorization:" + "bearer " * 17_000,
        "aws'" * 30_000,
        "sk-" * 40_000,
        "A_" * 60_000 + "SECRET",
        "a" * 120_000 + "password='x",
        "MNO.." * 20_000,
        ":1234567890" * 10_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_text_takes_no_more_than_linear_time(hostile: str) -> None:
    start = time.process_time()
    redact(hostile)
    assert time.process_time() - start < 5, "a quadratic pattern takes minutes on this"
