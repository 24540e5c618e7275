"""Tools that keep their conversations in projects: Crush, whose own list names them, and Aider, which lists them nowhere."""

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
import zstandard

from crystal_node.capture.adapter import decode_state, encode_state
from crystal_node.capture.aider import HISTORY, Aider
from crystal_node.capture.crush import Crush
from tests.node.capture.kept import HOME
from tests.node.capture.tools import QUIET_NS, read_all
from tests.node.capture.transcripts import FIXTURES, said
from tests.support.machine import Machine, transcript

STARTED = "\n# aider chat started at 2026-11-28 15:23:00\n\n> aider --model x  \n> Aider v0.86.2  \n"
MODEL = "> Model: x with diff edit format  \n"


def aider(home: Path, *texts: str) -> tuple[Aider, Path]:
    path = home / "work" / HISTORY
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(texts))
    return Aider(home / ".aider", home), path


def asked_of(machine: Machine, folder: Path) -> list[str]:
    machine.run("export", str(folder), "--no-files")
    lines = (folder / "conversations.jsonl").read_text().splitlines()
    return sorted(row["text"] for row in map(json.loads, lines) if row["role"] == "user")


def test_what_aider_appends_is_recorded_once(tmp_path: Path) -> None:
    steps = [
        STARTED + MODEL,
        "\n#### one  \n#### more  \n",
        "\nanswer one\n\n#### a heading\n\n> a quotation\n\n",
        "\n> Tokens: 9 sent, 2 received.  \n> Applied edit to a.py  \n",
        "\n#### /add b.py  \n\n> Added b.py to the chat  \n\n#### <blank>  \n",
        "\n#### two  \n\nanswer two\n\n",
        STARTED.replace(":00", ":59") + MODEL.replace("Model: x", "Main model: y"),
        "\n#### three  \n\nanswer three\n\n",
    ]
    adapter, path = aider(tmp_path)
    state, heard = None, list[tuple[str, str]]()
    for number in range(len(steps)):
        path.write_text("".join(steps[: number + 1]))
        operations, counts, state = read_all(adapter, path, state)
        assert counts.spots == []
        heard += said(operations)
        state = decode_state(encode_state(state))
    assert heard == [
        ("user", "one\nmore"),
        ("assistant", "answer one\n\n#### a heading\n\n> a quotation"),
        ("user", "two"),
        ("assistant", "answer two"),
        ("user", "three"),
        ("assistant", "answer three"),
    ]
    operations, counts, _ = read_all(adapter, path)
    assert [piece.model for one in operations for piece in one.pieces] == ["", "x", "", "x", "", "y"]
    assert len({one.session for one in operations}) == 2
    assert {one.project for one in operations} == {"work"}
    assert counts.skipped["command"] == 2


def test_an_answer_that_aider_still_writes_waits(tmp_path: Path) -> None:
    adapter, path = aider(tmp_path, STARTED, MODEL, "\n#### one  \n", "\nhalf an ans")
    operations, _, state = read_all(adapter, path)
    assert said(operations) == [("user", "one")]
    path.write_text(STARTED + MODEL + "\n#### one  \n\nhalf an answer, and the rest\n\n")
    operations, _, _ = read_all(adapter, path, decode_state(encode_state(state)))
    assert said(operations) == [("assistant", "half an answer, and the rest")]


def test_aiders_file_is_found_in_projects_that_the_memory_knows(machine: Machine, tmp_path: Path) -> None:
    known, unknown, elsewhere = (machine.root / "work" / name for name in ("known", "unknown", "else"))
    for folder in (known, unknown, elsewhere):
        folder.mkdir(parents=True)
        (folder / HISTORY).write_text(f"{STARTED}{MODEL}\n#### Where is {folder.name}?  \n\nHere.\n\n")
    outside = tmp_path / "outside.md"
    outside.write_text(f"{STARTED}{MODEL}\n#### From elsewhere?  \n\nYes.\n\n")
    (machine.root / "work" / "linked").mkdir()
    (machine.root / "work" / "linked" / HISTORY).symlink_to(outside)
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp")

    def asked() -> list[str]:
        return asked_of(machine, tmp_path / f"export-{len(list(tmp_path.iterdir()))}")

    machine.run("capture")
    assert asked() == []
    machine.run("capture", str(known))
    assert asked() == ["Where is known?"]
    (told,) = [
        each for each in machine.run("capture", "status", "--json").json["tools"] if each["name"] == "aider"
    ]
    assert (told["transcripts"], told["waiting_bytes"]) == (1, 0)
    with (known / HISTORY).open("a") as file:
        file.write("\n#### And now?  \n\nStill here.\n\n")
    machine.run("capture")
    assert asked() == ["And now?", "Where is known?"], "the project is known now, and no other"
    machine.run("capture", "exclude", str(known))
    with (known / HISTORY).open("a") as file:
        file.write("\n#### Excluded?  \n\nYes.\n\n")
    machine.run("capture")
    assert asked() == ["And now?", "Where is known?"]


@pytest.mark.parametrize("known", [True, False], ids=["known before", "known after"])
def test_what_aider_was_told_in_private_mode_is_not_recorded(
    machine: Machine, tmp_path: Path, known: bool
) -> None:
    path = machine.root / "work" / "gulls" / HISTORY
    path.parent.mkdir(parents=True)
    path.write_text(f"{STARTED}{MODEL}\n#### Before?  \n\nYes.\n\n")
    began = time.time_ns()
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp")
    if known:
        machine.run("capture", str(path.parent))
    machine.run("private", "on")
    with path.open("a") as file:
        file.write("\n#### In private?  \n\nYes.\n\n")
    machine.run("private", "off")
    with path.open("a") as file:
        later = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began // 10**9 + 3600))
        file.write("\n#### In the same chat?  \n\nYes.\n\n")
        file.write(STARTED.replace("2026-11-28 15:23:00", later) + MODEL + "\n#### After?  \n\nYes.\n\n")
    os.utime(path, ns=(began + 7200 * 10**9, began + 7200 * 10**9))
    machine.run("capture", str(path.parent))
    said_then = ["After?", "Before?", "In the same chat?"]
    assert asked_of(machine, tmp_path / "export") == (said_then if known else ["After?"])


def test_a_chat_with_aider_after_a_pause_of_its_project_is_recorded(machine: Machine, tmp_path: Path) -> None:
    path = machine.root / "work" / "gulls" / HISTORY
    path.parent.mkdir(parents=True)
    path.write_text(f"{STARTED.replace('2026', '2020')}{MODEL}\n#### Before?  \n\nYes.\n\n")
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp")
    machine.run("capture", str(path.parent))
    machine.run("capture", "pause", str(path.parent))
    with path.open("a") as file:
        file.write("\n#### Meanwhile?  \n\nYes.\n\n")
    machine.run("capture", "include", str(path.parent))
    later = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() + 60))
    with path.open("a") as file:
        file.write("\n#### In the same chat?  \n\nYes.\n\n")
        file.write(STARTED.replace("2026-11-28 15:23:00", later) + MODEL + "\n#### After?  \n\nYes.\n\n")
    machine.run("capture")
    assert asked_of(machine, tmp_path / "export") == ["After?", "Before?"]


def test_from_now_on_holds_for_a_file_that_becomes_known_later(machine: Machine, tmp_path: Path) -> None:
    path = machine.root / "work" / "gulls" / HISTORY
    path.parent.mkdir(parents=True)
    path.write_text(f"{STARTED.replace('2026', '2020')}{MODEL}\n#### Before?  \n\nYes.\n\n")
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp", "--from-now")
    later = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() + 60))
    with path.open("a") as file:
        file.write(STARTED.replace("2026-11-28 15:23:00", later) + MODEL + "\n#### After?  \n\nYes.\n\n")
    machine.run("capture", str(path.parent))
    assert asked_of(machine, tmp_path / "export") == ["After?"]
    machine.run("backfill", "--tool", "aider", "--yes")
    assert asked_of(machine, tmp_path / "export-again") == ["After?", "Before?"]


def test_a_project_whose_path_no_system_takes_stops_nothing(machine: Machine, tmp_path: Path) -> None:
    long = machine.root / ("n" * 300)
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp")
    transcript(machine, "Said in a project with a long name.", name="one")
    path = next(machine.projects.rglob("one.jsonl"))
    record = json.loads(path.read_text().splitlines()[0]) | {"cwd": str(long)}
    path.write_text(json.dumps(record) + "\n")
    crush(machine.root / ".local" / "share" / "crush", {"path": str(long)})
    machine.run("capture")
    transcript(machine, "Said afterwards.", name="two")
    machine.run("capture")
    assert "Said afterwards." in asked_of(machine, tmp_path / "export")


def crush(root: Path, *projects: object, home: Path = HOME) -> Crush:
    root.mkdir(parents=True, exist_ok=True)
    (root / "projects.json").write_text(json.dumps({"projects": list(projects)}))
    return Crush(root, home)


class CrushDatabase:
    """A project's database."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "crush.db"
        with closing(apsw.Connection(str(self.path))) as database:
            database.execute((FIXTURES / "crush" / "schema.sql").read_text())
            database.execute(
                "INSERT INTO sessions (id, title, updated_at, created_at) VALUES ('s', 't', 1, 1)"
            )

    def add(self, number: str, role: str, *parts: dict[str, Any], packed: bool = False) -> None:
        stored: bytes | str = json.dumps(list(parts))
        if packed:
            stored = zstandard.compress(str(stored).encode())
        self.run(
            "INSERT OR REPLACE INTO messages (id, session_id, role, parts, model, created_at, updated_at)"
            " VALUES (?, 's', ?, ?, 'm', 1795353600, 1)",
            (number, role, stored),
        )

    def run(self, query: str, bindings: tuple[Any, ...] = ()) -> None:
        with closing(apsw.Connection(str(self.path))) as database:
            database.execute(query, bindings)


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "data": {"text": text}}


FINISH = {"type": "finish", "data": {"reason": "end_turn", "time": 1}}


def test_crushs_projects_are_those_of_its_list(tmp_path: Path) -> None:
    here, moved = tmp_path / "here", tmp_path / "data of moved"
    for folder in (here / ".crush", moved, tmp_path / "unlisted" / ".crush"):
        CrushDatabase(folder)
    linked = tmp_path / "linked" / ".crush"
    linked.mkdir(parents=True)
    (linked / "crush.db").symlink_to(moved / "crush.db")
    adapter = crush(
        tmp_path / "data",
        {"path": str(here), "data_dir": ".crush"},
        {"path": str(tmp_path / "moved"), "data_dir": str(moved)},
        {"path": str(tmp_path / "linked")},
        {"path": "relative"},
        {"path": str(tmp_path / "gone")},
        {"path": 7},
        "x",
        home=tmp_path,
    )
    found = [each.path for each in adapter.discover()]
    assert found == sorted([here / ".crush" / "crush.db", moved / "crush.db"])
    assert adapter.concerns(str(moved / "crush.db-wal"))
    assert not adapter.concerns(str(tmp_path / "unlisted" / ".crush" / "crush.db"))
    crush(tmp_path / "data", {"path": str(here)})
    assert [each.path for each in adapter.discover()] == [here / ".crush" / "crush.db"]


def test_a_list_of_crush_has_nothing_watched_beyond_its_project_the_home_and_its_own_folder(
    tmp_path: Path,
) -> None:
    home, elsewhere = tmp_path / "homes" / "mara", tmp_path / "elsewhere"
    project = home / "proj"
    inside, outside = project / "data", elsewhere / "data"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
    (project / "link").symlink_to(elsewhere)
    (elsewhere / ".crush").symlink_to("/")
    mine = {"path": str(project)}
    adapter = crush(
        home / "crush",
        *(
            {"path": str(project), "data_dir": each}
            for each in ("/", str(home), str(tmp_path), str(elsewhere))
        ),
        mine | {"data_dir": "link"},
        mine | {"data_dir": "link/data"},
        mine | {"data_dir": "../../../elsewhere/data"},
        {"path": str(elsewhere)},
        {"path": "/", "data_dir": str(outside)},
        {"path": str(tmp_path), "data_dir": str(outside)},
        home=home,
    )
    assert adapter.folders == [adapter.root]
    kept = [
        mine | {"data_dir": str(inside)},
        mine | {"data_dir": str(home / "other")},
        mine | {"data_dir": str(adapter.root / "one")},
        {"path": str(outside), "data_dir": str(outside / "deeper")},
        {"path": "/"},
    ]
    crush(adapter.root, *kept)
    folders = [inside, home / "other", adapter.root / "one", outside / "deeper", Path("/.crush")]
    assert adapter.folders == [adapter.root, *folders]


@pytest.mark.parametrize(
    "listed", [b"", b"{", b"[]", b'{"projects": {}}', b'{"projects": [[], null]}', b"\xff"]
)
def test_a_list_of_another_form_names_no_project(tmp_path: Path, listed: bytes) -> None:
    (tmp_path / "projects.json").write_bytes(listed)
    assert list(Crush(tmp_path, HOME).discover()) == []


def test_a_message_that_crush_still_writes_waits_and_packed_ones_are_read(tmp_path: Path) -> None:
    store = CrushDatabase(tmp_path / "data" / "src")
    adapter = crush(tmp_path / "data", {"path": str(HOME / "src"), "data_dir": str(store.path.parent)})
    store.add("1", "user", words("one"), packed=True)
    store.add("2", "assistant", words("two, half"))
    operations, _, state = read_all(adapter, store.path)
    assert said(operations) == [("user", "one")]
    assert {one.project for one in operations} == {"src"}
    store.run("UPDATE messages SET parts = ? WHERE id = '2'", (json.dumps([words("two, whole"), FINISH]),))
    operations, _, state = read_all(adapter, store.path, decode_state(encode_state(state)))
    assert said(operations) == [("assistant", "two, whole")]
    store.add("3", "assistant", words("its program was killed"))
    operations, _, quiet = read_all(adapter, store.path, state, quiet_ns=QUIET_NS)
    assert said(operations) == [("assistant", "its program was killed")]
    store.add("4", "user", words("four"))
    assert said(read_all(adapter, store.path, quiet)[0]) == [("user", "four")]
    assert said(read_all(adapter, store.path, state)[0]) == [
        ("assistant", "its program was killed"),
        ("user", "four"),
    ]


def test_a_packed_message_that_unpacks_beyond_the_limit_is_left_out(tmp_path: Path) -> None:
    store = CrushDatabase(tmp_path / "proj" / ".crush")
    adapter = crush(tmp_path / "data", {"path": str(tmp_path / "proj")})
    bomb = zstandard.compress(b"[" + b" " * (200 * 1024 * 1024) + b"]")
    store.run(
        "INSERT INTO messages (id, session_id, role, parts, created_at, updated_at) VALUES ('1', 's', 'user', ?, 1, 1)",
        (bomb,),
    )
    store.add("2", "user", words("after"))
    operations, counts, _ = read_all(adapter, store.path)
    assert said(operations) == [("user", "after")]
    assert counts.strange == 1
