"""Records of every form: known, unknown, damaged, hostile. An odd field never costs the words beside it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_mirror.operations import decode_operation, encode_operation
from crystal_node.capture.claude_code import (
    BlankLine,
    ClaudeRecord,
    ClaudeWords,
    cleaned_texts,
    parse_line,
    words_of,
)
from crystal_node.capture.messages import LineFault, SkippedRecord, bounded, milliseconds
from tests.node.capture.transcripts import Said, Tool, assistant, line, said, user


def texts(record: dict[str, Any]) -> tuple[list[Said], Counter[str]]:
    """What a record says, and what was left out of it."""
    parsed = parse_line(line(record).strip())
    assert isinstance(parsed, ClaudeRecord)
    words = words_of(parsed)
    skipped: Counter[str] = Counter()
    if isinstance(words, SkippedRecord):
        skipped[words.reason] += 1
        return [], skipped
    return list(cleaned_texts(words, skipped).items()), skipped


def test_user_text_in_blocks_and_as_a_string_are_the_same() -> None:
    assert (
        texts(user("plain"))[0] == texts(user([{"type": "text", "text": "plain"}]))[0] == [("user", "plain")]
    )


def test_texts_of_one_speaker_are_joined_and_thinking_is_apart() -> None:
    record = assistant(
        {"type": "text", "text": "One."},
        {"type": "thinking", "thinking": "Hm.", "signature": "Ep"},
        {"type": "text", "text": "Two."},
    )
    assert texts(record) == ([("assistant", "One.\n\nTwo."), ("thinking", "Hm.")], Counter())


def test_tool_calls_results_and_images_are_counted_not_kept() -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "t", "content": "secret output", "text": "not words"},
        {"type": "image", "source": {"data": "aGk="}},
        {"type": "hologram", "text": "from the future"},
        {"type": "text", "text": 5},
        {"type": "text"},
        {"type": "thinking", "text": "in the wrong place"},
        "a bare string",
        {"type": "text", "text": "kept"},
    ]
    assert texts(user(blocks)) == (
        [("user", "kept")],
        Counter({"block of unknown form": 5, "block tool_result": 1, "block image": 1}),
    )


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (user("x", isMeta=True), "meta"),
        (user("x", isCompactSummary=True), "compaction summary"),
        (assistant({"type": "text", "text": "API Error"}, isApiErrorMessage=True), "written by the tool"),
        (
            {"type": "assistant", "message": {"model": "<synthetic>", "content": "No response requested."}},
            "written by the tool",
        ),
        ({"type": "progress", "data": {"deep": [1, 2, 3]}}, "record progress"),
        ({"type": "summary", "summary": "s", "leafUuid": "u"}, "record summary"),
        ({"type": "attachment", "attachment": {"type": "file", "content": "x"}}, "record attachment"),
        ({"type": "attachment"}, "record attachment"),
        ({"type": "user"}, "record of unknown form"),
        ({"type": "user", "message": "no object"}, "record of unknown form"),
        ({"no": "type"}, "record of unknown form"),
        ({"type": ["list"]}, "record of unknown form"),
        ({"type": "user", "message": {"role": "user", "parts": [{"text": "x"}]}}, "record of unknown form"),
        ({"type": "hologram", "uuid": "u", "message": {"content": "x"}}, "record of unknown type"),
    ],
)
def test_records_without_anybodys_words_say_why(record: dict[str, Any], reason: str) -> None:
    assert texts(record) == ([], Counter({reason: 1}))


@pytest.mark.parametrize(
    "record",
    [
        {"type": "hologram", "uuid": "u", "cost": {"tokens": 7, "model": "m"}},
        {"type": "hologram", "uuid": "u", "content": [], "text": " "},
        {"type": "request", "sessionId": "s", "message": {"role": "user", "content": "what was sent"}},
    ],
)
def test_a_record_of_an_unknown_kind_is_no_fault_without_words_or_beside_the_conversation(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    tool = Tool(tmp_path)
    tool.write(record)
    counts = tool.read().counts
    assert dict(counts.skipped) == {"record without words": 1}
    assert counts.spots == []


def test_the_number_of_reasons_is_bounded_whatever_types_a_file_makes_up(tmp_path: Path) -> None:
    tool = Tool(tmp_path)
    tool.write(*({"type": f"made-up-{number}", "uuid": "u", "text": "x"} for number in range(500)))
    tool.write(*(user([{"type": f"made-up-{number}"}]) for number in range(500)))
    assert dict(tool.read().counts.skipped) == {"record of unknown type": 500, "block of unknown form": 500}


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ({"prompt": "and the other?"}, True),
        ({"prompt": [{"type": "text", "text": "and the other?"}], "commandMode": "prompt"}, True),
        ({"prompt": "and the other?", "origin": {"kind": "human"}}, True),
        ({"prompt": "and the other?", "commandMode": "task-notification"}, False),
        ({"prompt": "and the other?", "origin": {"kind": "task-notification"}}, False),
        ({"prompt": None}, False),
    ],
)
def test_what_the_person_typed_while_the_model_worked_is_kept(command: dict[str, Any], kept: bool) -> None:
    record = {**user(""), "type": "attachment", "attachment": {"type": "queued_command", **command}}
    assert texts(record)[0] == ([("user", "and the other?")] if kept else [])


ODD: list[dict[str, Any]] = [
    {"uuid": 7},
    {"timestamp": 1763370724},
    {"cwd": ["/home"]},
    {"isMeta": "no"},
    {"isSidechain": None},
    {"sessionId": {"id": 1}},
    {"attachment": "string"},
    {"attachment": {"type": 1, "origin": []}},
    {"extra": {"deeply": [[[{}]]]}},
]


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_field_does_not_cost_the_words(odd: dict[str, Any]) -> None:
    assert texts(user("words", **odd))[0] == [("user", "words")]


@pytest.mark.parametrize(
    "data",
    [
        b"not json",
        b'{"type": "user"',
        b"[" * 100_000,
        b"\x00\x00\x00",
        b"1e999x",
        b"\xff\xfe",
        b"1" * 5000,
        "{}".encode("utf-16"),
    ],
)
def test_damage_is_named(data: bytes) -> None:
    assert parse_line(data) is LineFault.NOT_JSON


@pytest.mark.parametrize("data", [b"null", b'"text"', b"[]", b"3", b"true", b"1e999"])
def test_json_that_is_no_record_is_named(data: bytes) -> None:
    assert parse_line(data) is LineFault.UNKNOWN_FORM


@pytest.mark.parametrize("data", [b"", b"  \t", b"\r", b"\xef\xbb\xbf"])
def test_blank_lines_are_nothing(data: bytes) -> None:
    assert parse_line(data) == BlankLine()


def test_a_byte_order_mark_and_carriage_returns_do_not_cost_a_message(tmp_path: Path) -> None:
    tool = Tool(tmp_path)
    tool.write(b"\xef\xbb\xbf" + line(user("first")).replace(b"\n", b"\r\n"))
    tool.write(line(user("second", 2)).replace(b"\n", b"\r\n"))
    reading = tool.read()
    assert said(reading.operations) == [("user", "first"), ("user", "second")]
    assert not reading.counts.skipped


def test_bytes_that_are_no_utf8_lone_surrogates_and_nuls_do_not_cost_a_message(tmp_path: Path) -> None:
    tool = Tool(tmp_path)
    odd: dict[str, Any] = {"uuid": "id\ud83d", "sessionId": "s\udc00", "cwd": "/home/mara/x\ud800y"}
    damaged = line(user("MARK and \ud800 half\0", **odd)).replace(b"MARK", b"caf\xe9")
    tool.write(damaged)
    (operation,) = tool.read().operations
    (piece,) = operation.pieces
    assert piece.text == "caf\N{REPLACEMENT CHARACTER} and ? half"
    assert decode_operation(encode_operation(operation)) == operation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-17T09:12:04.118Z", 1794906724118),
        ("2026-11-17T10:12:04.118+01:00", 1794906724118),
        ("2026-11-17T09:12:04", 1794906724000),
        ("1969-01-01T00:00:00Z", 0),
        ("9999-12-31T23:59:59Z", 0),
        ("0001-01-01T00:00:00+14:00", 0),
        ("yesterday", 0),
        ("", 0),
        (None, 0),
    ],
)
def test_moments(text: str | None, expected: int) -> None:
    assert milliseconds(text) == expected


@given(st.text(max_size=400) | st.none(), st.integers(1, 300))
def test_names_are_bounded_in_bytes_and_stay_text(name: str | None, limit: int) -> None:
    cut = bounded(name, limit)
    assert len(cut.encode()) <= limit
    assert (name or "").startswith(cut)
    if len((name or "").encode()) <= limit:
        assert cut == (name or "")


@given(st.binary(max_size=200))
def test_no_line_makes_parsing_fail(data: bytes) -> None:
    assert isinstance(parse_line(data), ClaudeRecord | LineFault | BlankLine)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
blocks = st.fixed_dictionaries({}, optional={"type": json_values | st.just("text"), "text": json_values})
fields = [
    *("type", "uuid", "sessionId", "timestamp", "cwd", "message"),
    *("isMeta", "isSidechain", "isCompactSummary", "attachment"),
]


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(fields),
        json_values
        | st.sampled_from(["user", "assistant", "attachment"])
        | st.fixed_dictionaries({"content": json_values | st.lists(blocks, max_size=3)})
        | st.fixed_dictionaries({"type": st.just("queued_command"), "prompt": json_values}),
    )
)
def test_no_record_makes_reading_fail_or_an_operation_that_cannot_travel(
    tmp_path_factory: pytest.TempPathFactory, record: dict[str, Any]
) -> None:
    tool = Tool(tmp_path_factory.mktemp("any"))
    tool.write(json.dumps(record).encode() + b"\n", user("after"))
    reading = tool.read()
    assert ("user", "after") in said(reading.operations)
    for operation in reading.operations:
        assert decode_operation(encode_operation(operation)) == operation


def test_words_and_silence_are_told_apart() -> None:
    assert isinstance(words_of(ClaudeRecord(type="user")), SkippedRecord)
    spoken = parse_line(json.dumps(user("x")).encode())
    assert isinstance(spoken, ClaudeRecord)
    assert isinstance(words_of(spoken), ClaudeWords)
