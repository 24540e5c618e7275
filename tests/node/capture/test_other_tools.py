"""Transcripts that look like those of OpenClaw, Codex and Gemini CLI, old and new, and damaged ones: what becomes of them."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from crystal_node.capture.adapter import decode_state, encode_state
from crystal_node.capture.codex import Codex
from crystal_node.capture.gemini import GeminiCli
from crystal_node.capture.openclaw import OpenClaw
from tests.node.capture.tools import HOME, QUIET_NS, fixture, line, pieces, read_all
from tests.node.capture.transcripts import said

CODEX_NEW = "sessions/2026/02/06/rollout-2026-02-06T10-15-00-019f5c5a-eb02-7ff0-90af-653b66eba9f4.jsonl"
CODEX_BARE = "sessions/2025/08/19/rollout-2025-08-19T21-04-11-c3c4b301-27c8-4c70-b6e4-46b99fdf0236.jsonl"
CODEX_PAGINATED = "archived_sessions/rollout-2026-07-13T18-41-30-019f6000-0000-7000-8000-00000000beef.jsonl"
GEMINI_SESSION = "f86f5318-f47b-4433-85f8-ec9d9a417f8e"


def test_an_openclaw_session_is_captured_without_what_nobody_said(tmp_path: Path) -> None:
    adapter = OpenClaw(fixture("openclaw", tmp_path), HOME)
    paths = [found.path for found in adapter.discover()]
    assert [adapter.agent_of(path) for path in paths] == ["harbour", "main"]
    operations, counts, _ = read_all(adapter, paths[0])
    assert said(operations) == [
        ("user", "When is high water at Port Ellery tomorrow?"),
        ("thinking", "The tide table is in the workspace."),
        ("assistant", "High water is at 05:12."),
        ("user", "And the day after?"),
        ("assistant", "At 06:03, a little higher."),
    ]
    assert {(one.agent, one.session, one.source, one.project) for one in operations} == {
        ("harbour", paths[0].stem, "openclaw", ".openclaw/workspace")
    }
    assert [piece.message for _, piece in pieces(operations)][:2] == ["e8a14527", "b1bf6a1d"]
    assert counts.messages == 5
    assert counts.skipped["record compaction"] == counts.skipped["message toolResult"] == 1
    assert counts.skipped["mark-up only"] == 2
    assert [spot.reason for spot in counts.spots] == ["record of unknown type"]


def test_an_early_openclaw_session_without_ids_and_with_torn_lines(tmp_path: Path) -> None:
    adapter = OpenClaw(fixture("openclaw", tmp_path), HOME)
    path = [found.path for found in adapter.discover()][1]
    operations, counts, state = read_all(adapter, path, quiet_ns=QUIET_NS)
    assert said(operations) == [
        ("user", "Remind me to oil the winch."),
        ("assistant", "Noted: the winch, this evening."),
        ("user", "Remind me to oil the winch."),
    ]
    assert len({piece.message for _, piece in pieces(operations)}) == 3, "said twice is said twice"
    assert counts.skipped["line is not JSON"] == 2
    assert counts.skipped["last line torn"] == 1
    assert state.offset < path.stat().st_size


def test_an_openclaw_session_that_was_reset_is_read_on_under_its_new_name(tmp_path: Path) -> None:
    adapter = OpenClaw(fixture("openclaw", tmp_path), HOME)
    path = next(adapter.discover()).path
    archived = path.with_name(path.name + ".reset.2026-02-07T03-00-00.000Z")
    deleted = path.with_name("x.jsonl.deleted.2026-02-07T03-00-00.000Z")
    deleted.write_text("{}\n")
    path.rename(archived)
    assert next(adapter.discover()).path == archived
    assert adapter.concerns(str(archived))
    assert adapter.former(archived) == path
    assert not adapter.concerns(str(deleted))
    assert {one.session for one in read_all(adapter, archived)[0]} == {path.stem}


def test_a_codex_session_holds_what_the_person_typed_and_not_what_was_sent_for_it(tmp_path: Path) -> None:
    root = fixture("codex", tmp_path)
    adapter = Codex(root, HOME)
    operations, counts, _ = read_all(adapter, root / CODEX_NEW)
    assert said(operations) == [
        ("user", "Why does the gauge report twice?"),
        ("thinking", "**Looking at the scheduler**"),
        ("assistant", "Two cron lines start the same job."),
        ("user", "continue"),
        ("assistant", "Removed the second line."),
        ("user", "continue"),
    ]
    assert [one.project for one in operations] == ["src/tidewatch", "src/vents"]
    assert {(one.agent, one.session, one.source, one.repository) for one in operations} == {
        ("codex", "019f5c5a-eb02-7ff0-90af-653b66eba9f4", "codex", "git.example.org/harbour/tidewatch")
    }
    assert len({piece.message for _, piece in pieces(operations)}) == 6
    assert [spot.reason for spot in counts.spots] == ["record of unknown type"]
    assert counts.skipped["message developer"] == 1
    assert counts.skipped["said as an event"] == 1
    assert counts.skipped["mark-up only"] == 2


def test_a_codex_session_of_the_first_year_has_no_envelopes_and_no_times(tmp_path: Path) -> None:
    root = fixture("codex", tmp_path)
    operations, counts, _ = read_all(Codex(root, HOME), root / CODEX_BARE)
    assert said(operations) == [
        ("user", "Which pin drives the north fan?"),
        ("thinking", "**Checking the pins**"),
        ("assistant", "GPIO 17."),
    ]
    (operation,) = operations
    assert (operation.session, operation.project) == ("c3c4b301-27c8-4c70-b6e4-46b99fdf0236", "src/vents")
    assert {piece.created_at for piece in operation.pieces} == {1755630251508}, "its header's, for all"
    assert counts.spots == []


def test_a_codex_session_of_turns_and_of_a_sub_agent(tmp_path: Path) -> None:
    root = fixture("codex", tmp_path)
    operations, counts, _ = read_all(Codex(root, HOME), root / CODEX_PAGINATED)
    assert said(operations) == [
        ("subagent-user", "Count the buoys."),
        ("subagent-assistant", "There are nine."),
    ]
    assert {one.session for one in operations} == {"019f6000-0000-7000-8000-00000000beef"}, (
        "the first header is its own, the second its parent's"
    )
    assert counts.spots == []


def _codex(tmp_path: Path, *records: dict[str, Any]) -> tuple[Codex, Path]:
    adapter, path = Codex(tmp_path, HOME), tmp_path / "sessions" / "2026" / "rollout-x.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(
        b"".join(line({"timestamp": f"2026-09-01T00:00:{n:02}Z", **r}) for n, r in enumerate(records))
    )
    return adapter, path


def _prompt(text: str, role: str = "user") -> dict[str, Any]:
    message = {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
    return {"type": "response_item", "payload": message}


def test_a_codex_session_without_events_is_told_by_its_prompts(tmp_path: Path) -> None:
    injected = "<environment_context>\n<cwd>/tmp</cwd>\n</environment_context>"
    prompts = [_prompt(injected), _prompt("one"), _prompt("answer", "assistant"), _prompt("two")]
    adapter, path = _codex(tmp_path, *prompts)
    operations, _, state = read_all(adapter, path)
    assert said(operations) == [("user", "one"), ("assistant", "answer")]
    kept = decode_state(encode_state(state))
    with path.open("ab") as file:
        file.write(line({"timestamp": "2026-09-01T00:01:00Z", **_prompt("again", "assistant")}))
    operations, _, _ = read_all(adapter, path, kept)
    assert said(operations) == [("user", "two"), ("assistant", "again")]
    assert operations[0].pieces[0].created_at == 1788220803000, "when it was asked"


def test_a_codex_session_that_tells_in_both_ways_is_heard_in_one(tmp_path: Path) -> None:
    item = {"type": "UserMessage", "id": "i", "content": [{"type": "text", "text": "asked"}]}
    turn = {"type": "event_msg", "payload": {"type": "item_completed", "item": item}}
    event = {"type": "event_msg", "payload": {"type": "user_message", "message": "asked"}}
    plan = {
        "type": "event_msg",
        "payload": {"type": "item_completed", "item": {"type": "Plan", "text": "1. Look"}},
    }
    told = {"type": "event_msg", "payload": {"type": "agent_message", "message": "answer"}}
    adapter, path = _codex(
        tmp_path, _prompt("asked"), turn, event, plan, told, _prompt("answer", "assistant")
    )
    operations, counts, _ = read_all(adapter, path)
    assert said(operations) == [("user", "asked"), ("assistant", "1. Look"), ("assistant", "answer")]
    assert counts.skipped["said before"] == 1


def test_more_prompts_than_are_held_are_not_lost(tmp_path: Path) -> None:
    adapter, path = _codex(
        tmp_path, *(_prompt(f"asked {number}") for number in range(20)), _prompt("answer", "assistant")
    )
    assert len(said(read_all(adapter, path)[0])) == 21


def test_what_is_held_of_a_codex_session_has_no_credentials_and_a_bound(tmp_path: Path) -> None:
    secret = "ghp_" + "aB3dE6gH9k" * 4

    def asked(text: str) -> bytes:
        content = [{"type": "input_text", "text": text}]
        payload = {"type": "message", "role": "user", "content": content}
        return line({"timestamp": "2026-02-06T10:00:00Z", "type": "response_item", "payload": payload})

    adapter = Codex(tmp_path, HOME)
    path = tmp_path / "sessions" / "2026" / "02" / "06" / "rollout-2026-02-06T10-00-00-a.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(asked(f"Push it with {secret}"))
    held = adapter.read(path, None, agent="codex", hides=lambda _: False)
    assert held.operations == []
    assert b"Push it with" in held.state.memo
    assert secret.encode() not in held.state.memo
    assert b"Push it with" not in adapter.skip(path).memo
    path.write_bytes(path.read_bytes() + asked("long " * 300_000))
    released = adapter.read(path, held.state, agent="codex", hides=lambda _: False)
    assert len(released.state.memo) < 10_000
    assert secret not in repr(released.operations)
    assert "Push it with [redacted:" in repr(released.operations)


def test_a_message_of_many_marks_of_the_gateway_is_cleaned_at_once(tmp_path: Path) -> None:
    path = tmp_path / "agents" / "main" / "sessions" / "s.jsonl"
    path.parent.mkdir(parents=True)
    for role, marks in (("user", "System: [x]\n" * 300_000), ("assistant", "[[a]]" * 700_000)):
        message = {"role": role, "content": f"{marks}Hello."}
        path.write_bytes(line({"type": "message", "id": role, "message": message}))
        started = time.monotonic()
        operations, _, _ = read_all(OpenClaw(tmp_path, HOME), path)
        assert [text for _, text in said(operations)] == ["Hello."]
        assert time.monotonic() - started < 5, "it took minutes"


def test_an_archived_codex_session_is_read_on_where_it_went(tmp_path: Path) -> None:
    root = fixture("codex", tmp_path)
    adapter = Codex(root, HOME)
    moved = root / "archived_sessions" / Path(CODEX_NEW).name
    assert adapter.former(moved) == root / CODEX_NEW
    assert adapter.former(root / CODEX_NEW) is None
    assert len(list(adapter.discover())) == 3


def test_a_gemini_session_says_each_version_of_a_message_once(tmp_path: Path) -> None:
    root = fixture("gemini", tmp_path)
    adapter = GeminiCli(root, HOME)
    chats = root / "tmp" / "tidewatch" / "chats"
    session, sub = next(chats.glob("session-*")), chats / GEMINI_SESSION / "sub-1.jsonl"
    assert {session, sub, _document(root)} == {found.path for found in adapter.discover()}
    operations, counts, _ = read_all(adapter, session)
    assert said(operations) == [
        ("user", "Explain @tides.md"),
        ("assistant", "It lists high water for February."),
        ("thinking", "Reading the table\nIt has two columns."),
        ("user", "and March?"),
        ("assistant", "March is not in it."),
        ("assistant", "March is not in it. April is."),
    ]
    ids = [piece.message for _, piece in pieces(operations)]
    assert ids[-1] == ids[-2], "a later version of the same message"
    assert {(one.session, one.project) for one in operations} == {(GEMINI_SESSION, "src/tidewatch")}
    assert counts.spots == []
    assert counts.skipped["said before"] == 5
    subagent, _, _ = read_all(adapter, sub)
    assert said(subagent) == [
        ("subagent-user", "Find the tide table."),
        ("subagent-assistant", "It is tides.md."),
        ("subagent-thinking", "Searching"),
    ]
    assert {one.session for one in subagent} == {GEMINI_SESSION}, "it belongs to its parent's"


def test_a_gemini_projects_folder_in_lower_case_is_below_the_home(tmp_path: Path) -> None:
    root = fixture("gemini", tmp_path)
    marker = root / "tmp" / "tidewatch" / ".project_root"
    marker.write_text("/users/mara/src/tidewatch")
    session = next(marker.parent.glob("chats/session-*"))
    operations, _, _ = read_all(GeminiCli(root, Path("/Users/Mara")), session)
    assert {one.project for one in operations} == {"src/tidewatch"}


def test_a_gemini_session_that_lost_its_header_is_its_projects_nevertheless(tmp_path: Path) -> None:
    """As when several start at once in a new project: then it can be excluded, too."""
    root = fixture("gemini", tmp_path)
    session = next((root / "tmp" / "tidewatch" / "chats").glob("session-*"))
    header, rest = session.read_bytes().split(b"\n", 1)
    assert b"projectHash" in header
    session.write_bytes(rest)
    operations, _, _ = read_all(GeminiCli(root, HOME), session)
    assert said(operations)[0] == ("user", "Explain @tides.md")
    assert {(one.session, one.project) for one in operations} == {(session.stem, "src/tidewatch")}


def test_a_pipe_or_a_link_as_a_gemini_projects_marker_is_not_read(tmp_path: Path) -> None:
    root = fixture("gemini", tmp_path)
    marker = root / "tmp" / "tidewatch" / ".project_root"
    secret = tmp_path / "secret"
    secret.write_text("/the/secret")
    session = next(marker.parent.glob("chats/session-*"))
    for link in (False, True):
        marker.unlink(missing_ok=True)
        if link:
            marker.symlink_to(secret)
        else:
            os.mkfifo(marker)
        operations, _, _ = read_all(GeminiCli(root, Path("/Users/mara")), session)
        assert operations
        assert not any("secret" in one.project for one in operations)


def _document(root: Path) -> Path:
    return next(root.glob("tmp/*/chats/*.json"))


def test_an_old_gemini_document_is_read_again_when_it_grows_and_gives_what_is_new(tmp_path: Path) -> None:
    root = fixture("gemini", tmp_path)
    adapter, path = GeminiCli(root, HOME), _document(root)
    first, _, state = read_all(adapter, path)
    assert said(first) == [
        ("user", "Review the vents for bugs"),
        ("assistant", "The delay is in seconds, not minutes."),
        ("thinking", "Units\n600 looks odd."),
    ]
    document = json.loads(path.read_text())
    document["messages"].append(
        {"id": "n", "timestamp": "2025-12-03T06:40:00.000Z", "type": "user", "content": "Mend it"}
    )
    path.write_text(json.dumps(document))
    second, _, state = read_all(adapter, path, state)
    assert said(second) == [("user", "Mend it")]
    assert read_all(adapter, path, state)[0] == []


def test_a_gemini_document_that_became_lines_is_not_recorded_again(tmp_path: Path) -> None:
    root = fixture("gemini", tmp_path)
    adapter, path = GeminiCli(root, HOME), _document(root)
    _, _, state = read_all(adapter, path)
    document = json.loads(path.read_text())
    header = {name: document[name] for name in ("sessionId", "projectHash", "startTime", "lastUpdated")}
    more = {"id": "n", "timestamp": "2026-05-03T06:40:00.000Z", "type": "user", "content": "Mend it"}
    lines = path.with_suffix(".jsonl")
    lines.write_bytes(b"".join(map(line, [header, *document["messages"], more])))
    assert adapter.former(lines) == path
    assert said(read_all(adapter, lines, state)[0]) == [("user", "Mend it")]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"messages": 7}'])
def test_a_damaged_gemini_document_is_counted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tmp" / "p" / "chats" / "session-x.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    operations, counts, _ = read_all(GeminiCli(tmp_path, HOME), path)
    assert operations == []
    assert sum(counts.skipped.values()) == (0 if content.startswith(b'{"m') else 1)


def test_a_document_over_the_limit_is_refused_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "tmp" / "p" / "chats" / "session-x.json"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(10 * 1024**3)
    adapter = GeminiCli(tmp_path, HOME)
    with pytest.raises(OSError, match="more than 16 MiB"):
        adapter.read(path, None, agent="a", hides=lambda _: False)


def test_every_fixture_is_known_by_its_first_record(tmp_path: Path) -> None:
    """What a person names outside of a tool's folder is read as what it is."""
    from crystal_node.capture.tools import adapter_of
    from tests.node.capture.tools import TOOLS
    from tests.node.capture.transcripts import FIXTURES

    adapters = [tool.adapter(tmp_path / tool.name) for tool in TOOLS]
    for tool in ("openclaw", "codex", "gemini", "drop"):
        for path in (FIXTURES / tool).rglob("*.*"):
            if path.name == ".project_root" or path.is_dir():
                continue
            copy = tmp_path / path.name
            shutil.copy(path, copy)
            assert adapter_of(adapters, copy).name.startswith(tool), path
    for path in FIXTURES.glob("*.jsonl"):
        assert adapter_of(adapters, path).name == "claude-code"
