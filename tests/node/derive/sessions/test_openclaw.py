"""Sessions in OpenClaw's database: copied as the lines that its rows are."""

import json
from collections.abc import Collection, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from crystal_core.cutting.messages import split_message
from crystal_node.capture.openclaw_database import rows_state_at, session_path, session_rows, store_of
from crystal_node.derive.sessions import lines as session_lines
from crystal_node.derive.sessions.copies import SessionCopies
from crystal_node.derive.sessions.database import SessionDatabase
from crystal_node.derive.sessions.writer import SessionWriter
from tests.node.agent.daemon.running import agent
from tests.node.capture.redaction_cases import TOKENS
from tests.node.derive.sessions.machines import PUBLIC, nothing_hidden
from tests.support.machine import Vault
from tests.support.openclaw_store import SCHEMA, Store
from tests.support.watchers import until

ID = "7b1f2d52-7a56-4d07-9d3e-0d0c4a1e0001"
OTHER = "7b1f2d52-7a56-4d07-9d3e-0d0c4a1e0002"
WATERMARKS = (
    "CREATE TABLE transcript_rewrite_watermarks (session_id TEXT PRIMARY KEY, generation TEXT) STRICT;"
)
REWRITTEN = "INSERT INTO transcript_rewrite_watermarks VALUES (?, 'x')"


def record(number: int, text: str, session: str = ID) -> dict[str, Any]:
    if number == 0:
        return {"type": "session", "version": 4, "id": session, "cwd": "/home/ada/work/claw"}
    message = {"role": "user" if number % 2 else "assistant", "content": text}
    return {"type": "message", "id": f"m-{number}", "message": message}


def expected(*texts: str, session: str = ID) -> bytes:
    records = [record(number, text, session) for number, text in enumerate(("", *texts))]
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


class Copier:
    """A machine with OpenClaw, and the copies of its session."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / ".ldm"
        self.home.mkdir()
        self.store = Store(folder / ".openclaw", SCHEMA + WATERMARKS, person=folder)
        self.path = session_path(self.store.path, ID)
        self.copies = SessionCopies(self.home)
        self.folder = folder
        self.opened()

    def opened(self) -> None:
        """With a database of cursors that is made if it is gone."""
        self.database = SessionDatabase.open(self.folder / "sessions.db")
        self.writer = SessionWriter(
            self.home, "a" * 32, self.database, self.store.adapter, person_home=self.folder
        )

    def lost(self) -> None:
        """The cursors are lost."""
        self.database.close()
        for each in self.folder.glob("sessions.db*"):
            each.unlink()
        self.opened()

    def says(self, *texts: str, after: int = 0, packed: bool = False) -> None:
        if after == 0:
            self.store.add(ID, 0, record(0, ""))
        for number, text in enumerate(texts, start=after + 1):
            self.store.add(ID, number, record(number, text), packed=packed)

    def copy(self, hides: Any = nothing_hidden) -> int:
        return self.writer.copy(self.path, ID, PUBLIC, hides)

    def tips(self) -> list[bytes]:
        found = self.copies.branches("openclaw", ID)
        return [b"".join(self.copies.read(branch.tip)) for branch in found]


@pytest.fixture
def copier(tmp_path: Path) -> Iterator[Copier]:
    made = Copier(tmp_path)
    with closing(made.store.database):
        yield made
    made.database.close()


def test_a_copy_has_the_rows_as_lines_and_costs_what_is_new(copier: Copier) -> None:
    copier.says("one", "two")
    assert copier.copy() == len(expected("one", "two"))
    copier.says("three", "four", after=2, packed=True)
    copier.store.say(OTHER, 0, "another session's")
    assert copier.copy() == len(expected("one", "two", "three", "four")) - len(expected("one", "two"))
    assert copier.copy() == 0
    assert copier.tips() == [expected("one", "two", "three", "four")]
    (head,) = copier.copies.heads()
    assert (head.title, head.last_words, head.cwd) == ("one", "four", "/home/ada/work/claw")
    assert head.native == f"~/.openclaw/agents/main/agent/openclaw-agent.sqlite/{ID}.jsonl"
    assert head.updated_at == 1_789_000_000_004, "the time of the last row, not of the whole database"


def test_a_lost_cursor_makes_no_second_copy(copier: Copier) -> None:
    copier.says("one", "two")
    copier.copy()
    copier.lost()
    copier.says("three", after=2)
    copier.copy()
    assert copier.tips() == [expected("one", "two", "three")]
    assert len(list(copier.copies.heads())) == 1


def test_a_session_that_was_read_in_many_passes_is_whole(
    copier: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crystal_node.capture.openclaw_database.PASS_BYTES_MAX", 100)
    texts = [f"words {number}" for number in range(20)]
    copier.says(*texts)
    copier.copy()
    assert copier.tips() == [expected(*texts)]
    assert b"".join(session_rows(copier.path)) == expected(*texts)
    at = len(expected(*texts[:7]))
    assert rows_state_at(copier.path, at).offset == at
    assert session_lines.state_at(copier.path, 0).offset == 0


@pytest.mark.parametrize("what", ["shorter", "the first", "the last", "said to be another"])
def test_a_session_that_was_rewritten_is_another_branch_and_the_old_one_stays(
    copier: Copier, what: str
) -> None:
    copier.says("one", "two", "three")
    copier.copy()
    change = "UPDATE transcript_events SET event_json = ? WHERE seq = ?"
    if what == "shorter":
        copier.store.database.execute("DELETE FROM transcript_events WHERE seq > 1")
        copier.says("2", after=1)
        now = expected("one", "2")
    elif what == "the first":
        header = json.dumps(record(0, "") | {"version": 5})
        copier.store.database.execute(change, (header, 0))
        now = header.encode() + b"\n" + expected("one", "two", "three").split(b"\n", 1)[1]
    elif what == "the last":
        copier.store.database.execute(change, (json.dumps(record(3, "3")), 3))
        now = expected("one", "two", "3")
    else:
        copier.store.database.execute(change, (json.dumps(record(2, "2")), 2))
        copier.store.database.execute(REWRITTEN, (ID,))
        now = expected("one", "2", "three")
    copier.copy()
    assert sorted(copier.tips()) == sorted([expected("one", "two", "three"), now])


def test_a_rewriting_that_changes_nothing_makes_no_second_copy(copier: Copier) -> None:
    copier.says("one", "two")
    copier.copy()
    copier.store.database.execute(REWRITTEN, (ID,))
    copier.says("three", after=2)
    copier.copy()
    assert copier.tips() == [expected("one", "two", "three")]
    assert len(list(copier.copies.heads())) == 1


def test_credentials_and_forgotten_words_stay_out(copier: Copier) -> None:
    token, kind = TOKENS[0]
    copier.says(f"my key {token}", "the marmot hides its nuts", "fine")
    (forgotten,) = split_message("the marmot hides its nuts")
    lost = sha256(forgotten.encode()).digest()

    def hides(marks: Collection[bytes]) -> set[bytes]:
        return {lost} & set(marks)

    copier.copy(hides)
    (tip,) = copier.tips()
    assert token.encode() not in tip
    assert f"[redacted:{kind}]".encode() in tip
    assert b"marmot" not in tip
    assert b"fine" in tip


def test_a_row_that_is_no_line_is_left_out(copier: Copier) -> None:
    copier.says("one")
    insert = "INSERT INTO transcript_events (session_id, seq, event_json, created_at, event_zstd) VALUES (?, ?, ?, ?, ?)"
    copier.store.database.execute(insert, (ID, 2, '{"a":\n1}', 2**62, None))
    copier.store.database.execute(insert, (ID, 3, None, -1, b"no frame"))
    copier.copy()
    assert copier.copy() == 0
    copier.store.add(ID, 4, record(4, "four"))
    copier.copy()
    (tip,) = copier.tips()
    assert tip == expected("one") + json.dumps(record(4, "four")).encode() + b"\n"


def test_only_a_name_below_the_database_is_a_session_of_it() -> None:
    assert store_of(Path("/x/agents/main/sessions/a.jsonl")) is None
    store = Path("/x/agents/main/agent/openclaw-agent.sqlite")
    assert store_of(session_path(store, "a")) == store


def test_the_service_copies_each_session_as_it_grows_and_no_strange_name(vault: Vault) -> None:
    core = vault.core
    store = Store(core.root / ".openclaw", person=core.root)
    with closing(store.database), agent(core):
        for session in (ID, OTHER, "../../outside"):
            store.add(session, 0, record(0, "", session))
            store.add(session, 1, record(1, "one", session))
        copies = SessionCopies(core.home)

        def holds(session: str, data: bytes) -> bool:
            return [each.main.bytes for each in copies.of("openclaw", session)] == [len(data)]

        until(lambda: holds(ID, expected("one")), "the copy", 60)
        until(lambda: holds(OTHER, expected("one", session=OTHER)), "the other's", 60)
        store.add(ID, 2, record(2, "two"))
        until(lambda: holds(ID, expected("one", "two")), "what was added", 60)
        assert {head.session for head in copies.heads()} == {ID, OTHER}
