"""Credentials do not survive; hashes, ids and talk about passwords do."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_crypto.hierarchy import Root
from crystal_crypto.pairing import encode
from crystal_node.capture.redact import redact
from crystal_relay.tokens import new_token

B62 = "9fK2mQ7xVb4Lr8Zt3NcYp6WsJd5Hg1Ta0EuRoBiXwPlMzCnFyDvGkSqAhUjIeO27"
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
KEY_BODY = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtz\nc2gtZWQyNTUxOQAAACB"
FORTY = "wJalrXUtnFEMIK7MDENGbPxRfiCYz/+zKEY12345"

TOKENS = [
    ("AKIAIOSFODNN7EXAMPLQ", "aws-key"),
    ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "github-token"),
    ("github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz0123456789", "github-token"),
    ("glpat-AbCdEfGhIjKlMnOpQrSt", "gitlab-token"),
    ("glpat-AbCdEfGhIjKlMnOpQrSt.01.1abcdefgh", "gitlab-token"),
    ("sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz", "anthropic-key"),
    ("sk-proj-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789", "openai-key"),
    (f"sk-{B62[:48]}", "secret-key"),
    (f"sk-or-v1-{HEX}", "secret-key"),
    (f"sk-{HEX[:32]}", "secret-key"),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "google-key"),
    (f"GOCSPX-{B62[:28]}", "google-token"),
    ("xoxb-123456789012-abcdefghij", "slack-token"),
    ("xapp-1-A0123-456-abcdef", "slack-token"),
    ("sk_live_4eC39HqLyjWDarjtT1zdp7dc", "stripe-key"),
    ("rk_test_4eC39HqLyjWDarjtT1zdp7dc", "stripe-key"),
    ("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", "sendgrid-key"),
    ("npm_abcdefghijklmnopqrstuvwxyz0123456789", "npm-token"),
    (f"pypi-AgEIcHlwaS5vcmc{B62}{B62[:20]}", "pypi-token"),
    ("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "hugging-face-token"),
    (f"gsk_{B62[:52]}", "groq-key"),
    (f"xai-{B62}", "xai-key"),
    (f"pplx-{B62[:48]}", "perplexity-key"),
    (f"r8_{B62[:37]}", "replicate-token"),
    (f"lsv2_pt_{HEX[:32]}_{HEX[:10]}", "langsmith-key"),
    (f"dop_v1_{HEX}", "digitalocean-token"),
    (f"dckr_pat_{B62[:27]}", "docker-token"),
    (f"shpat_{HEX[:32]}", "shopify-token"),
    (f"hvs.{B62[:40]}", "vault-token"),
    (f"glsa_{B62[:32]}_0a1b2c3d", "grafana-token"),
    (f"lin_api_{B62[:40]}", "linear-key"),
    (f"ntn_{B62[:46]}", "notion-token"),
    (f"dapi{HEX[:32]}", "databricks-token"),
    (f"dp.st.prd.{B62[:43]}", "doppler-token"),
    (f"sntrys_{B62[:50]}", "sentry-token"),
    (f"NRAK-{B62[:27].upper()}", "newrelic-key"),
    (f"HRKU-{B62[:40]}", "heroku-key"),
    (f"fo1_{B62[:43]}", "fly-token"),
    (f"pscale_tkn_{B62[:43]}", "planetscale-token"),
    (f"ATATT3{B62}", "atlassian-token"),
    (f"tskey-auth-{B62[:12]}-{B62[12:40]}", "tailscale-key"),
    (f"ops_eyJ{B62}{B62}", "onepassword-token"),
    (f"AGE-SECRET-KEY-1{B62.upper()[:58]}", "age-key"),
    (f"pul-{HEX[:40]}", "pulumi-token"),
    (f"figd_{B62[:40]}", "figma-token"),
    (f"pat{B62[:14]}.{HEX}", "airtable-token"),
    (f"PMAK-{HEX[:24]}-{HEX[:34]}", "postman-key"),
    (f"rubygems_{HEX[:48]}", "rubygems-key"),
    (f"cio{B62[:32]}", "crates-token"),
    (f"sbp_{HEX[:40]}", "supabase-key"),
    (f"nfp_{B62[:40]}", "netlify-token"),
    (f"{B62[:14]}.atlasv1.{B62}", "terraform-token"),
    (f"SK{HEX[:32]}", "twilio-key"),
    (f"sq0csp-{B62[:43]}", "square-secret"),
    (f"key-{HEX[:32]}", "mailgun-key"),
    (f"{HEX[:32]}-us12", "mailchimp-key"),
    (f"AKCp{B62}{B62[:9]}", "artifactory-key"),
    (f"123456789:AAE{B62[:32]}", "telegram-token"),
    (f"MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.{B62[:27]}", "discord-token"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c", "jwt"),
    (encode(Root.from_bytes(bytes(range(32)))), "crystal-code"),
    (encode(Root.from_bytes(bytes(range(32)))).rstrip("="), "crystal-code"),
    (f"MC2:{'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567' * 4}", "crystal-invite"),
]
"""Made-up tokens in the true formats, and what we call them."""

PARTLY = [
    (f"DefaultEndpointsProtocol=https;AccountKey={B62}{B62[:22]}==", f"{B62}{B62[:22]}==", "azure-key"),
    (f"https://hooks.slack.com/services/T0123/B0123/{B62[:24]}", B62[:24], "slack-webhook"),
    (f"https://discord.com/api/webhooks/123456789/{B62}", B62, "discord-webhook"),
    (
        new_token(bytes(range(16)), lambda count: bytes(range(count))),
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "crystal-token",
    ),
    (f"Authorization: Crystal-Recovery {HEX}", HEX, "crystal-recovery"),
    ("Authorization: Bearer abcdef1234567890", "abcdef1234567890", "authorization"),
    ('{"Authorization": "Bearer abcdef1234567890"}', "abcdef1234567890", "authorization"),
    ('"{\\"Authorization\\": \\"Bearer abcdef1234567890\\"}"', "abcdef1234567890", "authorization"),
    ("-H 'authorization: basic dXNlcjpwYXNzd29yZA=='", "dXNlcjpwYXNzd29yZA", "authorization"),
    (f"curl -H 'X: Bearer {HEX[:40]}'", HEX[:40], "bearer"),
    ("postgres://bob:tr0ub4dor@db.example.org/x", "tr0ub4dor", "basic-auth"),
    ("redis://:tr0ub4dor@cache:6379/0", "tr0ub4dor", "basic-auth"),
    ("https://bob:p%40ss%3Aw0rd@example.org", "p%40ss%3Aw0rd", "basic-auth"),
    ("postgres://bob:letmein@db/x", "letmein", "basic-auth"),
    ("curl -s -u bob:tr0ub4dor https://example.org", "tr0ub4dor", "basic-auth"),
    ("machine example.org login bob password tr0ub4dor", "tr0ub4dor", "basic-auth"),
    (f"//registry.example.org/:_authToken={HEX[:36]}", HEX[:36], "npm-token"),
    (f"https://example.org/a?x=1&access_token={B62[:30]}&y=2", B62[:30], "url-parameter"),
    (f"https://example.org/blob?sv=2024&sig={B62[:43]}%3D", B62[:43], "url-parameter"),
    (f"[default]\naws_access = 'key'; aws secret key '{FORTY}'", FORTY, "aws-key"),
]

KEY_FILES = [
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{KEY_BODY}\n-----END OPENSSH PRIVATE KEY-----",
    f"-----BEGIN PRIVATE KEY-----\\n{KEY_BODY[:60]}\\n-----END PRIVATE KEY-----\\n",
    f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\n{KEY_BODY}",
    f"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\n{KEY_BODY}\n=aB3d\n-----END PGP PRIVATE KEY BLOCK-----",
    f"-----BEGIN EC PRIVATE KEY-----\n{KEY_BODY} and the rest was cut off",
    f"PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 2\n{KEY_BODY}",
]

ASSIGNED = [
    (f"AWS_SECRET_ACCESS_KEY={FORTY}", FORTY),
    ("export DB_PASSWORD=letmein", "letmein"),
    ("export ARCHIVE_TOKEN=tw_live_9fK2mQ7xVb4Lr8Zt3NcYp6Ws please", "tw_live_9fK2mQ7xVb4Lr8Zt3NcYp6Ws"),
    ('password = "hunter2hunter2"', "hunter2hunter2"),
    ("password: str = 'hunter2hunter2'", "hunter2hunter2"),
    ("if password == 'hunter2':", "hunter2"),
    ("  apiKey: 'abc123def456'", "abc123def456"),
    ("settings['api_key'] = 'abc123def456'", "abc123def456"),
    ('{"client_secret": "abc123def456"}', "abc123def456"),
    ('"{\\"client_secret\\": \\"abc123def456\\"}"', "abc123def456"),
    ('"secret" => "abc123def456"', "abc123def456"),
    ("password: hunter2!", "hunter2!"),
    ("spring.datasource.password=hunter22", "hunter22"),
    ("Server=db;User Id=sa;Password=Hunter-22;", "Hunter-22"),
    (f"token: {HEX[:40]}", HEX[:40]),
    (f"X-Api-Key: {B62[:32]}", B62[:32]),
    ("login --password hunter22 --force", "hunter22"),
    ("the password is hunter22, as you know", "hunter22"),
]

HARMLESS = [
    "commit 3f2a9c8e7b6d5a4f3e2d1c0b9a8f7e6d5c4b3a29",
    f"sha256:{HEX}",
    "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
    "123e4567-e89b-12d3-a456-426614174000",
    "session 6f1d2c1e-54a7-4b7e-9d3a-0c2f8e7b4a61 of msg_01XFDUDYJgAACzvnptvVoYEL, toolu_01NzjV452AGVQR51StZtarfB",
    "def login(user: str, password: str) -> Token:",
    "the password is checked in constant time, the token is hashed",
    'os.environ["API_KEY"]',
    "SECRET=$FOO TOKEN=${TOKEN} PASSWORD=<yours> API_KEY=$(cat key)",
    'password = "********"',
    'password = "changeme"  # or "your-password-here"',
    "password = getpass.getpass()",
    "token = tokens[0]; secret = self.secret1; api_key=settings.api_key",
    "token: keyword.operator.assignment2",
    "secret_name = 'database-credentials-prod-2'",
    '{"token": "comment.line.double-slash", "type": "password"}',
    "password: required|min:8",
    "token_count: 4096, max_tokens=128000, tokenizer = 'all-MiniLM-L6-v2'",
    "private_key_path = '/etc/ssl/private/server-2026.pem'",
    "an -----BEGIN RSA PRIVATE KEY----- line, then Base64, then -----END RSA PRIVATE KEY-----",
    'START = b"-----BEGIN OPENSSH PRIVATE KEY-----"\nEND = b"-----END OPENSSH PRIVATE KEY-----"',
    "Authorization: Bearer authentication is required",
    "Bearer <token>, Bearer $TOKEN, bearer authentication-with-hyphens",
    "2026-11-21T04:45:14.123Z, 12:30:45, 1763370724:0000000000000000000000000000000000000",
    "git@example.org:owner/name.git and https://example.org:8443/a@b and https://user:password@example.org",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "task-based risk-free disk-abcdefghijklmnopqrstuvwxyzabcdefgh sk-folding-cube-animation-with-a-long-name",
    "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx sk-ant-xxxxxxxxxxxxxxxxxxxxxxx",
    "mc1: is how a code begins; MC2: too. mc1:<base64>",
    "https://example.org/?page=2&key=value&code=NotFound&sort_key=created_at",
    "docker run -u 1000:1000 --user node:node, curl -u user:password",
    "node_modules/.pnpm/@types+node@20.11.5/node_modules/@types/node/ts4.8/index.d.ts",
    "arn:aws:iam::123456789012:role/service-role/my-function-role-4k2j9x8z",
    "mailto:someone@example.org, 10.0.0.1:8080, ::1, v1.2.3-rc.4+build.567",
    "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4",
]


@pytest.mark.parametrize(("secret", "kind"), TOKENS)
@pytest.mark.parametrize("frame", ["{}", "use {} now", '"{}"', "({}).", "line\n{}\nline", "`{}`,", "É{}é"])
def test_known_tokens_are_taken_out(secret: str, kind: str, frame: str) -> None:
    redacted = redact(frame.format(secret))
    assert redacted.text == frame.format(f"[redacted:{kind}]")
    assert dict(redacted.counts) == {kind: 1}


@pytest.mark.parametrize(("text", "secret", "kind"), PARTLY)
def test_secrets_are_taken_out_of_their_places(text: str, secret: str, kind: str) -> None:
    redacted = redact(f"before {text} after")
    assert redacted.text.startswith("before ")
    assert redacted.text.endswith("after")
    assert secret not in redacted.text
    assert f"[redacted:{kind}]" in redacted.text
    assert sum(redacted.counts.values()) == 1


@pytest.mark.parametrize("text", KEY_FILES)
def test_private_keys_are_taken_out_whole_or_cut_off(text: str) -> None:
    redacted = redact(f"before\n{text}\nafter")
    assert redacted.text.startswith("before\n")
    assert redacted.text.endswith("after")
    for part in KEY_BODY.split("\n"):
        assert part[:30] not in redacted.text
    assert dict(redacted.counts) == {"private-key": 1}


@pytest.mark.parametrize(("text", "secret"), ASSIGNED)
def test_what_is_assigned_to_a_secrets_name_is_taken_out(text: str, secret: str) -> None:
    redacted = redact(f"before {text} after")
    assert redacted.text == f"before {text} after".replace(secret, "[redacted:assigned-secret]")
    assert dict(redacted.counts) == {"assigned-secret": 1}


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text).text == text
    assert not redact(text).counts


@given(
    st.binary(min_size=16, max_size=64), st.sampled_from(["{}", "at {}.", "v{}", '"{}"', "x: {}", "id={}"])
)
def test_hashes_in_hexadecimal_stay(digest: bytes, frame: str) -> None:
    text = frame.format(digest.hex())
    assert redact(text).text == text


@given(st.uuids(), st.sampled_from(["{}", "message {}", "/{}.jsonl", '"uuid": "{}"', "id={}"]))
def test_uuids_stay(uuid: object, frame: str) -> None:
    text = frame.format(uuid)
    assert redact(text).text == text


def test_several_secrets_are_counted_by_kind() -> None:
    tokens = [TOKENS[1][0], TOKENS[2][0], TOKENS[0][0]]
    redacted = redact(" and ".join(tokens))
    assert redacted.text == "[redacted:github-token] and [redacted:github-token] and [redacted:aws-key]"
    assert redacted.counts == {"github-token": 2, "aws-key": 1}


def test_a_secret_that_two_rules_find_is_taken_out_once() -> None:
    assert redact(f"GITHUB_TOKEN={TOKENS[1][0]}!").text == "GITHUB_TOKEN=[redacted:github-token]"
    assert (
        redact(f"https://bob:{TOKENS[1][0]}@example.org").text
        == "https://bob:[redacted:github-token]@example.org"
    )


def test_a_token_directly_behind_another_is_taken_out_too() -> None:
    redacted = redact(f"{HEX[:32]}-us12{TOKENS[1][0]}")
    assert redacted.text == "[redacted:mailchimp-key][redacted:github-token]"
    assert redacted.counts == {"mailchimp-key": 1, "github-token": 1}


def test_letters_that_become_two_in_lower_case_do_not_shift_what_is_taken_out() -> None:
    assert redact("İİİ password='hunter22' İ").text == "İİİ password='[redacted:assigned-secret]' İ"


fragments = st.sampled_from(
    [secret for secret, _ in TOKENS]
    + [text for text, *_ in PARTLY]
    + [text for text, _ in ASSIGNED]
    + [
        *KEY_FILES,
        *HARMLESS,
        "[redacted:jwt]",
        "password=",
        "password: '",
        "://a:",
        "@",
        " ",
        "\n",
        "Bearer ",
        "token=",
        "'",
    ]
)


@given(st.lists(fragments | st.text(max_size=5), max_size=6).map("".join))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once.text).text == once.text
    assert len(re.findall(r"\[redacted:[a-z-]+\]", once.text)) >= sum(once.counts.values())


@given(
    st.lists(st.sampled_from(TOKENS), min_size=1, max_size=5),
    st.sampled_from([" ", "\n", ", ", '", "', "`;`"]),
)
def test_no_token_survives_among_others(tokens: list[tuple[str, str]], between: str) -> None:
    redacted = redact(between.join(secret for secret, _ in tokens))
    assert not any(secret in redacted.text for secret, _ in tokens)
    assert sum(redacted.counts.values()) == len(tokens)


@given(st.sampled_from(TOKENS), st.integers(1, 3))
def test_tokens_inside_json_of_json_are_taken_out(token: tuple[str, str], depth: int) -> None:
    text: object = {"value": token[0]}
    for _ in range(depth):
        text = json.dumps(text)
    assert isinstance(text, str)
    assert token[0] not in redact(text).text
