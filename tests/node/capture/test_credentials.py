"""The corpus of credentials is blanked, as it stands and behind escapes; ordinary text is left alone; no text makes it slow."""

import html
import json
import re
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_node.capture.escapes import view
from crystal_node.capture.redaction import redact
from crystal_node.capture.redaction_rules import CONTEXT_WORDS
from tests.node.capture.credentials.corpus import Case, read_cases

SEEN = read_cases("seen.txt")
HELD_BACK = read_cases("held_back.txt")
ALL_BLANKED_MIN = 0.96
SEEN_BLANKED_MIN = 0.98
HELD_BACK_BLANKED_MIN = 0.92
FALSE_FINDS_PER_MB_MAX = 1


def _survivors(cases: list[Case]) -> list[str]:
    return [case.name for case in cases if case.survives(redact(case.framed()).text)]


def test_the_corpus_is_large_enough_and_a_third_of_it_is_held_back() -> None:
    cases = SEEN + HELD_BACK
    assert len(cases) >= 400
    assert len(HELD_BACK) * 3 >= len(cases)
    assert len({case.name for case in cases}) == len(cases)
    assert len({case.text for case in cases}) == len(cases)
    assert all(case.kind and case.origin and case.secrets for case in cases)
    kinds = {"maker", "assignment", "command", "address", "file", "escape", "language", "key", "header"}
    assert {case.kind for case in SEEN} == {case.kind for case in HELD_BACK} == kinds


def test_nearly_all_of_the_corpus_is_blanked() -> None:
    """The figures are in the decision record; a change of the rules that lowers them has to say so there."""
    seen, held_back = _survivors(SEEN), _survivors(HELD_BACK)
    assert 1 - len(seen) / len(SEEN) >= SEEN_BLANKED_MIN, seen
    assert 1 - len(held_back) / len(HELD_BACK) >= HELD_BACK_BLANKED_MIN, (
        "the names are not shown: nobody tunes by them"
    )
    assert 1 - len(seen + held_back) / len(SEEN + HELD_BACK) >= ALL_BLANKED_MIN


def test_a_case_that_is_left_as_it_is_counts_as_readable() -> None:
    assert all(case.survives(case.framed()) for case in SEEN + HELD_BACK)
    assert all(case.survives("[redacted:everything]") for case in SEEN + HELD_BACK)


@pytest.mark.parametrize("cases", [SEEN, HELD_BACK], ids=["seen", "held back"])
def test_what_is_blanked_stays_blanked_when_it_is_written_as_json(cases: list[Case]) -> None:
    """A tool's answer is JSON more often than not. A little may be lost: a key's lines are one then."""
    survivors = [
        case.name
        for case in cases
        if not case.survives(redact(case.framed()).text)
        and _readable(case, redact(json.dumps(case.text)).text)
    ]
    assert len(survivors) <= len(cases) * 0.06, survivors if cases is SEEN else len(survivors)


def _readable(case: Case, redacted: str) -> bool:
    return any(json.dumps(secret)[1:-1] in redacted for secret in case.secrets)


TOKENS = ["ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a", "AKIA" + "IOSFODNN7EXAMPLQ"]
ESCAPES = [
    *(
        "\x1b[32m{}\x1b[0m",
        "\x1b[38;5;12m{}\x1b[m",
        "\x1b]8;;https://x\x07{}\x1b]8;;\x07",
        "\\u001b[32m{}\\u001b[0m",
    ),
    *(
        "\\x1b[32m{}\\x1b[0m",
        "\\033[1m{}\\033[0m",
        "\\e[1m{}\\e[0m",
        "a\\n{}\\nb",
        "a\\r\\n{}",
        "a\\t{}\\t",
        "a\\\\n{}",
    ),
    *(
        "token\\u003d{}",
        "token%3D{}",
        "token%253D{}",
        "&quot;{}&quot;",
        "&#34;{}&#34;",
        "&amp;quot;{}&amp;quot;",
        "%22{}%22",
    ),
]


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("token", TOKENS)
def test_a_token_behind_an_escape_is_cut_where_it_stands(escape: str, token: str) -> None:
    text = f"before\n{escape.format(token)}\nafter"
    redacted = redact(text).text
    assert token not in redacted
    kind = "github-token" if token.startswith("g") else "aws-key"
    assert redacted == text.replace(token, f"[redacted:{kind}]")


@given(
    st.lists(
        st.sampled_from(
            [
                "\x1b[31m",
                "\\n",
                "\\\\n",
                "\\u003d",
                "%3D",
                "%2",
                "&quot;",
                "&",
                "\\",
                "abc",
                "=",
                " ",
                "\n",
                "é",
                "密",
                '\\"',
                "\x1b",
            ]
        ),
        max_size=30,
    ).map("".join)
)
def test_each_character_of_a_view_stands_where_it_says(text: str) -> None:
    seen = view(text)
    if seen is None:
        return
    for at, char in enumerate(seen.text[:-1]):
        start, end = seen.span(at, at + 1)
        assert 0 <= start < end <= len(text)
        assert end - start > 1 or text[start] == char or char == "\n"


@given(st.sampled_from(SEEN), st.sampled_from([json.dumps, quote, html.escape]))
def test_no_writing_of_a_case_makes_redaction_fail_or_differ_the_second_time(
    case: Case, written: Callable[[str], str]
) -> None:
    once = redact(written(case.framed()))
    assert redact(once.text).text == once.text


def _library() -> list[str]:
    """Modules of Python's library."""
    return [path.read_text("utf-8") for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))]


def test_source_code_loses_next_to_nothing() -> None:
    texts = _library()
    size = sum(map(len, texts)) / 1e6
    assert size > 1.5
    found = sum(redact(text).counts.total() for text in texts)
    assert found / size <= FALSE_FINDS_PER_MB_MAX


ORDINARY = """
The password is checked in constant time, and the token is hashed. Where do I set the API key? Put it into the keychain.
I changed the password field so that it has at least 12 characters; the error said "Password must contain 8 characters".
Please reset your password: the link is valid for 24 hours. The secret of good tests is small steps, 3 or 4 at a time.
Token usage: 12,400 in, 830 out; max_tokens=4096, token_count: 17, cost 0.12 USD. Das Passwort ist zu kurz. La clave es leer.
Key points: 1) authentication by OAuth 2.0, 2) secrets in a vault, 3) passwords hashed with argon2id. The pass rate is 98 %.
def login(user: str, password: str | None = None, *, token: str = "") -> Session: ...
password = request.form["password"]; secret = hmac.new(key, msg, sha256).hexdigest(); api_key = os.environ.get("API_KEY")
<input type="password" name="password" placeholder="Enter password"> <label for="token">Token 1</label>
git commit -m "fix: token refresh (#1234)" && git push; docker run -p 8080:80 -e MODE=prod web:1.2; ssh -p 2222 h; mkdir -p a
const key = `user:${id}`; cacheKey = "items-2024"; primaryKey: "id"; keys: ["a1", "b2"]; secretName: database-credentials-2
See https://example.org:8443/a@b?page=2&sort_key=created_at and mail bob@example.org, or http://localhost:3000/#section2
""".strip().split("\n")


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_messages_stay(text: str) -> None:
    assert redact(text).text == text


UNIT_CHARS_MAX = 40
SMALL_CHARS, LARGE_CHARS = 6_000, 48_000
GROWTH_MAX = 24
"""Eight times the text, eight times the time; what grows with its square takes sixty-four times."""
NOTICEABLE_SECONDS = 0.05


def _units(seed: int, count: int) -> list[str]:
    """Parts of credentials, words of rules, and both joined: what a pattern begins with and does not find the end of."""
    chance = Random(seed)
    texts = (
        [case.text for case in SEEN + HELD_BACK]
        + [f"{word} -p " for word in CONTEXT_WORDS]
        + list(CONTEXT_WORDS)
    )
    units: list[str] = []
    for _ in range(count):
        text = chance.choice(texts)
        at = chance.randrange(len(text))
        unit = text[at : at + chance.randint(1, UNIT_CHARS_MAX)]
        units.append(
            unit + chance.choice(["", "", " ", "\n", "=", "\\n", "'", "-", "%3D", chance.choice(texts)[:12]])
        )
    return units


def _seconds(text: str) -> float:
    start = time.process_time()
    redact(text)
    return time.process_time() - start


@pytest.mark.parametrize("seed", range(6))
def test_no_text_takes_more_than_linear_time(seed: int) -> None:
    """A fuzzer that grows its texts: parts of credentials, repeated."""
    slow: list[str] = []
    for unit in _units(seed, 40):
        repeated = unit * (LARGE_CHARS // len(unit) + 1)
        large = _seconds(repeated[:LARGE_CHARS])
        if large > NOTICEABLE_SECONDS:
            small = min(_seconds(repeated[:SMALL_CHARS]) for _ in range(2))
            large = min(large, _seconds(repeated[:LARGE_CHARS]))
            if large > GROWTH_MAX * small:
                slow.append(f"{unit!r}: {small:.3f} s, then {large:.3f} s")
    assert not slow


def test_a_pattern_that_goes_back_is_seen_by_the_fuzzer() -> None:
    """The measure itself: a quadratic search is over the limit, a linear one is not."""

    def spent(pattern: str, size: int) -> float:
        start = time.process_time()
        re.compile(pattern).findall("a" * size)
        return time.process_time() - start

    assert spent("a+b", 16_000) > GROWTH_MAX * min(spent("a+b", 2_000) for _ in range(3))
    large = min(spent("[ab]", 1_600_000) for _ in range(3))
    assert large <= GROWTH_MAX * min(spent("[ab]", 200_000) for _ in range(3))
