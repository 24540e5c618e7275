"""Credentials do not survive; hashes, ids and talk about passwords do."""

import json
import re
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_node.capture import redaction
from crystal_node.capture.redaction import redact
from tests.node.capture.redaction_cases import ASSIGNED, HARMLESS, HEX, KEY_BODY, KEY_FILES, PARTLY, TOKENS


@pytest.mark.parametrize(("secret", "kind"), TOKENS)
@pytest.mark.parametrize("frame", ["{}", "use {} now", '"{}"', "({}).", "line\n{}\nline", "`{}`,", "É{}é"])
def test_known_tokens_are_taken_out(secret: str, kind: str, frame: str) -> None:
    redacted = redact(frame.format(secret))
    assert redacted.text == frame.format(f"[redacted:{kind}]")
    assert dict(redacted.counts) == {kind: 1}


@pytest.mark.parametrize(("text", "secret", "kind"), PARTLY)
def test_secrets_named_by_their_context_are_taken_out(text: str, secret: str, kind: str) -> None:
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


@pytest.mark.slow
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
    # A code may be wrapped: letters behind it that could be its next line go with it.
    assert 0 < sum(redacted.counts.values()) <= len(tokens)


@given(st.sampled_from(TOKENS), st.integers(1, 3))
def test_tokens_inside_json_of_json_are_taken_out(token: tuple[str, str], depth: int) -> None:
    text: object = {"value": token[0]}
    for _ in range(depth):
        text = json.dumps(text)
    assert isinstance(text, str)
    assert token[0] not in redact(text).text


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
        "mc3:",
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
def test_hostile_text_takes_no_more_than_linear_time(unit: str) -> None:
    """60 KB in half a second is a hundredth of the usual speed; a quadratic pattern takes minutes on this."""
    repeated = unit * (HOSTILE_CHARS // len(unit) + 1)
    for end in ("", "password='x", "A" * 50, "=1a2b3c4d5e6f", "-----END", "@"):
        start = time.process_time()
        redact(repeated + end)
        assert time.process_time() - start < 0.5


@given(st.lists(st.sampled_from([*TOKENS, ("done", ""), ("src/tide.py", "")]), min_size=1, max_size=9))
def test_a_short_text_seen_before_is_redacted_as_one_that_was_not(parts: list[tuple[str, str]]) -> None:
    texts = [text for text, _ in parts] + [f"{one} {other}" for (one, _), (other, _) in pairwise(parts)]
    new = []
    for text in texts:
        redaction._clean.clear()  # pyright: ignore[reportPrivateUsage]  what was seen before
        new.append(redact(text))
    assert [redact(text) for text in [*texts, *texts]] == new * 2
    secrets = [text for text, kind in parts if kind]
    assert not any(secret in text for secret in secrets for text in redaction._clean)  # pyright: ignore[reportPrivateUsage]


def test_only_some_short_texts_are_remembered() -> None:
    for number in range(redaction.CLEAN_TEXTS_MAX + 10):
        redact(f"text {number}")
    redact("long " * redaction.CLEAN_CHARS_MAX)
    kept = redaction._clean  # pyright: ignore[reportPrivateUsage]
    assert len(kept) <= redaction.CLEAN_TEXTS_MAX
    assert max(map(len, kept)) <= redaction.CLEAN_CHARS_MAX
