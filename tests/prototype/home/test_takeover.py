"""A takeover loses no write that was acknowledged, names what still writes, and shows where everything is."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from crystal_node.base.errors import HomeBusy, LocalStorage, UsageError
from crystal_prototype.home import takeover
from crystal_prototype.home.database import opened as published
from crystal_prototype.home.takeover import known_staging, take_over
from crystal_prototype.home.writers import registrations
from tests.prototype.home import prototypes
from tests.prototype.home.prototypes import places_of
from tests.support.constant import always

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ROW = "INSERT INTO chunks (text, text_hash, source_type, created_at) VALUES ('w', 'w', 'conversation', '2026-01-09')"
WRITER = f"""
import apsw, sys
db = apsw.Connection(sys.argv[1])
db.execute("PRAGMA journal_mode = WAL")
for _ in range(119):
    db.execute({ROW!r})
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    root = tmp_path / ".ldm"
    prototypes.home(root)
    return root


@contextmanager
def writing(home: Path) -> Generator[None]:
    """A process that has written 119 rows and has the database open."""
    command = [sys.executable, "-c", WRITER, str(home / "memory" / "crystal.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        try:
            yield
        finally:
            process.stdin.close()


def contents(home: Path) -> dict[str, bytes]:
    """All files; the log's index aside, which its readers share."""
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and not path.name.endswith("-shm")
    }


@pytest.mark.parametrize("named", [True, False])
def test_a_process_that_has_the_database_open_stops_it_also_even_so(
    home: Path, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    if not named:  # as on a system that does not tell who has a file open
        monkeypatch.setattr(takeover, "holders", always(list[object]()))
    with writing(home):
        before = contents(home)
        with pytest.raises(HomeBusy, match=r"\(process \d+\)" if named else "is open in another program"):
            take_over(places_of(home), NOW, even_so=True)
        assert contents(home) == before
        assert [path.name for path in home.parent.iterdir()] == [home.name]
    monkeypatch.undo()
    done = take_over(places_of(home), NOW, even_so=False)
    assert done.database is not None
    with published(done.database, "") as memory:
        assert memory.inventory().pieces == 119 + 6


def test_what_a_killed_program_left_in_its_log_is_in_the_copy(home: Path) -> None:
    database = home / "memory" / "crystal.db"
    killed = f"import apsw, os, sys; db = apsw.Connection(sys.argv[1]); db.execute({ROW!r}); os._exit(0)"
    subprocess.run([sys.executable, "-c", killed, str(database)], check=True, timeout=200)
    assert database.with_name("crystal.db-wal").stat().st_size
    done = take_over(places_of(home), NOW, even_so=False)
    assert done.database is not None
    with published(done.database, "") as memory:
        assert memory.inventory().pieces == 7


def test_nobody_writes_into_the_database_while_it_is_copied(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = takeover._copied  # pyright: ignore[reportPrivateUsage]  happens within
    outcome: list[subprocess.CompletedProcess[str]] = []

    def write_then_copy(*given: Any) -> object:
        found = copied(*given)
        command = [sys.executable, "-c", f"import apsw, sys; apsw.Connection(sys.argv[1]).execute({ROW!r})"]
        outcome.append(
            subprocess.run(
                [*command, str(home / "memory" / "crystal.db")],
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
        )
        return found

    monkeypatch.setattr(takeover, "_copied", write_then_copy)
    take_over(places_of(home), NOW, even_so=False)
    assert outcome[0].returncode != 0
    assert "BusyError" in outcome[0].stderr, "what is not acknowledged is no loss"


@pytest.mark.parametrize("name", ["state/watermarks.json", "state/new.json", "memory/lance/new.bin"])
def test_what_changes_behind_the_copy_stops_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    copied = takeover._copied  # pyright: ignore[reportPrivateUsage]  happens within

    def change_behind(*given: Any) -> object:
        found = copied(*given)
        (home / name).write_text("written behind the copy")
        return found

    monkeypatch.setattr(takeover, "_copied", change_behind)
    with pytest.raises(LocalStorage, match="changed while it was copied"):
        take_over(places_of(home), NOW, even_so=False)
    assert (home / "config.json").exists()
    assert (home / "memory" / "crystal.db").exists()
    assert [path.name for path in home.parent.iterdir()] == [home.name]


def test_a_prototype_that_begins_anew_behind_the_takeover_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = takeover._take_out  # pyright: ignore[reportPrivateUsage]  happens within

    def begin_anew(root: Path) -> None:
        out(root)
        prototypes.database(root / "memory" / "crystal.db")

    monkeypatch.setattr(takeover, "_take_out", begin_anew)
    with pytest.raises(HomeBusy, match="has started over") as refused:
        take_over(places_of(home), NOW, even_so=False)
    assert str(home.with_name(".ldm-prototype-20260102-000000")) in refused.value.hint


def test_executable_files_stay_executable_in_the_copy(home: Path) -> None:
    done = take_over(places_of(home), NOW, even_so=False)
    modes = {path.name: path.stat().st_mode & 0o777 for path in done.copy.rglob("*") if path.is_file()}
    assert modes["crystal-capture.sh"] == 0o700
    assert {mode for name, mode in modes.items() if name != "crystal-capture.sh"} == {0o600}


def settings(name: str, document: object) -> Callable[[Path], str]:
    def write(person: Path) -> str:
        path = person / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    return write


def plugin(person: Path) -> str:
    folder = person / ".openclaw" / "extensions" / "memory-crystal"
    folder.mkdir(parents=True)
    return str(folder)


def hook(command: str) -> dict[str, Any]:
    return {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}}


SERVER = {"command": "node", "args": ["/opt/memory-crystal/dist/mcp-server.js"]}


@pytest.mark.parametrize(
    "registered",
    [
        settings(".claude/settings.json", hook("node ~/.openclaw/extensions/memory-crystal/dist/cc-hook.js")),
        settings(".claude/settings.local.json", "{ // a comment\n" + json.dumps(hook("node cc-hook.js"))),
        settings(".claude.json", {"projects": {"/w": {"mcpServers": {"memory": SERVER}}}}),
        settings(
            ".config/Claude/claude_desktop_config.json", {"mcpServers": {"memory-crystal": {"command": "x"}}}
        ),
        settings(".openclaw/openclaw.json", {"plugins": {"entries": {"memory-crystal": {"enabled": True}}}}),
        settings(".codex/config.toml", '[mcp_servers.m]\nargs = ["/x/memory-crystal/dist/mcp-server.js"]\n'),
        settings(".config/systemd/user/crystal.timer", "[Unit]\nDescription=crystal-capture.sh\n"),
        settings("Library/LaunchAgents/x.plist", "<string>/p/.ldm/bin/crystal-capture.sh</string>"),
        plugin,
    ],
)
def test_whatever_starts_the_prototype_is_named(home: Path, registered: Callable[[Path], str]) -> None:
    place = registered(home.parent)
    before = contents(home)
    with pytest.raises(HomeBusy) as refused:
        take_over(places_of(home), NOW, even_so=False)
    assert place in str(refused.value)
    assert contents(home) == before
    take_over(places_of(home), NOW, even_so=True)


def test_a_line_of_the_crontab_is_named(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "programs" / "crontab"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho '* * * * * /home/p/.ldm/bin/crystal-capture.sh'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert registrations(places_of(home)) == ["a line of the crontab (crontab -e)"]


def test_crystals_own_programs_and_folders_of_that_name_are_no_writers(home: Path) -> None:
    own = "/home/p/.local/share/uv/tools/memory-crystal/bin/crystal"
    settings(".claude/settings.json", hook(f"{own} hook stop"))(home.parent)
    servers = {
        "crystal": {"command": own, "args": ["mcp"]},
        "clone": {"command": "/s/memory-crystal/.venv/bin/crystal"},
    }
    projects = {"/home/p/memory-crystal": {"history": ["git clone memory-crystal"]}}
    settings(".claude.json", {"mcpServers": servers, "projects": projects})(home.parent)
    assert registrations(places_of(home)) == []


def test_a_second_takeover_shows_all_copies_and_where_the_data_is(home: Path) -> None:
    first = take_over(places_of(home), NOW, even_so=False)
    with pytest.raises(UsageError) as nothing:
        take_over(places_of(home), NOW + timedelta(days=1), even_so=False)
    assert str(first.copy / "memory" / "crystal.db") in nothing.value.hint
    (home / "config.json").write_text(json.dumps({"version": "1.0.0", "agents": ["cc-mini"]}))
    begun = prototypes.database(home / "memory" / "crystal.db")
    with closing(apsw.Connection(str(begun))) as db:
        db.execute("DELETE FROM chunks WHERE id > 1; DELETE FROM memories")
    second = take_over(places_of(home), NOW + timedelta(days=2), even_so=False)
    assert second.copies == (second.copy, first.copy)
    assert [(each.database.parent.parent, each.messages, each.memories) for each in second.databases] == [
        (second.copy, 1, 0),
        (first.copy, 6, 2),
    ]
    assert second.database == first.copy / "memory" / "crystal.db"


def test_the_place_of_earlier_versions_and_what_was_staged_are_named(home: Path) -> None:
    former = prototypes.database(home.parent / ".openclaw" / "memory-crystal" / "crystal.db")
    staged = home / "staging" / "cc-air" / "transcripts" / "one.jsonl"
    staged.parent.mkdir(parents=True)
    staged.write_text("{}\n")
    before = former.read_bytes()
    done = take_over(places_of(home), NOW, even_so=False)
    assert [each.database for each in done.databases] == [done.copy / "memory" / "crystal.db", former]
    assert former.read_bytes() == before
    assert done.staged == {"cc-air": 1}
    assert (done.copy / staged.relative_to(home)).read_text() == staged.read_text() == "{}\n"
    assert known_staging(places_of(home)) == (done.copy / "staging",)


def test_a_link_to_the_home_at_the_place_of_earlier_versions_is_no_other_database(home: Path) -> None:
    former = home.parent / ".openclaw" / "memory-crystal" / "crystal.db"
    former.parent.mkdir(parents=True)
    former.symlink_to(home / "memory" / "crystal.db")
    done = take_over(places_of(home), NOW, even_so=False)
    assert [each.database for each in done.databases] == [done.copy / "memory" / "crystal.db"]
