"""Lines of sessions are blanked in place: they stay valid, and what needs no blanking stays byte for byte."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_node.capture.json_values import as_array, as_object, is_object
from crystal_node.capture.redaction import redact
from crystal_node.derive.sessions.line_redaction import LineRedactor, blank, blank_strings, times_of
from tests.node.capture.credentials.corpus import Case, read_cases
from tests.node.capture.redaction_cases import TOKENS

CASES = [case for name in ("seen.txt", "held_back.txt") for case in read_cases(name)]
CAUGHT = [case for case in CASES if not case.survives(redact(case.framed()).text)]
"""What the rules find in a text. A copy's line has to lose as much."""


def _tells_nothing(key: str) -> bool:
    """Whether no value is taken for a credential because of this key."""
    return not redact(json.dumps({key: "Tr0ub4dor&3xyz"})).counts


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(_tells_nothing), inner),
)


def _shapes(text: str) -> list[dict[str, object]]:
    return [
        {"type": "user", "message": {"role": "user", "content": text}, "uuid": "a"},
        {
            "type": "user",
            "message": {"content": [{"type": "tool_result", "content": [{"type": "text", "text": text}]}]},
        },
        {"type": "response_item", "payload": {"arguments": json.dumps({"command": ["sh", "-c", text]})}},
    ]


@pytest.mark.parametrize("ascii_only", [True, False])
def test_what_the_rules_find_in_a_text_is_in_no_line_of_a_copy(ascii_only: bool) -> None:
    redactor, left = LineRedactor(), list[str]()
    for case in CAUGHT:
        for shape in _shapes(case.framed()):
            line = json.dumps(shape, ensure_ascii=ascii_only).encode() + b"\n"
            done = redactor.line(line)
            assert list(_keys(json.loads(done))) == list(_keys(shape))
            if _survives(case, done):
                left.append(case.name)
    assert left == []


def _survives(case: Case, line: bytes) -> bool:
    framed = [each for each in _texts(json.loads(line)) if each.startswith("What came before")]
    return not framed or any(case.survives(each) for each in framed)


def _texts(value: object) -> "list[str]":
    """All strings, also those of JSON within a string."""
    if isinstance(value, str):
        return _texts(json.loads(value)) if value.startswith("{") else [value]
    inner = as_object(value).values() or as_array(value)
    return [text for each in inner for text in _texts(each)]


def _keys(value: object) -> "list[str]":
    if is_object(value):
        return [key for each, inner in value.items() for key in (each, *_keys(inner))]
    return [key for each in as_array(value) for key in _keys(each)]


@pytest.mark.parametrize(("secret", "kind"), TOKENS)
def test_exact_bytes_stay_and_others_do_not(secret: str, kind: str) -> None:
    line = json.dumps({"text": f"use {secret} now"}).encode() + b"\n"
    assert LineRedactor(exact=True).line(line) == line
    assert json.loads(LineRedactor().line(line)) == {"text": f"use [redacted:{kind}] now"}


def test_a_secret_that_only_its_key_tells_is_blanked() -> None:
    line = b'{"input":{"password":"Tr0ub4dor&3xyz","user":"ada","author":"Ada L"}}\n'
    done = json.loads(LineRedactor().line(line))["input"]
    assert "Tr0ub" not in done["password"]
    assert (done["user"], done["author"]) == ("ada", "Ada L")


@pytest.mark.parametrize("between", ["null}, ", "5}, ", "{}}, ", "[]}, ", 'true, "x": 1}, '])
def test_a_string_is_not_taken_for_the_value_of_a_key_before_it(between: str) -> None:
    told = f'{{"a":[{{"token": {between}"plain words 0012"]}}\n'.encode()
    assert LineRedactor().line(told) == told
    kept = f'{{"a":[{{"id": {between}"private words"]}}\n'.encode()
    assert b"private words" not in LineRedactor().line(kept, hidden=True)
    assert b"private words" not in blank_strings(kept)


def test_the_first_of_a_list_of_passwords_is_blanked() -> None:
    assert b"Tr0ub" not in LineRedactor().line(b'{"password": [ "Tr0ub4dor&3xyz"]}\n')


@given(TREES)
def test_a_line_without_credentials_stays_byte_for_byte(tree: object) -> None:
    line = json.dumps({"a": tree}, ensure_ascii=True).encode() + b"\r\n"
    assert LineRedactor().line(line) == line


@given(TREES, st.sampled_from(TOKENS), st.booleans())
def test_only_the_string_that_changed_changes(tree: object, token: tuple[str, str], ascii_only: bool) -> None:
    line = json.dumps({"a": tree, "b": [token[0]], "c": tree}, ensure_ascii=True).encode() + b"\n"
    done = LineRedactor().line(line)
    assert done == line.replace(token[0].encode(), f"[redacted:{token[1]}]".encode())
    assert LineRedactor().line(done) == done


def test_what_is_no_json_is_redacted_as_text_and_other_bytes_stay() -> None:
    token, kind = TOKENS[0]
    line = b'{"torn": "\xff\xfe ' + token.encode() + b" rest\n"
    assert LineRedactor().line(line) == b'{"torn": "\xff\xfe [redacted:' + kind.encode() + b"] rest\n"
    plain = b'{"torn": "\xff\xfe\n'
    assert LineRedactor().line(plain) == plain


@pytest.mark.parametrize("exact", [True, False])
def test_private_words_never_enter_a_copy(exact: bool) -> None:
    line = json.dumps({"content": "a <private>marmot</private> b", "n": 1}).encode() + b"\n"
    done = LineRedactor(exact=exact).line(line)
    assert json.loads(done) == {"content": "a  b", "n": 1}


@pytest.mark.parametrize("exact", [True, False])
def test_of_a_hidden_line_the_structure_stays_alone(exact: bool) -> None:
    record = {
        "type": "user",
        "uuid": "u-1",
        "parentUuid": "u-0",
        "timestamp": "2026-01-01T00:00:00Z",
        "message": {
            "role": "user",
            "content": [{"type": "text", "text": "marmots"}],
            "list": ["marmots", "x"],
        },
        "n": 5,
    }
    done = json.loads(LineRedactor(exact=exact).line(json.dumps(record).encode() + b"\n", hidden=True))
    assert "marmots" not in json.dumps(done)
    assert {key: done[key] for key in ("type", "uuid", "parentUuid", "timestamp", "n")} == {
        key: record[key] for key in ("type", "uuid", "parentUuid", "timestamp", "n")
    }
    assert done["message"]["content"] == [{"type": "text", "text": "[private]"}]
    assert b"marmots" not in LineRedactor(exact=exact).line(b"marmots torn\n", hidden=True)


@given(st.text(), st.booleans(), TREES)
def test_a_forgotten_text_is_blanked_without_moving_anything(
    text: str, ascii_only: bool, tree: object
) -> None:
    text = f"marmot {text} é\U0001f9ab".encode("utf-8", "replace").decode()
    nested = json.dumps({"x": f"({text})", "y": 1}, ensure_ascii=ascii_only)
    record = {"a": tree, "content": f"§{text}§", "nested": nested, "said": f"it wrote {nested}"}
    line = json.dumps(record, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") + b"\n"
    done = blank(line, [text])
    assert len(done) == len(line)
    found = json.loads(done)
    assert found["a"] == json.loads(line)["a"]
    assert re.fullmatch(r"§\[forgotten\]\**§", found["content"])
    assert re.fullmatch(r"\(\[forgotten\]\**\)", json.loads(found["nested"])["x"])
    assert b"marmot" not in done
    assert blank(done, [text]) == done


def test_a_line_whose_forgotten_text_is_not_found_loses_all_its_words() -> None:
    line = b'{"type":"user","uuid":"u","content":["a \\"quoted\\" marmot"],"n":1}\n'
    done = blank_strings(line)
    assert len(done) == len(line)
    assert json.loads(done)["uuid"] == "u"
    assert b"marmot" not in done


def test_files_that_are_no_lines_are_redacted_whole() -> None:
    token, kind = TOKENS[0]
    key = (
        "-----BEGIN PRIVATE KEY-----\n"
        + "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ\n" * 4
        + "-----END PRIVATE KEY-----\n"
    )
    done = LineRedactor().whole(f"a {token}\n{key}b".encode())
    assert done.startswith(f"a [redacted:{kind}]\n".encode())
    assert b"b3Blbn" not in done
    document = json.dumps({"a": token, "b": 1}, indent=2).encode()
    assert json.loads(LineRedactor().whole(document)) == {"a": f"[redacted:{kind}]", "b": 1}
    assert LineRedactor().whole(b"plain\n\xff text") == b"plain\n\xff text"
    assert LineRedactor().whole(b"words", hidden=True) == b""


def test_times_are_found_wherever_they_stand() -> None:
    record = {
        "$set": {"messages": [{"timestamp": "2026-01-01T00:00:00Z"}]},
        "lastUpdated": 1767225600000,
        "n": 3,
    }
    assert list(times_of(record)) == [1767225600000, 1767225600000]


def test_real_sessions_stay_byte_for_byte() -> None:
    folder = Path(__file__).parents[2] / "capture" / "fixtures"
    files = sorted(folder.rglob("*.jsonl"))
    assert len(files) > 10
    redactor = LineRedactor()
    for path in files:
        for line in path.read_bytes().splitlines(keepends=True):
            done = redactor.line(line)
            assert done == line or b"[redacted:" in done or b"<private>" in line, path
