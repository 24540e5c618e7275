"""Chats of Gemini, Cursor and Copilot come in whole, once, with their times.

None of these files was written by its program. Their forms are those of published sources: Google's reference of exported
activities with public readers of real exports, VS Code's own source, and public readers of Cursor's databases.
"""

import io
import json
import tracemalloc
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest

from crystal_node.base.project import ProjectFinder
from crystal_node.capture.exclusions import Exclusion, Exclusions
from crystal_node.safekeeping.portable import chat_exports, conversation, cursor_database, gemini_activity
from crystal_node.safekeeping.portable.chat_exports import ChatExport
from crystal_node.safekeeping.portable.conversation import NotAChatExport
from crystal_node.safekeeping.portable.gemini_activity import words_of
from tests.support.machine import Vault

NOON = 1_767_614_400_000
"""2026-01-05, 12:00 UTC."""
ANSWER = "<p>At <b>noon</b> &amp; midnight:</p><ul><li>one</li><li>two</li></ul><pre><code>if a:\n    b &lt; c</code></pre>"
WORDS = "At noon & midnight:\n\n- one\n- two\n\n```\nif a:\n    b < c\n```"
GEMINI: list[dict[str, Any]] = [
    {
        "header": "Gemini Apps",
        "title": "Prompted And tomorrow?",
        "time": "2026-01-05T12:01:00.250Z",
        "products": ["Gemini Apps"],
        "safeHtmlItem": [{"html": "<p>An hour later.</p>"}],
    },
    {
        "header": "Gemini Apps",
        "title": "Prompted When is high water?",
        "time": "2026-01-05T12:00:00.500Z",
        "products": ["Gemini Apps"],
        "safeHtmlItem": [{"html": ANSWER}],
    },
    {"header": "Gemini Apps", "title": "Used an assistant", "time": "2026-01-05T11:00:00Z", "products": ["Gemini Apps"]},
    {"header": "YouTube", "title": "Watched the tide", "time": "2026-01-05T10:00:00Z", "products": ["YouTube"]},
    {
        "header": "Gemini-Apps",
        "title": "Wann ist Flut?",
        "titleUrl": "https://gemini.google.com/app/0a1b2c3d4e5f6071",
        "time": "2026-01-04T12:00:00Z",
        "products": ["Gemini-Apps"],
        "safeHtmlItem": [{"html": "Mittags."}],
    },
]  # fmt: skip
EXPORTED: dict[str, Any] = {
    "responderUsername": "GitHub Copilot",
    "initialLocation": "panel",
    "requests": [
        {
            "requestId": "request_1",
            "responseId": "response_1",
            "message": {"text": "Why does the gauge stop?", "parts": []},
            "timestamp": NOON,
            "response": [
                {"kind": "thinking", "value": "Look at its clock."},
                {"value": "The clock in ", "supportHtml": False},
                {"kind": "inlineReference", "inlineReference": {"path": "/home/ann/tides/clock.py", "scheme": "file"}},
                {"value": " is slow."},
                {"kind": "toolInvocationSerialized", "toolId": "copilot_readFile"},
                {"kind": "markdownContent", "content": {"value": "Set it."}},
                {"kind": "undoStop", "id": "x"},
            ],
        },
        {"requestId": "request_2", "message": "And then?", "timestamp": NOON + 60_000, "response": ["It runs."]},
    ],
}  # fmt: skip
SESSION = EXPORTED | {"version": 3, "sessionId": "s-1", "creationDate": NOON - 5, "customTitle": "Gauge"}
CHAT = [
    ("user", "Why does the gauge stop?", NOON),
    ("thinking", "Look at its clock.", NOON),
    ("assistant", "The clock in `clock.py` is slow.\n\nSet it.", NOON),
    ("user", "And then?", NOON + 60_000),
    ("assistant", "It runs.", NOON + 60_000),
]


def html_of(activities: list[dict[str, Any]], at: str) -> bytes:
    """The same activities as Takeout's HTML has them."""
    outer, text = "mdl-cell mdl-cell--12-col", "content-cell mdl-cell mdl-cell--6-col mdl-typography--body-1"
    cells = "".join(
        f'<div class="outer-cell {outer} mdl-shadow--2dp"><div class="mdl-grid"><div class="header-cell {outer}">'
        f'<p class="mdl-typography--title">{one["header"]}<br></p></div><div class="{text}">'
        f"{one['title'].replace('Prompted ', 'Prompted&nbsp;')}<br>{at}<br>{one['safeHtmlItem'][0]['html']}</div>"
        f'<div class="{text} mdl-typography--text-right"></div><div class="content-cell {outer} mdl-typography--caption">'
        "<b>Products:</b><br>&emsp;Gemini Apps<br></div></div></div>"
        for one in activities
    )
    return f"<html><head><title>My Activity</title></head><body><div>{cells}</div></body></html>".encode()


def written(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return path


def told(export: ChatExport) -> list[tuple[str, str, int]]:
    return [(one.role, one.text, one.created_at) for one in export.records()]


def database(
    path: Path, table: str, rows: dict[str, object], key: str = "key TEXT UNIQUE ON CONFLICT REPLACE"
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with apsw.Connection(str(path)) as made:
        made.execute(f"CREATE TABLE {table} ({key}, value BLOB)")
        for name, value in rows.items():
            made.execute(
                f"INSERT INTO {table} VALUES (?, ?)",  # noqa: S608
                (name, value if isinstance(value, str) else json.dumps(value)),
            )
    return path


CURSOR: dict[str, object] = {
    "composerData:c-1": {
        "composerId": "c-1",
        "name": "Tides",
        "createdAt": NOON,
        "fullConversationHeadersOnly": [{"bubbleId": name, "type": 1} for name in ("b-1", "b-3", "b-2", "b-9")],
        "workspaceIdentifier": {"uri": {"fsPath": "/home/ann/tides"}},
    },
    "bubbleId:c-1:b-1": {"type": 1, "bubbleId": "b-1", "text": "When is high water?"},
    "bubbleId:c-1:b-2": {"type": 2, "bubbleId": "b-2", "text": "At noon.", "createdAt": "2026-01-05T12:00:09Z"},
    "bubbleId:c-1:b-3": {
        "type": 2,
        "bubbleId": "b-3",
        "text": "",
        "thinking": {"text": "Ask the gauge."},
        "toolFormerData": {"name": "read_file"},
        "createdAt": "2026-01-05T12:00:05Z",
    },
    "composerData:c-2": {"createdAt": NOON, "conversation": [{"type": 1, "text": "Inline?"}, {"type": 2, "text": "Yes."}]},
    "composerData:c-3": "{broken",
    "other": "x" * 100,
}  # fmt: skip
CURSOR_SAID = [
    ("user", "When is high water?", NOON),
    ("thinking", "Ask the gauge.", NOON + 5000),
    ("assistant", "At noon.", NOON + 9000),
    ("user", "Inline?", NOON),
    ("assistant", "Yes.", NOON),
]


def test_gemini_questions_come_with_their_answers_a_day_in_its_order(tmp_path: Path) -> None:
    export = ChatExport(written(tmp_path / "MyActivity.json", GEMINI))
    records = list(export.records())
    assert [(one.session, one.role, one.text, one.created_at) for one in records] == [
        ("gemini-2026-01-05", "user", "When is high water?", NOON + 500),
        ("gemini-2026-01-05", "assistant", WORDS, NOON + 500),
        ("gemini-2026-01-05", "user", "And tomorrow?", NOON + 60_250),
        ("gemini-2026-01-05", "assistant", "An hour later.", NOON + 60_250),
        ("0a1b2c3d4e5f6071", "user", "Wann ist Flut?", NOON - 86_400_000),
        ("0a1b2c3d4e5f6071", "assistant", "Mittags.", NOON - 86_400_000),
    ]
    assert {one.agent for one in records} == {"gemini-app"}
    assert export.skipped == {"not a question": 1, "activity of another product": 1}


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_gemini_html_says_the_same_wherever_a_block_ends(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemini_activity, "BLOCK_BYTES", size)
    data = html_of(GEMINI[1:2], "Jan 5, 2026, 1:00:00\u202fPM GMT+1")
    as_html = list(ChatExport(written(tmp_path / "MyActivity.html", data)).records())
    as_json = list(ChatExport(written(tmp_path / "MyActivity.json", GEMINI[1:2])).records())
    assert [(one.message, one.text) for one in as_html] == [(one.message, one.text) for one in as_json]
    assert {one.created_at for one in as_html} == {NOON}


def test_a_date_that_cannot_be_read_is_told_with_what_helps(tmp_path: Path) -> None:
    export = ChatExport(written(tmp_path / "a.html", html_of(GEMINI[:2], "05.01.2026, 12:00:00 MEZ")))
    with pytest.raises(NotAChatExport):
        list(export.records())
    assert export.skipped == {"question without a date that can be read (JSON has one)": 2}


def test_of_a_takeout_only_gemini_is_read_and_json_before_html(tmp_path: Path) -> None:
    path = tmp_path / "takeout.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Takeout/My Activity/Gemini Apps/MyActivity.json", json.dumps(GEMINI[:2]))
        archive.writestr("Takeout/My Activity/Gemini Apps/MyActivity.html", html_of(GEMINI[:2], "x"))
        archive.writestr("Takeout/My Activity/Search/MyActivity.json", "[" * 500)
    export = ChatExport(path)
    assert len(list(export.records())) == 4
    assert not export.skipped


def test_an_exported_chat_of_copilot_and_its_session_are_one(tmp_path: Path) -> None:
    export = ChatExport(written(tmp_path / "chat.json", EXPORTED))
    records = list(export.records())
    assert [(one.role, one.text, one.created_at) for one in records] == CHAT
    assert export.skipped == {"tool call": 1, "step of the editor": 1}
    session = list(ChatExport(written(tmp_path / "s-1.json", SESSION)).records())
    assert [(one.session, one.message) for one in session] == [(one.session, one.message) for one in records]


def test_a_log_of_a_session_is_put_together(tmp_path: Path) -> None:
    first, second = EXPORTED["requests"]
    lines: list[dict[str, Any]] = [
        {"kind": 0, "v": SESSION | {"requests": [first | {"response": [{"value": "Torn"}]}]}},
        {"kind": 2, "k": ["requests", 0, "response"], "v": first["response"], "i": 0},
        {"kind": 2, "k": ["requests"], "v": [second | {"message": "x"}]},
        {"kind": 1, "k": ["requests", 1, "message"], "v": "And then?"},
        {"kind": 3, "k": ["customTitle"]},
        {"kind": 1, "k": ["requests", 7, "message"], "v": "nowhere"},
        {"kind": 2, "k": ["requests", "a"], "v": [1]},
        {"kind": 1, "k": [], "v": {}},
    ]
    export = ChatExport(written(tmp_path / "s-1.jsonl", "\n".join(map(json.dumps, lines)).encode()))
    assert told(export) == CHAT
    assert export.skipped["change of a chat that does not fit it"] == 3


def test_a_log_that_ends_within_a_line_keeps_its_whole_lines_and_holds_up_no_other_file(
    tmp_path: Path,
) -> None:
    whole = json.dumps({"kind": 0, "v": SESSION})
    folder = tmp_path / "chatSessions"
    written(folder / "a.jsonl", f'{whole}\n{{"kind": 1, "k": ["cust'.encode())
    written(folder / "b.json", b'{"requests": [')
    other = EXPORTED | {"requests": [EXPORTED["requests"][0] | {"requestId": "r-9"}]}
    written(folder / "c.json", other)
    export = ChatExport(folder)
    said = told(export)
    assert (said[: len(CHAT)], said[len(CHAT) :]) == (CHAT, CHAT[: len(said) - len(CHAT)])
    assert len(said) > len(CHAT)
    assert export.skipped["damaged conversation"] == 1
    assert sum(count for reason, count in export.skipped.items() if "cannot be read" in reason) == 1


def test_a_workspace_of_an_editor_says_the_project_which_may_be_kept_out(tmp_path: Path) -> None:
    workspace = tmp_path / "workspaceStorage" / "0af3"
    written(workspace / "workspace.json", {"folder": f"file://{tmp_path}/home/my%20tides"})
    written(workspace / "chatSessions" / "s-1.json", SESSION)
    written(workspace / "other.json", SESSION)
    places = ProjectFinder(tmp_path / "home")
    for path in (tmp_path, workspace / "chatSessions"):
        records = list(ChatExport(path, places=places).records())
        assert len(records) == len(CHAT)
        assert {one.project for one in records} == {"my tides"}
    kept_out = Exclusions(tmp_path / "home", [Exclusion(folder="~/my tides")])
    export = ChatExport(tmp_path, places=places, exclusions=kept_out)
    assert list(export.records()) == []
    assert export.skipped["excluded project"] == 4


def test_chats_of_cursor_come_in_the_order_that_they_had(tmp_path: Path) -> None:
    path = database(tmp_path / "state.vscdb", "cursorDiskKV", CURSOR)
    before = path.read_bytes()
    export = ChatExport(path)
    assert told(export) == CURSOR_SAID
    assert export.skipped == {
        "tool call": 1,
        "message that the database no longer has": 1,
        "damaged conversation": 1,
    }
    assert (path.read_bytes(), [one.name for one in tmp_path.iterdir()]) == (before, ["state.vscdb"])


def test_earlier_tabs_of_cursor_too_and_no_other_key(tmp_path: Path) -> None:
    tabs = {"tabs": [{"tabId": "t-1", "chatTitle": "T", "lastSendTime": NOON, "bubbles": [
        {"type": "user", "id": "u", "text": "Old question?"}, {"type": "ai", "id": "a", "rawText": "Old answer."}, 7]},
    ]}  # fmt: skip
    rows: dict[str, object] = {
        "workbench.panel.aichat.view.aichat.chatdata": tabs,
        "cursorAuth/accessToken": "canary",
    }
    path = database(tmp_path / "workspaceStorage" / "1" / "state.vscdb", "ItemTable", rows)
    assert told(ChatExport(path)) == [("user", "Old question?", NOON), ("assistant", "Old answer.", NOON)]


def test_earlier_tabs_over_the_limit_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_database, "CONVERSATION_BYTES_MAX", 3000)
    path = database(tmp_path / "state.vscdb", "cursorDiskKV", CURSOR)
    with apsw.Connection(str(path)) as made:
        made.execute("CREATE TABLE ItemTable (key TEXT, value BLOB)")
        tabs = "workbench.panel.aichat.view.aichat.chatdata"
        made.execute("INSERT INTO ItemTable VALUES (?, ?)", (tabs, "x" * 4000))
    export = ChatExport(path)
    assert told(export) == CURSOR_SAID
    assert export.skipped["conversation too long"] == 1


def test_a_doubled_key_and_one_that_is_no_text_hold_up_no_other_chat(tmp_path: Path) -> None:
    path = database(tmp_path / "state.vscdb", "cursorDiskKV", CURSOR, key="key TEXT")
    with apsw.Connection(str(path)) as made:
        made.execute("CREATE INDEX names ON cursorDiskKV (key)")
        made.execute("INSERT INTO cursorDiskKV VALUES ('composerData:c-1', '{}')")
        made.execute("INSERT INTO cursorDiskKV VALUES (CAST(x'636f6d706f736572446174613aff' AS TEXT), '{}')")
    assert set(CURSOR_SAID) <= set(told(ChatExport(path)))


def test_markup_without_an_end_takes_no_longer_than_its_length() -> None:
    assert words_of("<" + "a" * 2_000_000).startswith("<a")  # by squares it would be days


def test_a_chat_of_cursor_over_the_limit_is_left_out_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_database, "CONVERSATION_BYTES_MAX", 3000)
    rows = CURSOR | {
        "composerData:c-0": {"createdAt": NOON},
        "bubbleId:c-0:b": {"type": 1, "text": "x" * 4000},
    }
    export = ChatExport(database(tmp_path / "state.vscdb", "cursorDiskKV", rows))
    assert told(export) == CURSOR_SAID
    assert export.skipped["conversation too long"] == 1


@pytest.mark.parametrize(
    ("table", "key"),
    [("other", "key TEXT"), ("cursorDiskKV", "name TEXT"), ("cursorDiskKV", "key TEXT")],
    ids=["no table", "no column", "no index, so that each chat would read all of it"],
)
def test_a_database_of_another_form_is_refused(tmp_path: Path, table: str, key: str) -> None:
    path = database(tmp_path / "state.vscdb", table, {"composerData:c": {"conversation": []}}, key)
    with pytest.raises(NotAChatExport, match="Cursor"):
        list(ChatExport(path).records())


@pytest.mark.parametrize("odd", [None, 7, "x", "", [], {}, [[]], [7], {"text": 7}, [{}], True, -1, 1e300])
def test_values_of_any_form_end_nothing(tmp_path: Path, odd: object) -> None:
    values: list[object] = [
        *(GEMINI[0] | {name: odd} for name in GEMINI[0]),
        *(EXPORTED | {"requests": [{name: odd}]} for name in ("message", "response", "timestamp", "requestId")),
        *(SESSION | {name: odd} for name in ("creationDate", "sessionId", "customTitle")),
        EXPORTED | {"requests": [{"message": "m", "response": [{"kind": odd, "value": odd}]}]},
        EXPORTED | {"requests": [{"message": "m", "response": [{"kind": "inlineReference", "inlineReference": odd}]}]},
        {"kind": 0, "v": odd}, {"kind": 1, "k": odd, "v": odd}, {"kind": 2, "k": [odd, odd], "v": odd, "i": odd}, odd,
    ]  # fmt: skip
    path = written(tmp_path / "c.json", b"\n".join(json.dumps(one).encode() for one in [*values, EXPORTED]))
    assert set(CHAT) <= set(told(ChatExport(path)))
    rows: dict[str, object] = {
        "composerData:c-1": {
            "createdAt": odd,
            "conversation": [odd, {"type": odd, "text": odd, "thinking": odd}],
        },
        "composerData:c-2": {
            "fullConversationHeadersOnly": [odd, {"bubbleId": odd}],
            "workspaceIdentifier": odd,
        },
        "composerData:c-4": odd,
        "composerData:d": CURSOR["composerData:c-2"],
    }
    found = told(ChatExport(database(tmp_path / "state.vscdb", "cursorDiskKV", rows)))
    assert set(CURSOR_SAID[3:]) <= set(found)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"requests":['])
def test_nesting_without_end_is_refused_at_once(tmp_path: Path, opening: bytes) -> None:
    path = written(tmp_path / "deep.json", opening * 100_000)
    with path.open("ab") as file:
        file.truncate(10 * 1024**3)  # a file of 10 GiB, of which nothing more is read
    with pytest.raises(NotAChatExport, match="nested more than 200 deep"):
        list(ChatExport(path).records())


def test_an_activity_without_end_takes_no_memory_and_the_next_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemini_activity, "CELL_BYTES_MAX", 100_000)
    monkeypatch.setattr(gemini_activity, "BLOCK_BYTES", 10_000)
    cell = html_of(GEMINI[:1], "Jan 5, 2026, 12:01:00 PM UTC")
    long = html_of([GEMINI[0] | {"safeHtmlItem": [{"html": "<p>wave " * 1_000_000}]}], "x")
    skipped: Counter[str] = Counter()
    file = io.BytesIO(cell + long + cell)
    tracemalloc.start()
    try:
        found = [one for one, _ in gemini_activity.of_html(file, skipped) if one]
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert (len(found), skipped["conversation too long"]) == (2, 1)


def test_words_of_markup_keep_all_words_whatever_it_is() -> None:
    assert words_of("a < b <3 <!-- no --> c</p></pre></pre>d<script>e") == "a < b <3  c\n\n```\n\n```\n\nde"
    assert len(words_of("<a" * 200_000)) == 400_000


def test_a_folder_of_other_files_and_too_many_files_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "notes.json", [])
    with pytest.raises(NotAChatExport, match=r"manifest\.json"):
        list(ChatExport(tmp_path).records())
    for number in range(3):
        written(tmp_path / "chatSessions" / f"{number}.json", SESSION)
    (tmp_path / "chatSessions" / "link.json").symlink_to(tmp_path / "chatSessions" / "0.json")
    assert len(list(ChatExport(tmp_path).records())) == 3 * len(CHAT)
    monkeypatch.setattr(chat_exports, "MEMBERS_MAX", 2)
    with pytest.raises(NotAChatExport, match="3 files"):
        list(ChatExport(tmp_path).records())


def test_a_log_over_the_limit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_exports, "CONVERSATION_BYTES_MAX", conversation.CONVERSATION_BYTES_MAX // 2**15)
    lines = [{"kind": 0, "v": SESSION}, *({"kind": 1, "k": ["x"], "v": "y" * 1000} for _ in range(5))]
    export = ChatExport(written(tmp_path / "s.jsonl", b"\n".join(json.dumps(one).encode() for one in lines)))
    with pytest.raises(NotAChatExport):
        list(export.records())
    assert export.skipped == {"conversation too long": 1}


def test_they_come_in_once_and_are_found(vault: Vault, tmp_path: Path) -> None:
    core = vault.core
    written(tmp_path / "x" / "MyActivity.json", GEMINI)
    written(tmp_path / "x" / "chatSessions" / "s-1.json", SESSION)
    database(tmp_path / "x" / "state.vscdb", "cursorDiskKV", CURSOR)
    dry = core.call("import", str(tmp_path / "x"), "--dry-run", "--json").json
    assert (dry["new"], dry["conversations"]) == (16, 6)
    assert core.call("import", str(tmp_path / "x"), "--json").json["by_agent"] == {
        "gemini-app": 6, "copilot-chat": 5, "cursor": 5,
    }  # fmt: skip
    again = core.call("import", str(tmp_path / "x"), "--json").json
    assert (again["new"], again["known"]) == (0, 16)
    (hit, *_) = core.call("search", "--json", "gauge stop clock").json["results"]
    assert (hit["agent"], hit["created_at"][:10]) == ("copilot-chat", "2026-01-05")
