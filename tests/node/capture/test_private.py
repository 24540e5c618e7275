"""Private mode records nothing, and not even later: not from the same file, nor from a copy, nor under a
race."""

import json
import os
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_node.base.clock import now_ms
from crystal_node.capture import line_reader
from crystal_node.capture.line_reader import unsure
from crystal_node.capture.reading import ReadRequest, read_part
from crystal_node.device.privacy import SPANS_MAX, Privacy
from tests.node.capture.kept import insert
from tests.node.capture.transcripts import FIXTURES, Tool, said, user
from tests.support.machine import Machine, Vault, transcript, turn


def _say(machine: Machine, text: str, moment: datetime, name: str = "talk") -> Path:
    path = machine.projects / "-work" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(turn(text, session=name, moment=moment.isoformat()))
    return path


@pytest.fixture
def person(vault: Vault) -> Machine:
    return vault.core


def test_what_was_said_in_private_is_not_recorded_later(person: Machine) -> None:
    now = datetime.now(UTC)
    _say(person, "Said before.", now - timedelta(minutes=5))
    person.call("private", "on")
    _say(person, "Said in private.", datetime.now(UTC))
    _say(person, "Said in private in a new file.", datetime.now(UTC), name="fresh")
    assert person.call("capture", "--json").json == {
        "messages": 0,
        "actions": 0,
        "redacted": 0,
        "skipped": 0,
        "files": 0,
        "operations": 0,
        "private": True,
        "off": False,
        "waiting": 0,
        "redacted_kinds": {},
        "skipped_reasons": {},
        "strange": 0,
        "spots": [],
        "problems": [],
    }
    assert person.call("status", "--json").json["private"]["on"] is True
    person.call("private", "off")
    _say(person, "Said afterwards.", datetime.now(UTC) + timedelta(seconds=5))
    assert person.call("capture", "--json").json["messages"] == 1
    assert sorted(person.found("said", "-n", "50")) == ["Said afterwards.", "Said before."]


def test_a_copy_of_a_private_conversation_is_not_recorded_either(person: Machine) -> None:
    person.call("private", "on")
    path = _say(person, "Said in private.", datetime.now(UTC))
    person.call("private", "off")
    copy = path.with_name("resumed.jsonl")
    copy.write_text(path.read_text())
    _say(person, "Said afterwards.", datetime.now(UTC) + timedelta(seconds=5), name="resumed")
    report = person.call("capture", "--json").json
    assert (report["messages"], report["skipped_reasons"]) == (1, {"private": 1})
    assert person.found("said", "-n", "50") == ["Said afterwards."]


def test_a_private_message_without_a_time_is_stepped_over(person: Machine) -> None:
    path = transcript(person, "Before.")
    person.call("capture")
    person.call("private", "on")
    with path.open("a") as file:
        file.write(turn("Timeless and private.", moment=""))
        file.write('{"half a line in private')
    person.call("private", "off")
    with path.open("a") as file:
        file.write(' that ends later"}\n' + turn("Timeless and public.", moment=""))
    assert person.call("capture", "--json").json["messages"] == 1
    assert sorted(person.found("timeless", "-n", "50")) == ["Timeless and public."]


def test_nothing_is_remembered_in_private_mode_but_forgetting_goes_on(person: Machine) -> None:
    made = person.call("remember", "--json", "Something from before.").json["id"]
    person.call("private", "on")
    outcome = person.call("remember", "--json", "Something private.", check=False)
    assert outcome.code == 2
    assert "private mode" in outcome.error["error"]
    person.call("forget", made)
    person.call("sync")
    assert person.found("something") == []


def test_turning_it_on_or_off_twice_changes_nothing(person: Machine) -> None:
    first = person.call("private", "on", "--json").json
    again = person.call("private", "on", "--json").json
    assert (first["private"], first["changed"]) == (True, True)
    assert (again["since"], again["changed"]) == (first["since"], False)
    assert person.call("private", "off", "--json").json == {"private": False, "since": None, "changed": True}
    assert person.call("private", "off", "--json").json["changed"] is False
    assert person.call("private", "--json").json["private"] is False


_moments = st.integers(1, 2**41)


@given(st.lists(st.tuples(_moments, _moments), max_size=8), _moments)
def test_a_moment_within_any_private_span_is_hidden_whatever_the_clock_did(
    spans: list[tuple[int, int]], moment: int
) -> None:
    privacy = Privacy()
    for start, end in spans:
        privacy = privacy.turned_on(start)
        assert privacy.hides(max(start, moment))
        privacy = privacy.turned_off(end)
    inside = any(min(start, end) <= moment <= max(start, end) for start, end in spans)
    assert privacy.hides(moment) is inside


HOUR = 3_600_000


@pytest.mark.parametrize("uptime", [5 * HOUR, HOUR // 4], ids=["up all the time", "started anew"])
def test_what_was_said_behind_a_clock_that_was_set_back_is_private(uptime: int) -> None:
    """Turned on while the clock was two hours ahead; it was set right, and a quarter of an hour later it goes off."""
    now = 10**12
    privacy = Privacy().turned_on(now + 2 * HOUR, 5 * HOUR - HOUR // 4).turned_off(now, uptime)
    assert privacy.hides(now - HOUR // 8)
    assert not privacy.hides(now - HOUR)


def test_many_spans_are_joined_and_hide_more_never_less() -> None:
    privacy = Privacy(None, tuple((10 * n, 10 * n + 1) for n in range(1, SPANS_MAX + 1)))
    more = privacy.turned_on(10**9).turned_off(10**9 + 5)
    assert len(more.spans) == SPANS_MAX
    assert all(
        more.hides(first) and more.hides(last) for first, last in privacy.spans[:20] + privacy.spans[-20:]
    )
    assert more.hides(10**9)


def _continue(person: Machine, name: str, *texts: str) -> Path:
    """A session of Continue, whose messages have no times."""
    path = person.root / ".continue" / "sessions" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    history = [{"message": {"role": "user", "content": text}} for text in texts]
    path.write_text(json.dumps({"sessionId": name, "workspaceDirectory": "", "history": history}))
    return path


def _later(*paths: Path) -> None:
    """As if these were written in a minute: a file system's clock may be some milliseconds behind."""
    for path in paths:
        os.utime(path, (time.time() + 60, time.time() + 60))


def test_a_fork_of_a_session_without_times_has_nothing_that_was_private_in_it(person: Machine) -> None:
    before, private, after = "undated and open", "undated and private", "undated and after"
    _continue(person, "one", before)
    person.call("capture")
    person.call("private", "on")
    _continue(person, "one", before, private)
    person.call("private", "off")
    _later(_continue(person, "fork", before, private, after))
    person.call("capture")
    assert sorted(person.found("undated")) == [after, before]
    _later(
        _continue(person, "fork of it", before, private, after, "undated and last"),
        _continue(person, "fork", before, private, after, "undated and later"),
        _continue(person, "another", before, "undated and unlike"),
        _continue(person, "one", before, private, "undated and open again"),
    )
    person.call("capture")
    later = ["undated and last", "undated and later", "undated and unlike", "undated and open again"]
    assert sorted(set(person.found("undated"))) == sorted([after, before, *later])


@pytest.mark.parametrize("since", ["undated and private, and more", "undated and quite another", None])
def test_a_fork_has_nothing_private_in_it_although_its_session_went_on_otherwise(
    person: Machine, since: str | None
) -> None:
    before, private, after = "undated and open", "undated and private", "undated and after"
    _continue(person, "one", before)
    person.call("capture")
    person.call("private", "on")
    _continue(person, "one", before, private)
    person.call("private", "off")
    _later(
        _continue(person, "one", *([before] if since is None else [before, since])),
        _continue(person, "fork", before, private, after),
    )
    person.call("capture")
    found = person.found("undated")
    assert after in found
    assert private not in found


def test_from_now_on_holds_for_sessions_without_times_their_forks_and_unreadable_ones(
    machine: Machine,
) -> None:
    _continue(machine, "one", "undated and old")
    _continue(machine, "large", *("undated and too many" for _ in range(9000)))
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp", "--from-now")
    _continue(machine, "fork", "undated and old", "undated and new")
    _continue(machine, "large", "undated and too many")
    _continue(machine, "fork of the large one", "undated and too many", "undated and of now")
    machine.run("capture")
    assert sorted(machine.found("undated")) == ["undated and new", "undated and of now"]


def _opencode(path: Path, *messages: tuple[str, str, int]) -> None:
    """opencode's database with these messages: session, text and time in milliseconds."""
    path.unlink(missing_ok=True)
    with closing(apsw.Connection(str(path))) as database:
        database.execute((FIXTURES / "real" / "opencode" / "schema.sql").read_text())
        database.execute("PRAGMA foreign_keys = off")
        for number, (session, text, moment) in enumerate(messages):
            times = {"time_created": moment, "time_updated": moment}
            names = {"project_id": "p", "slug": "x", "title": "", "version": "1", "directory": "/home/mara"}
            at = {"message_id": f"m{number}", "session_id": session}
            data = json.dumps({"role": "assistant", "time": {"created": moment, "completed": moment}})
            part = json.dumps({"type": "text", "text": text})
            if not any(session == before for before, _, _ in messages[:number]):
                insert(database, {"table": "session", "id": session, **names, **times})
            insert(
                database,
                {"table": "message", "id": f"m{number}", "session_id": session, "data": data, **times},
            )
            insert(database, {"table": "part", "id": f"p{number}", **at, "data": part, **times})


@pytest.mark.parametrize("then", ["damaged", "unknown"])
def test_from_now_on_holds_for_a_database_that_could_not_be_read_at_that_moment(
    machine: Machine, then: str
) -> None:
    path = machine.root / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    if then == "damaged":
        path.write_bytes(b"no database" * 1000)
    else:
        with closing(apsw.Connection(str(path))) as database:
            database.execute("CREATE TABLE of_a_later_version (id)")
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp", "--from-now")
    machine.run("capture")
    later = now_ms() + 60_000
    old = [
        (f"s{number}", f"dated and old {number} {'x' * 600_000}", 1_700_000_000_000) for number in range(9)
    ]
    _opencode(path, *old, ("s8", "dated and new", later))
    _later(path)
    machine.run("capture")
    assert machine.found("dated") == ["dated and new"]


def test_from_now_on_holds_for_a_document_that_was_half_written_at_that_moment(machine: Machine) -> None:
    path = machine.root / ".gemini" / "tmp" / "p" / "chats" / "session-2026-01-10T23-00-x.json"
    path.parent.mkdir(parents=True)
    old = {"id": "m1", "type": "user", "content": "dated and old", "timestamp": "2020-01-01T00:00:00Z"}
    new = {"id": "m2", "type": "user", "content": "dated and new", "timestamp": "2100-01-01T00:00:00Z"}
    session = {"sessionId": "x", "projectHash": "p", "messages": [old]}
    path.write_text(json.dumps(session)[:-5])
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp", "--from-now")
    path.write_text(json.dumps(session)[:-4])
    machine.run("capture")
    path.write_text(json.dumps(session | {"messages": [old, new]}))
    _later(path)
    machine.run("capture")
    assert machine.found("dated") == ["dated and new"]


@pytest.mark.parametrize("private", [False, True])
def test_from_now_on_holds_for_lines_that_could_not_be_read_at_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private: bool
) -> None:
    """Also while what was said before private mode is recorded, and in each part of a large file."""
    monkeypatch.setattr(line_reader, "PASS_BYTES_MAX", 1)
    tool = Tool(tmp_path)
    now = datetime.now(UTC)
    begin, since = (int((now - timedelta(minutes=ago)).timestamp() * 1000) for ago in (9, 1))
    new = (now - timedelta(minutes=5)).isoformat()
    privacy = Privacy(since=since, caught_up=False) if private else Privacy()
    tool.write(
        user("old", timestamp="2020-01-01T00:00:00Z"),
        user("old, too", 2, timestamp="2020-01-01T00:00:00Z"),
        user("undated", 3, timestamp=None),
        user("new", 4, timestamp=new),
    )
    request = ReadRequest("claude-code", os.fsencode(tool.path), unsure(None), "cc-mini", -1, privacy, begin)
    found: list[str] = []
    while True:
        reading = read_part(tool.adapter, request)
        found += [text for _, text in said(reading.operations)]
        if not reading.more:
            break
        request = request.after(reading)
    assert found == ["new"]


def _old_and_new(path: Path, *first: str) -> None:
    """A session of Claude Code as its tool may write it again: what was said before, and something new."""
    later = datetime.now(UTC) + timedelta(minutes=1)
    lines = [
        user(text, number, timestamp="2020-01-01T00:00:00Z")
        for number, text in enumerate([*first, "dated and old", "dated and old, too"])
    ]
    lines += [user("undated", 8, timestamp=None), user("dated and new", 9, timestamp=later.isoformat())]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_from_now_on_holds_for_a_transcript_that_its_tool_writes_again(machine: Machine) -> None:
    path = machine.projects / "-work" / "one.jsonl"
    _old_and_new(path)
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp", "--from-now")
    machine.run("capture")
    assert machine.found("dated") == []
    _old_and_new(path, "dated, old and put in front")
    _later(path)
    machine.run("capture")
    assert machine.found("dated") == ["dated and new"]


def test_from_now_on_holds_for_a_session_that_its_tool_writes_again_into_its_database(
    machine: Machine,
) -> None:
    path = machine.root / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    old = 1_700_000_000_000
    _opencode(path, ("s", "dated and old", old), ("s", "dated and old, too", old))
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp", "--from-now")
    again = [("other", "dated and of another", old), ("s", "dated and old", old)]
    _opencode(path, *again, ("s", "dated and new", now_ms() + 60_000))
    _later(path)
    machine.run("capture")
    assert machine.found("dated") == ["dated and new"]


def test_from_now_on_holds_for_a_message_that_is_written_again_into_a_document(machine: Machine) -> None:
    path = machine.root / ".gemini" / "tmp" / "p" / "chats" / "session-2026-01-10T23-00-x.json"
    path.parent.mkdir(parents=True)
    old = {"id": "m1", "type": "user", "content": "dated and old", "timestamp": "2020-01-01T00:00:00Z"}
    new = {"id": "m2", "type": "user", "content": "dated and new", "timestamp": "2100-01-01T00:00:00Z"}
    session = {"sessionId": "x", "projectHash": "p", "messages": [old]}
    path.write_text(json.dumps(session))
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp", "--from-now")
    path.write_text(json.dumps(session | {"messages": [old | {"content": "dated and otherwise"}, new]}))
    _later(path)
    machine.run("capture")
    assert machine.found("dated") == ["dated and new"]


def test_from_now_on_holds_for_a_folder_that_could_not_be_read_at_that_moment(machine: Machine) -> None:
    machine.projects.parent.mkdir(parents=True, exist_ok=True)
    machine.projects.symlink_to(machine.projects)  # nobody can read it, not even root
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp", "--from-now")
    machine.run("capture")
    machine.projects.unlink()
    _old_and_new(machine.projects / "-work" / "one.jsonl")
    machine.run("capture")
    assert machine.found("dated") == ["dated and new"]
    _old_and_new(machine.projects / "-work" / "two.jsonl", "dated and elsewhere until now")
    machine.run("capture")
    assert "dated and elsewhere until now" in machine.found("dated"), "it was not skipped"


def test_from_now_on_holds_for_a_folder_that_was_gone_for_a_while_before_it_could_be_read(
    machine: Machine,
) -> None:
    """As one on another machine, which is not mounted at times."""
    machine.projects.parent.mkdir(parents=True, exist_ok=True)
    machine.projects.symlink_to(machine.projects)
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp", "--from-now")
    machine.projects.unlink()
    machine.run("capture")
    machine.projects.mkdir()
    machine.run("capture")
    _old_and_new(machine.projects / "-work" / "one.jsonl")
    machine.run("capture")
    assert machine.found("dated") == ["dated and new"]


def test_nothing_private_is_in_a_folder_that_could_not_be_read_when_private_mode_ended(
    person: Machine,
) -> None:
    sessions = person.root / ".continue" / "sessions"
    sessions.parent.mkdir(parents=True)
    sessions.symlink_to(sessions)
    person.call("private", "on")
    person.call("private", "off")
    sessions.unlink()
    _later(_continue(person, "one", "undated and private"))
    person.call("capture")
    _later(_continue(person, "one", "undated and private", "undated and open"))
    person.call("capture")
    assert person.found("undated") == ["undated and open"]
