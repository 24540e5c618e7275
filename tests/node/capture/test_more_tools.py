"""Transcripts of Qwen Code, Copilot CLI, Cline, Continue, opencode and goose: what their programs put around what was said, and
what these do with their files."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from crystal_node.capture import database_adapter
from crystal_node.capture.adapter import decode_state, encode_state
from crystal_node.capture.cline import Cline
from crystal_node.capture.continue_dev import Continue
from crystal_node.capture.copilot import CopilotCli
from crystal_node.capture.goose import Goose
from crystal_node.capture.line_reader import FileState
from crystal_node.capture.opencode import OpenCode
from crystal_node.capture.qwen import QwenCode
from tests.node.capture.kept import insert
from tests.node.capture.tools import HOME, QUIET_NS, line, pieces, read_all
from tests.node.capture.transcripts import FIXTURES, said

WHEN = 1_795_353_600_000


def _written(path: Path, *records: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(line, records)))
    return path


def _qwen(text: str, **changes: Any) -> dict[str, Any]:
    parts = changes.pop("parts", [{"text": text}])
    record = {"type": "user", "uuid": f"u-{text}", "sessionId": "s", "timestamp": "2026-11-22T13:20:39Z"}
    return record | {"cwd": "/home/mara/src", "message": {"role": "user", "parts": parts}} | changes


def test_of_a_qwen_prompt_what_the_person_typed_is_recorded(tmp_path: Path) -> None:
    context = {"text": "<qwen:user-prompt-submit-context>\nremembered\n</qwen:user-prompt-submit-context>"}
    files = {"text": "\n--- Content from referenced files ---"}
    read = [
        files,
        {"text": "\nContent from @a.md:\n"},
        {"text": "secret"},
        {"text": "\n--- End of content ---"},
    ]
    path = _written(
        tmp_path / "projects" / "p" / "chats" / "s.jsonl",
        _qwen(
            "one", systemPayload={"displayText": "one", "hookContext": "x"}, parts=[{"text": "one"}, context]
        ),
        _qwen("two", parts=[{"text": "two"}, context]),
        _qwen("three", parts=[{"text": "three"}, *read]),
        _qwen("four", subtype="mid_turn_user_message", systemPayload={"displayText": "four"}),
        _qwen("five", subtype="notification", provenance="system"),
        _qwen("six", subtype="cron", provenance="system"),
        _qwen("seven", subtype="goal_runtime", provenance="goal_runtime"),
        _qwen("eight", provenance="real_user"),
        {"type": "system", "uuid": "c", "subtype": "chat_compression", "systemPayload": {"text": "summary"}},
    )
    operations, counts, _ = read_all(QwenCode(tmp_path, HOME), path)
    assert said(operations) == [("user", text) for text in ("one", "two", "three", "four", "eight")]
    assert counts.skipped == {"written by the tool": 3, "record system": 1}


def test_a_qwen_sub_agent_and_an_archived_session_belong_to_their_session(tmp_path: Path) -> None:
    adapter = QwenCode(tmp_path, HOME)
    chats = tmp_path / "projects" / "p" / "chats"
    sub = chats.parent / "subagents" / "s" / "agent-1.jsonl"
    _written(sub, _qwen("count", sessionId=None), _qwen("note", externalInputKind="notification"))
    (sub.parent / "agent-1.jsonl.stream").write_text('{"v": 1, "text": "cou"}\n')
    archived = _written(chats / "archive" / "s.jsonl", _qwen("one"))
    assert [found.path for found in adapter.discover()] == [archived, sub]
    assert adapter.former(archived) == chats / "s.jsonl"
    operations, _, _ = read_all(adapter, sub)
    assert said(operations) == [("subagent-user", "count")]
    assert {one.session for one in operations} == {"s"}


def test_of_copilots_events_those_of_persons_and_models_are_recorded(tmp_path: Path) -> None:
    def event(number: int, kind: str, data: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "type": kind,
            "data": data,
            "id": str(number),
            "timestamp": f"2026-11-22T13:20:{number:02}Z",
        } | more

    path = _written(
        tmp_path / "session-state" / "s" / "events.jsonl",
        event(0, "session.start", {"sessionId": "s", "context": {"cwd": "/home/mara/src"}}),
        event(1, "user.message", {"content": "one", "transformedContent": "<date/>one"}),
        event(2, "user.message", {"content": "the skill's text", "source": "skill-pdf"}),
        event(3, "user.message", {"content": "go on", "isAutopilotContinuation": True}),
        event(4, "assistant.message", {"content": "two", "reasoningText": "why"}),
        event(5, "assistant.message", {"content": "", "toolRequests": [{}]}),
        event(6, "user.message", {"content": "count"}, agentId="a"),
        event(7, "session.context_changed", {"cwd": "/home/mara/other"}),
        event(8, "assistant.reasoning", {"content": "why", "reasoningId": "r"}),
        event(9, "user.message", {"content": "three"}),
        event(10, "session.compaction_complete", {"summaryContent": "a summary", "content": "x"}),
    )
    operations, counts, _ = read_all(CopilotCli(tmp_path, HOME), path)
    assert said(operations) == [
        ("user", "one"),
        ("thinking", "why"),
        ("assistant", "two"),
        ("subagent-user", "count"),
        ("user", "three"),
    ]
    assert [one.project for one in operations] == ["src", "other"]
    assert counts.spots == []


def test_a_copilot_session_that_was_stepped_over_is_still_in_the_folder_that_it_changed_to(
    tmp_path: Path,
) -> None:
    adapter = CopilotCli(tmp_path, HOME)
    times = {"timestamp": "2026-11-22T13:20:39Z"}
    events = [
        {"type": "session.start", "data": {"sessionId": "s", "context": {"cwd": "/home/mara/src"}}} | times,
        {"type": "session.context_changed", "data": {"cwd": "/home/mara/other"}} | times,
    ]
    path = _written(tmp_path / "session-state" / "s" / "events.jsonl", *events)
    state = decode_state(encode_state(adapter.skip(path)))
    _written(path, *events, {"type": "user.message", "data": {"content": "one"}, "id": "1"} | times)
    operations, _, _ = read_all(adapter, path, state)
    assert [(one.session, one.project) for one in operations] == [("s", "other")]


def _cline(path: Path, *messages: dict[str, Any], agent: str = "lead", session: str = "s") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"agent": agent, "sessionId": session, "messages": messages}))
    return path


def _block(number: int, role: str, text: str) -> dict[str, Any]:
    return {"id": str(number), "role": role, "ts": WHEN + number, "content": [{"type": "text", "text": text}]}


def test_a_cline_session_is_recorded_without_its_wrappings_and_with_its_sub_agents(tmp_path: Path) -> None:
    adapter, folder = Cline(tmp_path, HOME), tmp_path / "data" / "sessions" / "s"
    path = _cline(
        folder / "s.messages.json",
        _block(1, "user", '<user_input mode="act">Is <b>it</b> on?</user_input>'),
        _block(
            2,
            "user",
            '<mode_notice>You switched.</mode_notice>\n\n<user_input mode="plan">Plan it</user_input>',
        ),
        _block(3, "user", '<user_command slash="review">Look at it</user_command>'),
        {"id": "4", "role": "user", "ts": WHEN, "content": [{"type": "tool_result", "content": "x"}]},
        {"id": "5", "role": "assistant", "ts": WHEN, "content": [{"type": "thinking", "thinking": "why"}]},
        _block(6, "system", "odd"),
    )
    (folder / "s.json").write_text(json.dumps({"cwd": "/home/mara/src"}))
    sub = _cline(
        folder / "agent1.messages.json", _block(1, "user", "Count"), agent="subagent", session="s__1"
    )
    assert [found.path for found in adapter.discover()] == [sub, path]
    operations, counts, _ = read_all(adapter, path)
    assert said(operations) == [
        ("user", "Is <b>it</b> on?"),
        ("user", "Plan it"),
        ("user", "Look at it"),
        ("thinking", "why"),
    ]
    assert {one.project for one in operations} == {"src"}
    assert [spot.reason for spot in counts.spots] == ["record of unknown form"]
    operations, _, _ = read_all(adapter, sub)
    assert (said(operations), operations[0].session) == ([("subagent-user", "Count")], "s")


def test_a_cline_message_that_went_on_is_recorded_as_its_next_version(tmp_path: Path) -> None:
    adapter = Cline(tmp_path, HOME)
    path = _cline(
        tmp_path / "data/sessions/s/s.messages.json", _block(1, "user", "one"), _block(2, "assistant", "tw")
    )
    _, _, state = read_all(adapter, path)
    _cline(path, _block(1, "user", "one"), _block(2, "assistant", "two"), _block(3, "user", "three"))
    operations, _, _ = read_all(adapter, path, state)
    assert [(piece.message, piece.text) for _, piece in pieces(operations)] == [("2", "two"), ("3", "three")]


def _continue(path: Path, *items: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    place = {"workspaceDirectory": "file:///home/mara/my%20src"}
    path.write_text(json.dumps({"sessionId": "s", "history": items} | place))
    return path


def _item(role: str, content: object, **more: Any) -> dict[str, Any]:
    return {"message": {"role": role, "content": content}} | more


def test_a_continue_session_without_times_is_recorded_once_and_private_by_place(tmp_path: Path) -> None:
    adapter = Continue(tmp_path, HOME)
    path = tmp_path / "sessions" / "s.json"
    before = [
        _item(
            "user", [{"type": "text", "text": "go on"}, {"type": "imageUrl", "imageUrl": {"url": "data:"}}]
        ),
        _item("assistant", "done", reasoning={"text": "why"}),
        _item("tool", "output"),
        _item("user", "go on"),
        _item("assistant", "a summary", conversationSummary="a summary"),
        _item("assistant", "kept", conversationSummary="a summary"),
    ]
    _continue(path, *before)
    (path.parent / "sessions.json").write_text("[]")
    assert [found.path for found in adapter.discover()] == [path]
    operations, counts, state = read_all(adapter, path)
    assert said(operations) == [
        ("user", "go on"),
        ("thinking", "why"),
        ("assistant", "done"),
        ("user", "go on"),
        ("assistant", "kept"),
    ]
    assert {one.project for one in operations} == {"my src"}
    assert counts.spots == []
    _continue(path, *before, _item("user", "go on"))
    operations, _, _ = read_all(adapter, path, state)
    assert said(operations) == [("user", "go on")], "said three times is said three times"
    skipped = adapter.skip(path)
    _continue(path, *before, _item("user", "go on"), _item("user", "public"))
    assert said(read_all(adapter, path, skipped)[0]) == [("user", "public")]


class Database:
    """One tool's database, open as its program has it."""

    def __init__(self, path: Path, kept: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.database = path, apsw.Connection(str(path))
        self.database.execute("PRAGMA journal_mode = wal; PRAGMA foreign_keys = off")
        self.database.execute(FIXTURES.joinpath(kept, "schema.sql").read_text())

    def add(self, table: str, **row: Any) -> None:
        insert(self.database, {"table": table} | row)


class OpenCodeStore(Database):
    """opencode's."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "opencode.db", "real/opencode")
        self.adapter = OpenCode(root, HOME)
        self.number = 0

    def session(self, session: str, parent: str | None = None) -> None:
        names = {
            "project_id": "p",
            "slug": "x",
            "title": "",
            "version": "1",
            "time_created": 1,
            "time_updated": 1,
        }
        self.add("session", id=session, parent_id=parent, directory="/home/mara/src", **names)

    def message(self, session: str, role: str, *parts: dict[str, Any], **data: Any) -> str:
        self.number += 1
        message, times = f"msg_{self.number:03}", {"time_created": WHEN + self.number, "time_updated": WHEN}
        kept = json.dumps({"role": role, "time": {"created": WHEN + self.number}} | data)
        self.add("message", id=message, session_id=session, data=kept, **times)
        for part in parts:
            self.part(message, session, part)
        return message

    def part(self, message: str, session: str, part: dict[str, Any]) -> None:
        self.number += 1
        times = {"time_created": WHEN, "time_updated": WHEN}
        place = {"id": f"prt_{self.number:03}", "message_id": message, "session_id": session}
        self.add("part", data=json.dumps(part), **place, **times)

    def complete(self, message: str) -> None:
        done = json.dumps({"role": "assistant", "time": {"created": WHEN, "completed": WHEN + 1}})
        self.database.execute(
            "UPDATE message SET data = ?, time_updated = ? WHERE id = ?", (done, WHEN + 1, message)
        )

    def texts(self, state: FileState | None = None, quiet_ns: int = -1) -> tuple[list[str], FileState]:
        operations, _, after = read_all(self.adapter, self.path, state, quiet_ns=quiet_ns)
        assert decode_state(encode_state(after)) == after
        return [text for _, text in said(operations)], after


def _text(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text} | more


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenCodeStore]:
    store = OpenCodeStore(tmp_path)
    store.session("s")
    with closing(store.database):
        yield store


def test_opencodes_messages_wait_until_they_are_whole(opened: OpenCodeStore) -> None:
    prompt = opened.message("s", "user")
    assert opened.texts()[0] == []
    opened.part(prompt, "s", _text("asked"))
    texts, state = opened.texts()
    assert texts == [], "a prompt whose answer has not begun may get more parts"
    answer = opened.message("s", "assistant", _text("half"))
    texts, state = opened.texts(state)
    assert texts == ["asked"]
    opened.part(answer, "s", _text("whole"))
    opened.complete(answer)
    texts, state = opened.texts(state)
    assert texts == ["half\n\nwhole"]
    assert opened.adapter.unchanged(opened.path, state, QUIET_NS)


def test_a_prompt_that_is_queued_while_opencodes_model_writes_leaves_the_answer_whole(
    opened: OpenCodeStore,
) -> None:
    opened.message("s", "user", _text("first"))
    answer = opened.message("s", "assistant", _text("half"))
    opened.message("s", "user", _text("queued"))
    texts, state = opened.texts()
    assert texts == ["first"]
    opened.part(answer, "s", _text("whole"))
    opened.complete(answer)
    texts, state = opened.texts(state)
    assert texts == ["half\n\nwhole"]
    opened.message("s", "assistant", _text("second"))
    assert opened.texts(state)[0] == ["queued"]


def test_a_message_of_opencode_that_was_never_finished_is_taken_when_it_is_quiet(
    opened: OpenCodeStore,
) -> None:
    opened.message("s", "user", _text("asked"))
    opened.message("s", "assistant", _text("broke off"))
    texts, state = opened.texts()
    assert texts == ["asked"]
    assert opened.adapter.unchanged(opened.path, state)
    assert not opened.adapter.unchanged(opened.path, state, QUIET_NS)
    texts, state = opened.texts(state, QUIET_NS)
    assert texts == ["broke off"]
    assert opened.adapter.unchanged(opened.path, state, QUIET_NS)


def test_what_opencode_added_or_summed_up_is_left_out(opened: OpenCodeStore) -> None:
    opened.session("child", "s")
    opened.message("s", "user", _text("typed"), _text("read in", synthetic=True), _text("x", ignored=True))
    opened.message("s", "user", {"type": "compaction", "auto": True})
    opened.message("s", "assistant", _text("a summary"), summary=True, error={"name": "x"})
    opened.message("s", "assistant", {"type": "reasoning", "text": "why"}, _text("said"), error={"name": "x"})
    opened.message("s", "odd", _text("odd"))
    opened.message("child", "user", _text("count"))
    operations, counts, _ = read_all(opened.adapter, opened.path, quiet_ns=QUIET_NS)
    assert said(operations) == [
        ("subagent-user", "count"),
        ("user", "typed"),
        ("thinking", "why"),
        ("assistant", "said"),
    ]
    assert counts.skipped["written by the tool"] == 2
    assert counts.skipped["compaction summary"] == 1
    assert [spot.reason for spot in counts.spots] == ["record of unknown form"]


def test_a_session_of_opencode_that_was_taken_back_in_part_goes_on(opened: OpenCodeStore) -> None:
    opened.session("t")
    for session in ("s", "t"):
        for number in range(4):
            opened.message(session, "user", _text(f"{session}{number}"))
    texts, state = opened.texts(quiet_ns=QUIET_NS)
    assert len(texts) == 8
    opened.database.execute(
        "DELETE FROM message WHERE id = (SELECT max(id) FROM message WHERE session_id = 's')"
    )
    opened.message("s", "user", _text("instead"))
    texts, state = opened.texts(state, QUIET_NS)
    assert texts[-1] == "instead"
    assert set(texts[:-1]) <= {"s0", "s1", "s2"}, "the other session is not read again"
    opened.database.execute("DELETE FROM message WHERE session_id = 't'")
    opened.database.execute("VACUUM")
    assert opened.texts(state, QUIET_NS)[0] == []


@pytest.mark.parametrize("bound", [1, 50, 4_194_304])
def test_many_sessions_are_read_in_bounded_passes(
    opened: OpenCodeStore, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_adapter, "PASS_BYTES_MAX", bound)
    wanted: list[str] = []
    for session in ("a", "b", "c"):
        opened.session(session)
        for number in range(5):
            wanted.append(f"{session} says {number}")
            opened.message(session, "user", _text(wanted[-1]))
    texts, state = opened.texts(quiet_ns=QUIET_NS)
    assert texts == wanted
    assert opened.texts(state, QUIET_NS)[0] == []


def test_what_opencode_says_after_private_mode_is_recorded_and_nothing_before(opened: OpenCodeStore) -> None:
    opened.message("s", "user", _text("private"))
    state = opened.adapter.skip(opened.path)
    opened.message("s", "user", _text("public"))
    opened.session("new")
    opened.message("new", "user", _text("new"))
    texts, state = opened.texts(state, QUIET_NS)
    assert sorted(texts) == ["new", "public"]
    assert state.stepped_over


def test_opencodes_database_is_found_under_its_names_and_by_its_journal(opened: OpenCodeStore) -> None:
    adapter, root = opened.adapter, opened.path.parent
    (root / "opencode-preview.db").write_bytes(b"")
    (root / "other.db").write_bytes(b"")
    assert [found.path.name for found in adapter.discover()] == ["opencode-preview.db", "opencode.db"]
    journal = opened.path.with_name("opencode.db-wal")
    assert adapter.concerns(str(journal))
    assert adapter.transcript(journal) == opened.path
    assert not adapter.concerns(str(root / "other.db"))


def test_damaged_rows_of_opencode_are_counted_and_the_others_recorded(opened: OpenCodeStore) -> None:
    opened.add("message", id="a", session_id="s", data="no json", time_created=1, time_updated=1)
    opened.add("message", id="b", session_id="gone", data="[]", time_created=1, time_updated=1)
    message = opened.message("s", "user", _text("one"))
    opened.add("part", id="x", message_id=message, session_id="s", data="{", time_created=1, time_updated=1)
    operations, counts, _ = read_all(opened.adapter, opened.path, quiet_ns=QUIET_NS)
    assert said(operations) == [("user", "one")]
    assert counts.skipped["record of unknown form"] == 2
    assert counts.skipped["block of unknown form"] == 1


def test_a_database_that_is_not_opencodes_any_more_is_named(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "opencode.db"))) as database:
        database.execute("CREATE TABLE message (id, text); CREATE VIEW part AS SELECT 1")
        operations, counts, _ = read_all(OpenCode(tmp_path, HOME), tmp_path / "opencode.db")
    assert operations == []
    assert [spot.reason for spot in counts.spots] == ["database of unknown form"]


def test_a_conversation_that_goose_wrote_anew_keeps_its_ids(tmp_path: Path) -> None:
    store = Database(tmp_path / "sessions" / "sessions.db", "goose")
    adapter = Goose(tmp_path, HOME)

    def say(number: int, text: str, *, shown: bool = True) -> None:
        content = json.dumps([{"type": "text", "text": text}])
        times = {
            "created_timestamp": WHEN // 1000 + number,
            "metadata_json": json.dumps({"userVisible": shown}),
        }
        store.add("messages", session_id="s", role="user", content_json=content, **times)

    with closing(store.database):
        store.add("sessions", id="s", working_dir="/home/mara/src")
        for number in range(3):
            say(number, f"said {number}")
        first, _, state = read_all(adapter, store.path)
        store.database.execute("DELETE FROM messages")
        for number in range(3):
            say(number, f"said {number}")
        say(3, "a summary", shown=False)
        say(4, "said 4")
        again, _, state = read_all(adapter, store.path, state)
        assert pieces(again)[:3] == pieces(first)
        assert [text for _, text in said(again)] == ["said 0", "said 1", "said 2", "said 4"]
        say(5, "said 5")
        assert said(read_all(adapter, store.path, state)[0]) == [("user", "said 5")]


def test_goose_before_it_had_types_of_sessions_is_recorded_too(tmp_path: Path) -> None:
    path = tmp_path / "sessions" / "sessions.db"
    path.parent.mkdir()
    with closing(apsw.Connection(str(path))) as database:
        database.execute(
            "CREATE TABLE sessions (id TEXT, description TEXT, working_dir TEXT);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id, role, content_json, created_timestamp);"
            "INSERT INTO sessions VALUES ('s', '', '/home/mara/src');"
            """INSERT INTO messages VALUES (1, 's', 'user', '[{"type": "text", "text": "old"}]', 1760000000)"""
        )
    operations, counts, _ = read_all(Goose(tmp_path, HOME), path)
    assert (said(operations), operations[0].project, counts.spots) == ([("user", "old")], "src", [])
