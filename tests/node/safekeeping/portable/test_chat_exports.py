"""Exports of ChatGPT and claude.ai come in whole, once, with their times, in memory that does not grow with them."""

import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest

from crystal_node.safekeeping.portable import chat_exports
from crystal_node.safekeeping.portable.chat_exports import ChatExport, elements
from crystal_node.safekeeping.portable.conversation import NotAChatExport
from tests.support.machine import Vault

TIME = 1_767_603_600
MOON = {"summary": "Moon", "content": "It is full."}


def node(
    number: str, role: str, *parts: Any, at: float | None = TIME, kind: str = "text", **more: Any
) -> dict[str, Any]:
    content = {"content_type": kind, "parts": list(parts)} | more.pop("content", {})
    message = {
        "id": number,
        "author": {"role": role},
        "create_time": at,
        "content": content,
        "metadata": more,
    }
    return {"id": number, "message": message, "parent": None, "children": []}


def chatgpt(*nodes: dict[str, Any], session: str = "c-1") -> dict[str, Any]:
    mapping: dict[str, Any] = {"root": {"id": "root", "message": None}} | {one["id"]: one for one in nodes}
    return {"title": "Tides", "create_time": TIME, "conversation_id": session, "mapping": mapping}


CHATGPT = [
    chatgpt(
        node("s", "system", "You are ChatGPT"),
        node("b", "assistant", 'At noon, [as {every} \\"day\\"].', at=TIME + 2),
        node("a", "user", "When is high water?", at=TIME + 1),
        node("h", "user", "hidden", is_visually_hidden_from_conversation=True),
        node("t", "tool", "output"),
        node("p", "user", {"content_type": "image_asset_pointer"}, "And here?", at=TIME + 3, kind="multimodal_text"),
        node("r", "assistant", at=TIME + 4, kind="thoughts", content={"thoughts": [MOON]}),
        node("k", "assistant", at=TIME + 5, kind="code"),
    ),
    chatgpt(node("x", "user", "<private>secret</private>"), node("y", "user", "<private>no</private> yes"), session="c-2"),
]  # fmt: skip
CLAUDE: list[dict[str, Any]] = [
    {
        "uuid": "u-1",
        "name": "Gauges",
        "created_at": "2026-01-05T09:00:00Z",
        "chat_messages": [
            {"uuid": "m1", "sender": "human", "text": "Which gauge?", "created_at": "2026-01-05T09:00:01Z"},
            {
                "uuid": "m2",
                "sender": "assistant",
                "text": "",
                "created_at": "2026-01-05T09:00:02Z",
                "content": [
                    {"type": "thinking", "thinking": "Two of them."},
                    {"type": "tool_use", "name": "x", "input": {}},
                    {"type": "text", "text": "The pelican's."},
                ],
            },
            "odd",
        ],
    }
]


def written(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value, indent=1))
    return path


def told(export: ChatExport) -> list[tuple[str, str, str, int]]:
    return [(one.session, one.role, one.text, one.created_at) for one in export.records()]


def test_chatgpt_conversations_have_all_that_was_said_in_its_order(tmp_path: Path) -> None:
    export = ChatExport(written(tmp_path / "conversations.json", CHATGPT))
    at = TIME * 1000
    assert told(export) == [
        ("c-1", "user", "When is high water?", at + 1000),
        ("c-1", "assistant", 'At noon, [as {every} \\"day\\"].', at + 2000),
        ("c-1", "user", "And here?", at + 3000),
        ("c-1", "thinking", "Moon\nIt is full.", at + 4000),
        ("c-2", "user", "yes", at),
    ]
    assert export.conversations == 2
    assert export.skipped == {"not said by anybody": 3, "picture or file": 1, "tool call": 1}


def test_claude_conversations_too(tmp_path: Path) -> None:
    export = ChatExport(written(tmp_path / "conversations.json", CLAUDE))
    assert [(role, text) for _, role, text, _ in told(export)] == [
        ("user", "Which gauge?"),
        ("thinking", "Two of them."),
        ("assistant", "The pelican's."),
    ]
    assert export.skipped == {"tool call": 1, "not said by anybody": 1}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_wherever_a_block_ends(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_exports, "BLOCK_BYTES", size)
    values: list[list[Any]] = [CHATGPT, CLAUDE, [], [{}], [{"a": '\\"}]['}, {"b": ["{", {"c": "\\"}]}]]
    for value in values:
        for text in (json.dumps(value), json.dumps(value, indent=2), "\ufeff" + json.dumps(value)):
            data = text.encode()
            found = list(elements(io.BytesIO(data)))
            assert [json.loads(one or b"") for one, _ in found] == value
            assert all(0 < read <= len(data) for _, read in found)


def test_a_file_that_breaks_off_is_told(tmp_path: Path) -> None:
    whole = json.dumps(CHATGPT)
    path = tmp_path / "conversations.json"
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(NotAChatExport, match="middle"):
        told(ChatExport(path))


@pytest.mark.parametrize(
    "text", ["", "7", "[]", "{}", "[7, null]", '{"a": {"b": []}}', "not json", "\0" * 100]
)
def test_what_is_no_export_is_refused_with_what_to_give(tmp_path: Path, text: str) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(text)
    with pytest.raises(NotAChatExport) as refused:
        told(ChatExport(path))
    assert "ZIP" in (refused.value.hint or "")


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, [[]], [7], {"parts": 7}])
def test_values_of_any_form_end_nothing(tmp_path: Path, odd: object) -> None:
    base = CHATGPT[0]
    found: list[dict[str, Any]] = [
        *(base | {name: odd} for name in ("conversation_id", "create_time", "title")),
        base | {"mapping": {"a": odd, "b": {"message": odd}, "c": {"message": {"author": {"role": "user"}, "content": odd}}}},
        {"chat_messages": [odd, {"sender": odd}, {"sender": "human", "content": odd, "text": odd, "created_at": odd}]},
        CLAUDE[0],
    ]  # fmt: skip
    assert "The pelican's." in {
        text for _, _, text, _ in told(ChatExport(written(tmp_path / "c.json", found)))
    }


def test_a_zip_is_read_in_place_whatever_its_names_say(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../etc/conversations-001.json", json.dumps(CLAUDE))
        archive.writestr("/conversations-000.json", json.dumps(CHATGPT))
        archive.writestr("user.json", "{}")
    seen: list[tuple[int, int]] = []
    export = ChatExport(path, lambda done, total: seen.append((done, total)))
    assert [session for session, *_ in told(export)] == ["c-1"] * 4 + ["c-2"] + ["u-1"] * 3
    assert seen[-1][0] == seen[-1][1] == len(json.dumps(CLAUDE)) + len(json.dumps(CHATGPT))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["export.zip"]


def test_a_zip_that_unpacks_without_end_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", "[" + " " * 10_000_000 + "]")
    with pytest.raises(NotAChatExport, match="200 times"):
        told(ChatExport(path))


def test_damaged_and_foreign_zips_are_told(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("photos/cat.jpg", b"x")
    with pytest.raises(NotAChatExport, match=r"no conversations\.json"):
        told(ChatExport(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps(CHATGPT))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"high water", b"HIGH WATER"))
    with pytest.raises(NotAChatExport, match="damaged"):
        told(ChatExport(path))


def test_a_zip_whose_packed_bytes_are_damaged_is_told(tmp_path: Path) -> None:
    path = tmp_path / "chats.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([chatgpt(session=f"c-{n}") for n in range(500)]))
    data = bytearray(path.read_bytes())
    data[60:90] = b"\xff" * 30
    path.write_bytes(data)
    with pytest.raises(NotAChatExport, match="damaged ZIP"):
        list(ChatExport(path).records())


def test_a_conversation_over_the_limit_is_left_out_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_exports, "CONVERSATION_BYTES_MAX", 5000)
    monkeypatch.setattr(chat_exports, "BLOCK_BYTES", 512)
    long = chatgpt(node("l", "user", "wave " * 4000), session="long")
    export = ChatExport(written(tmp_path / "c.json", [CHATGPT[1], long, CHATGPT[1]]))
    assert {session for session, *_ in told(export)} == {"c-2"}
    assert export.skipped["conversation too long"] == 1


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    one = json.dumps(chatgpt(node("l", "user", "wave " * 2000)))
    with path.open("w") as file:
        file.write("[" + one)
        for _ in range(2500):
            file.write(",\n" + one)
        file.write("]")
    tracemalloc.start()
    try:
        assert sum(1 for _ in ChatExport(path).records()) == 2501
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size // 5
    finally:
        tracemalloc.stop()


def test_an_export_comes_in_once_and_is_found(vault: Vault, tmp_path: Path) -> None:
    core = vault.core
    path = tmp_path / "chatgpt.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps(CHATGPT))
    dry = core.call("import", str(path), "--dry-run", "--json").json
    assert (dry["new"], dry["conversations"]) == (5, 2)
    assert core.call("import", str(path), "--json").json["new"] == 5
    again = core.call("import", str(path), "--json").json
    assert (again["new"], again["known"]) == (0, 5)
    (hit, *_) = core.call("search", "--json", "high water").json["results"]
    assert (hit["source"], hit["agent"], hit["created_at"][:10]) == ("chatgpt", "chatgpt", "2026-01-05")
    core.call("forget", hit["id"], "--yes")
    core.call("sync")
    assert core.call("import", str(path), "--json").json["forgotten"] == 1
    refused = core.call("import", str(tmp_path / "none.zip"), check=False)
    assert "there is no" in refused.err
