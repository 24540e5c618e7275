"""Each tool's session, placed where that tool looks for it on this machine."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from crystal_node.derive.resume.files import Relation
from crystal_node.derive.resume.plan import ResumePlan, carry_out, plan_resume
from crystal_node.derive.resume.tools import (
    CannotPlace,
    ClaudeCodeSessions,
    CodexSessions,
    GeminiSessions,
    OpenClawSessions,
    QwenSessions,
    ToolSessions,
)
from crystal_node.derive.sessions.copies import CopyDamaged, CopyIncomplete, SessionCopies
from crystal_node.derive.sessions.layout import Head, segment_path
from tests.support.session_copies import DESKTOP, written_copy, written_long_ago

ID = "5e1c0f7a-0000-4000-8000-000000000001"


@dataclass(frozen=True, slots=True)
class Case:
    """A tool's session, whose lines name it by ``ID``. ``below``: its place in the tool's folder, for ``/…/tide gauge``."""

    tool: type[ToolSessions]
    session: str
    lines: bytes
    native: str
    below: str
    command: list[str]


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in records)


SAID = {"sessionId": ID, "cwd": "/home/ada/elsewhere", "uuid": "u"}
CLAUDE = Case(
    ClaudeCodeSessions,
    ID,
    lines(SAID | {"type": "user"}, SAID | {"type": "assistant"}),
    f"~/.claude/projects/-home-ada-elsewhere/{ID}.jsonl",
    "projects/{slug}/" + f"{ID}.jsonl",
    ["claude", "--resume", ID],
)
CODEX = Case(
    CodexSessions,
    ID,
    lines({"type": "session_meta", "payload": {"id": ID, "session_id": ID}}, {"type": "event_msg"}),
    f"~/.codex/archived_sessions/rollout-2026-11-22T13-08-02-{ID}.jsonl",
    f"sessions/2026/11/22/rollout-2026-11-22T13-08-02-{ID}.jsonl",
    ["codex", "resume", "--cd", "{cwd}", ID],
)
GEMINI = Case(
    GeminiSessions,
    f"session-2026-11-22T13-00-{ID[:8]}",
    lines({"sessionId": ID, "projectHash": "ab"}, {"id": "1", "type": "user"}),
    f"~/.gemini/tmp/elsewhere/chats/session-2026-11-22T13-00-{ID[:8]}.jsonl",
    f"tmp/tide-gauge/chats/session-2026-11-22T13-00-{ID[:8]}.jsonl",
    ["gemini", "--resume", ID],
)
QWEN = Case(
    QwenSessions,
    ID,
    lines(SAID | {"type": "user"}, SAID | {"type": "assistant"}),
    f"~/.qwen/projects/-home-ada-elsewhere/chats/{ID}.jsonl",
    "projects/{slug}/chats/" + f"{ID}.jsonl",
    ["qwen", "--resume", ID],
)
OPENCLAW = Case(
    OpenClawSessions,
    ID,
    lines({"type": "session", "version": 3, "id": ID}, {"type": "message", "id": "m"}),
    f"~/.openclaw/agents/harbour/sessions/{ID}.jsonl",
    f"agents/harbour/sessions/{ID}.jsonl",
    ["openclaw", "tui", "--session", f"agent:harbour:{ID}"],
)
CASES = pytest.mark.parametrize(
    "case", [CLAUDE, CODEX, GEMINI, QWEN, OPENCLAW], ids=lambda case: case.tool.name
)


@dataclass
class Place:
    """A home of Crystal and of a tool."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "ldm"

    @property
    def root(self) -> Path:
        return self.folder / "tool"

    @property
    def cwd(self) -> Path:
        path = self.folder / "work" / "tide gauge"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def copy(self, case: Case, data: bytes | None = None, **about: Any) -> Head:
        made = case.lines if data is None else data
        return written_copy(
            self.home, case.tool.name, case.session, made, native=case.native, tool_session=ID, **about
        )

    def plan(self, case: Case, head: Head, cwd: Path | None = None) -> ResumePlan:
        return plan_resume(SessionCopies(self.home), head, case.tool(self.root), cwd or self.cwd)

    def resume(self, case: Case, head: Head, cwd: Path | None = None) -> ResumePlan:
        plan = self.plan(case, head, cwd)
        carry_out(plan, SessionCopies(self.home), self.home / "torn")
        for path in self.root.rglob("*.jsonl"):
            written_long_ago(path)
        return plan

    def expected(self, case: Case) -> Path:
        slug = "".join(char if char.isascii() and char.isalnum() else "-" for char in str(self.cwd))
        return self.root / case.below.format(slug=slug)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@CASES
def test_it_lies_where_the_tool_looks_and_its_own_command_resumes_it(place: Place, case: Case) -> None:
    plan = place.resume(case, place.copy(case))
    assert plan.main.path == place.expected(case)
    assert plan.main.path.read_bytes() == case.lines
    assert plan.command == [word.format(cwd=place.cwd) for word in case.command]
    assert place.plan(case, plan.head).written == []


@CASES
def test_what_was_said_on_either_machine_comes_back_to_the_other(place: Place, case: Case) -> None:
    path = place.resume(case, place.copy(case)).main.path
    data = case.lines
    for number in range(3):
        data += b'{"there":%d}\n' % number
        plan = place.resume(case, place.copy(case, data))
        assert plan.main.compared.relation is Relation.BEHIND
        assert path.read_bytes() == data
        data += b'{"here":%d}\n' % number
        path.write_bytes(data)
        written_long_ago(path)
        assert place.plan(case, plan.head).main.compared.relation is Relation.AHEAD


@CASES
def test_a_fork_goes_on_under_a_new_id_and_the_own_session_stays(place: Place, case: Case) -> None:
    mine = place.resume(case, place.copy(case)).main.path
    mine.write_bytes(own := case.lines + b'{"here":1}\n')
    theirs = place.copy(case, case.lines + b'{"there":1}\n', device=DESKTOP)
    plan = place.resume(case, theirs)
    assert plan.forked == ID
    new = plan.session.own
    assert plan.main.path != mine
    assert mine.read_bytes() == own
    assert plan.main.path.read_bytes() == case.lines.replace(ID.encode(), new.encode()) + b'{"there":1}\n'
    assert new in " ".join(plan.command)
    again = place.resume(case, place.copy(case, case.lines + b'{"there":1}\n{"there":2}\n', device=DESKTOP))
    assert (again.session, again.main.path) == (plan.session, plan.main.path)
    assert again.main.path.read_bytes().endswith(b'{"there":1}\n{"there":2}\n')


@CASES
@pytest.mark.parametrize("session", ["../../../../etc/cron.d/x", "a/b", "", "-rf", "a\nb", "x" * 300])
def test_an_id_that_is_none_never_becomes_a_path(place: Place, case: Case, session: str) -> None:
    head = Head(
        tool=case.tool.name, session=session or "s", tool_session=session or "/", device=DESKTOP, number=1
    )
    with pytest.raises(CannotPlace):
        place.plan(case, head)


@CASES
def test_a_hostile_path_of_another_device_chooses_no_folder(place: Place, case: Case) -> None:
    native = "/etc/agents/../../sessions/rollout-2026-11-22T13-08-02-x/../../passwd"
    head = written_copy(
        place.home,
        case.tool.name,
        case.session,
        case.lines,
        native=native,
        tool_session=ID,
        started_at=1_795_000_000_000,
    )
    path = place.plan(case, head).main.path
    assert path.is_relative_to(place.root)
    assert ".." not in path.parts


@CASES
def test_nothing_is_written_through_a_link(place: Place, case: Case, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place.root.mkdir()
    first = place.expected(case).relative_to(place.root).parts[0]
    (place.root / first).symlink_to(elsewhere)
    with pytest.raises(CannotPlace, match="is a link"):
        place.resume(case, place.copy(case))
    assert list(elsewhere.iterdir()) == []


@CASES
@pytest.mark.parametrize("name", ["Gezeitenpegel Büsum", "🌊 waves"])
def test_any_name_of_a_folder(place: Place, case: Case, name: str) -> None:
    cwd = place.folder / name
    cwd.mkdir()
    path = place.resume(case, place.copy(case), cwd).main.path
    assert path.read_bytes() == case.lines
    assert place.plan(case, place.copy(case), cwd).written == []


@pytest.mark.parametrize("case", [CODEX, GEMINI, QWEN, OPENCLAW], ids=lambda case: case.tool.name)
def test_a_path_over_200_signs(place: Place, case: Case) -> None:
    cwd = place.folder / "deep"
    cwd /= "x" * (230 - len(f"{cwd}/"))
    cwd.mkdir(parents=True)
    path = place.resume(case, place.copy(case), cwd).main.path
    assert path.read_bytes() == case.lines
    assert place.plan(case, place.copy(case), cwd).written == []


def test_a_path_that_is_too_long_for_qwen_code_is_said(place: Place) -> None:
    with pytest.raises(CannotPlace, match="longer than Qwen Code"):
        place.plan(QWEN, place.copy(QWEN), Path("/", *["x" * 100] * 3))


def test_a_sign_beyond_the_basic_plane_is_two_in_a_folders_name(place: Place) -> None:
    cwd = place.folder / "a🌊b"
    cwd.mkdir()
    assert place.resume(CLAUDE, place.copy(CLAUDE), cwd).main.path.parent.name.endswith("-a--b")


def test_a_path_over_200_signs_is_found_by_what_claude_code_wrote_there(place: Place) -> None:
    cwd = place.folder / ("long " * 30) / ("deep " * 30)
    cwd.mkdir(parents=True)
    with pytest.raises(CannotPlace, match="so long") as raised:
        place.plan(CLAUDE, place.copy(CLAUDE), cwd)
    assert "Start `claude` there once" in raised.value.hint
    slug = "".join(char if char.isalnum() else "-" for char in str(cwd))[:200]
    for name, where in (("1a2b3c", f"{cwd}/other"), ("4d5e6f", str(cwd))):
        folder = place.root / "projects" / f"{slug}-{name}"
        folder.mkdir(parents=True)
        (folder / "old.jsonl").write_bytes(lines({"type": "mode"}, {"type": "user", "cwd": where}))
    assert place.resume(CLAUDE, place.copy(CLAUDE), cwd).main.path.parent.name == f"{slug}-4d5e6f"


def test_gemini_cli_finds_the_project_by_its_marker(place: Place) -> None:
    taken = place.root / "tmp" / "tide-gauge"
    taken.mkdir(parents=True)
    (taken / ".project_root").write_text("/home/ada/another/tide gauge")
    plan = place.resume(GEMINI, place.copy(GEMINI))
    assert plan.main.path.parent.parent.name == "tide-gauge-1"
    assert (plan.main.path.parent.parent / ".project_root").read_text() == str(place.cwd)
    assert place.plan(GEMINI, plan.head).main.path == plan.main.path


def test_qwen_code_is_told_of_the_folder(place: Place) -> None:
    path = place.resume(QWEN, place.copy(QWEN)).main.path
    status = json.loads(path.with_name(f"{ID}.runtime.json").read_text())
    assert (status["schema_version"], status["session_id"], status["work_dir"]) == (1, ID, str(place.cwd))


def test_openclaw_keeps_its_other_sessions(place: Place) -> None:
    table = place.root / "agents" / "harbour" / "sessions" / "sessions.json"
    table.parent.mkdir(parents=True)
    table.write_text('{"agent:harbour:main":{"sessionId":"x","unknown":[1]}}')
    place.resume(OPENCLAW, place.copy(OPENCLAW))
    rows = json.loads(table.read_text())
    assert rows["agent:harbour:main"] == {"sessionId": "x", "unknown": [1]}
    assert rows[f"agent:harbour:{ID}"]["sessionId"] == ID


def test_a_damaged_table_of_openclaw_is_said_and_stays(place: Place) -> None:
    table = place.root / "agents" / "harbour" / "sessions" / "sessions.json"
    table.parent.mkdir(parents=True)
    table.write_text("{")
    with pytest.raises(CannotPlace, match="not what OpenClaw writes"):
        place.resume(OPENCLAW, place.copy(OPENCLAW))
    assert table.read_text() == "{"


def test_files_beside_a_session_come_with_it(place: Place) -> None:
    side = {"subagents/agent-1.jsonl": lines(SAID), "tool-results/a b.txt": b"found\n"}
    plan = place.resume(CLAUDE, place.copy(CLAUDE, side=side))
    folder = plan.main.path.with_suffix("")
    assert {path: (folder / path).read_bytes() for path in side} == side
    (folder / "tool-results/a b.txt").write_bytes(b"another\n")
    side["subagents/agent-1.jsonl"] += b'{"more":1}\n'
    again = place.resume(CLAUDE, place.copy(CLAUDE, side=side))
    assert again.kept == (folder / "tool-results/a b.txt",)
    assert (folder / "tool-results/a b.txt").read_bytes() == b"another\n"
    assert (folder / "subagents/agent-1.jsonl").read_bytes().endswith(b'{"more":1}\n')


def test_no_file_beside_a_session_is_written_through_a_link(place: Place, tmp_path: Path) -> None:
    head = place.copy(QWEN, side={"agent-1.jsonl": lines(SAID)})
    subagents = place.plan(QWEN, head).main.path.parent.parent / "subagents"
    (tmp_path / "elsewhere").mkdir()
    subagents.parent.mkdir(parents=True)
    subagents.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CannotPlace, match="is a link"):
        place.plan(QWEN, head)


@pytest.mark.parametrize("moment", [-(10**18), 10**18])
def test_a_time_that_is_none_is_1970(place: Place, moment: int) -> None:
    head = structs.replace(place.copy(CODEX), native="", started_at=moment)
    assert "1970-01-01T00-00-00" in place.plan(CODEX, head).main.path.name


def test_what_is_missing_or_damaged_is_found_before_anything_is_written(place: Place) -> None:
    head = place.copy(CLAUDE)
    last = segment_path(head.place.folder(place.home), head.main, head.main.segments[-1])
    kept = last.read_bytes()
    last.unlink()
    with pytest.raises(CopyIncomplete):
        place.resume(CLAUDE, head)
    last.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(CopyDamaged):
        place.resume(CLAUDE, head)
    assert not place.root.exists()
