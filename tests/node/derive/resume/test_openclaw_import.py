"""Sessions that go into OpenClaw's database, which its own program alone writes. Here that is a stand-in; `tests/tools` runs
the real one."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from crystal_node.base.errors import LocalStorage
from crystal_node.capture.openclaw_database import session_rows
from crystal_node.derive.resume.files import Relation, SessionBusy
from crystal_node.derive.resume.openclaw_import import (
    NotImported,
    StoredSession,
    import_session,
    stored_session,
)
from crystal_node.derive.resume.plan import ResumePlan, carry_out, plan_resume
from crystal_node.derive.resume.tools import OpenClawSessions
from crystal_node.derive.sessions.copies import SessionCopies
from tests.support.openclaw_store import NODES, SCHEMA, Store
from tests.support.programs import openclaw_stand_in
from tests.support.session_copies import DESKTOP, written_copy

ID = "7b1f2d52-7a56-4d07-9d3e-0d0c4a1e0001"
KEY = f"agent:main:explicit:{ID}"
STAND_IN = Path(openclaw_stand_in.__file__)
IMPORTS = f"#!/bin/sh\nexec '{sys.executable}' '{STAND_IN}' \"$@\"\n"


def lines(*texts: str) -> bytes:
    header = {"type": "session", "version": 4, "id": ID, "cwd": "/home/ada/work"}
    records = [header, *({"type": "message", "id": f"m-{text}", "text": text} for text in texts)]
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


class Place:
    """A home of Crystal and OpenClaw's folder. ``store``: its database, of the agent `main`."""

    def __init__(self, folder: Path) -> None:
        self.home, self.root, self.programs = folder / "ldm", folder / "openclaw", folder / "bin"
        self.programs.mkdir()
        self.store = Store(self.root, SCHEMA + NODES)
        self.tool = OpenClawSessions(self.root)
        self.sessions = self.root / "agents" / "main" / "sessions"

    def program(self, text: str) -> None:
        path = self.programs / "openclaw"
        path.write_text(text)
        path.chmod(0o755)

    def has(self, data: bytes) -> None:
        """The database has a session of these lines."""
        for number, line in enumerate(data.splitlines()):
            self.store.add(ID, number, json.loads(line))
        row = json.dumps({"sessionId": ID, "updatedAt": 7, "modelOverride": "mine"})
        self.store.database.execute("INSERT INTO session_nodes VALUES (?, ?, ?)", (KEY, ID, row))

    def plan(self, data: bytes, device: str = DESKTOP) -> ResumePlan:
        native = f"~/.openclaw/agents/main/agent/openclaw-agent.sqlite/{ID}.jsonl"
        head = written_copy(self.home, "openclaw", ID, data, device, native=native, tool_session=ID)
        return plan_resume(SessionCopies(self.home), head, self.tool, self.root)

    def resume(self, data: bytes) -> ResumePlan:
        plan = self.plan(data)
        carry_out(plan, SessionCopies(self.home), self.home / "torn")
        return plan

    def rows(self, plan: ResumePlan) -> bytes:
        return b"".join(session_rows(plan.main.path))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    made = Place(tmp_path)
    monkeypatch.setenv("PATH", f"{made.programs}{os.pathsep}/usr/bin{os.pathsep}/bin")
    made.program(IMPORTS)
    with closing(made.store.database):
        yield made


def test_what_the_database_does_not_have_is_imported_by_openclaw(place: Place) -> None:
    plan = place.resume(lines("one"))
    assert (plan.main.compared.relation, place.rows(plan)) == (Relation.ABSENT, lines("one"))
    assert plan.command == ["openclaw", "tui", "--local", "--session", f"agent:main:{ID}"]
    assert list(place.sessions.iterdir()) == []
    again = place.plan(lines("one", "two"))
    assert again.main.compared.relation is Relation.BEHIND
    assert place.rows(place.resume(lines("one", "two"))) == lines("one", "two")
    assert place.plan(lines("one")).written == []


def test_a_session_keeps_its_key_its_settings_and_its_own_words(place: Place) -> None:
    place.has(lines("one ghp_16C7e42F292c6912E7710c838347Ae178B4a"))
    plan = place.resume(lines("one [redacted:github-token]", "two"))
    assert place.rows(plan).splitlines()[1:] == [
        *lines("one ghp_16C7e42F292c6912E7710c838347Ae178B4a").splitlines()[1:],
        *lines("two").splitlines()[1:],
    ]
    assert plan.command[-1] == KEY
    known = stored_session(place.store.path, ID)
    assert known is not None
    assert (known.key, json.loads(known.entry)["modelOverride"]) == (KEY, "mine")


def test_what_went_another_way_becomes_a_session_of_its_own(place: Place) -> None:
    place.has(lines("one", "here"))
    plan = place.resume(lines("one", "there"))
    assert plan.forked == ID
    new = plan.session.own
    assert place.rows(plan) == lines("one", "there").replace(ID.encode(), new.encode())
    assert plan.command[-1] == f"agent:main:{new}"
    assert place.plan(lines("one", "there")).main.path == plan.main.path


def test_the_first_session_of_a_machine_makes_the_database(tmp_path: Path, place: Place) -> None:
    place.root = tmp_path / "fresh"
    place.tool = OpenClawSessions(place.root)
    place.sessions = place.root / "agents" / "main" / "sessions"
    place.root.mkdir()
    assert place.plan(lines("one")).main.path.parent == place.sessions, "OpenClaw was never set up here"
    (place.root / "openclaw.json").write_text("{}")
    assert place.rows(place.resume(lines("one"))) == lines("one")
    place.program("#!/bin/sh\necho '--fix'\n")
    (place.root / "agents" / "main" / "agent" / "openclaw-agent.sqlite").unlink()
    assert place.plan(lines("one")).main.path.parent == place.sessions, "an older version"


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (
            "#!/bin/sh\necho 'failed to acquire gateway state ownership' >&2\nexit 1\n",
            "gateway state ownership",
        ),
        (
            '#!/bin/sh\necho \'{"targets":[{"issues":[{"message":"no room"}]}],"totals":{"issues":1}}\'\n',
            "no room",
        ),
        (
            '#!/bin/sh\necho \'{"ok":false,"error":{"message":"Stop the Gateway"}}\'\nexit 2\n',
            "Stop the Gateway",
        ),
        ("#!/bin/sh\necho nonsense\n", "nonsense"),
        ("#!/bin/sh\nexit 3\n", "it ended with 3"),
        ('#!/bin/sh\necho \'{"totals":{"issues":0}}\'\n', "has changed lines"),
    ],
)
def test_what_openclaw_refuses_is_said_and_leaves_nothing(place: Place, program: str, says: str) -> None:
    place.has(lines("one"))
    place.program(program)
    with pytest.raises(NotImported, match=says) as raised:
        place.resume(lines("one", "two"))
    assert ("openclaw gateway stop" in raised.value.hint) is (says != "has changed lines")
    assert list(place.sessions.iterdir()) == []
    assert place.rows(place.plan(lines("one"))) == lines("one")


def test_without_the_program_nothing_is_written(place: Place) -> None:
    (place.programs / "openclaw").unlink()
    before = place.store.path.read_bytes()
    with pytest.raises(NotImported, match="not installed") as raised:
        place.resume(lines("one"))
    assert "crystal handoff" in raised.value.hint
    assert place.store.path.read_bytes() == before
    assert not place.sessions.exists()


@pytest.mark.parametrize("name", ["sessions.json", "another.jsonl"])
def test_files_that_openclaw_has_not_imported_are_not_imported_with_it(place: Place, name: str) -> None:
    place.sessions.mkdir()
    (place.sessions / name).write_text("{}")
    with pytest.raises(NotImported, match="not imported into its database yet") as raised:
        place.resume(lines("one"))
    assert "openclaw doctor --session-sqlite import" in raised.value.hint
    assert [each.name for each in place.sessions.iterdir()] == [name]


def test_a_database_that_cannot_be_read_is_said(place: Place) -> None:
    place.store.database.close()
    place.store.path.write_bytes(b"no database at all" * 100)
    with pytest.raises(LocalStorage, match="cannot be read") as raised:
        place.plan(lines("one"))
    assert "openclaw doctor" in raised.value.hint


@pytest.mark.parametrize("name", ["sessions.json", f"{ID}.jsonl"])
def test_what_another_program_makes_there_meanwhile_stays(place: Place, name: str) -> None:
    def copied() -> Iterator[bytes]:
        (place.sessions / name).write_text("theirs")
        yield lines("one")

    with pytest.raises(SessionBusy, match="another program"):
        import_session(place.root, "main", ID, StoredSession(KEY, ""), copied())
    assert [(each.name, each.read_text()) for each in place.sessions.iterdir()] == [(name, "theirs")]
