"""Each program goes on with a session that another machine sent: what was said there is in the request that its model sees."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from crystal_node.capture.json_values import as_text, is_object, parse_json
from crystal_node.capture.openclaw_database import STORE_NAME, last_places, session_path, session_rows
from crystal_node.derive.sessions.copies import CopyIncomplete, SessionCopies
from crystal_node.derive.sessions.layout import Head
from crystal_node.derive.sessions.tools import session_of
from tests.node.agent.daemon.running import agent
from tests.support.machine import Machine, turn
from tests.support.scripted_model import Call
from tests.support.session_copies import LAPTOP, written_copy, written_long_ago
from tests.support.watchers import until
from tests.tools.conftest import Bare
from tests.tools.programs import ClaudeCode, Codex, GeminiCli, OpenClaw, Program, QwenCode
from tests.tools.workplace import RECORDED_SECONDS_MAX

RESUMED = (ClaudeCode, Codex, GeminiCli, QwenCode, OpenClaw)
HANDED_OVER = "5e1c0f7a-0000-4000-8000-000000000001"
ROOTS = {
    "claude-code": ".claude",
    "codex": ".codex",
    "gemini-cli": ".gemini",
    "qwen-code": ".qwen",
    "openclaw": ".openclaw",
}
TOLD = "The heron camera wakes at 05:20."
CLEANING_SECONDS, CLEANING_TURNS_MAX = 20, 5
PLACES: dict[str, Callable[[Path], Path]] = {
    "the same path": lambda home: home / "work" / "herons",
    "another path": lambda home: home / "src" / "birds" / "herons",
    "spaces and Unicode": lambda home: home / "Büro work" / "the 🌊 herons",
    "over 200 signs": lambda home: (home / "deep") / ("x" * (230 - len(f"{home}/deep/"))),
}


@pytest.fixture(scope="module", params=RESUMED, ids=lambda kind: kind.name)
def laptop(request: pytest.FixtureRequest, bare: Bare) -> Program:
    """A program with a session in which it was told something."""
    program = bare(request.param)
    script = program.workplace.model.script
    program.ask(program.workplace.project("herons"), script.says("When does the heron camera wake?", TOLD))
    return program


def sent(program: Program, machine: Machine, device: str = LAPTOP) -> Head:
    """The program's newest session as a copy in another machine's home."""
    tool, home = program.source, program.workplace.home
    root = home / ROOTS[tool]
    about: dict[str, Any] = {"cwd": "~/work/herons", "updated_at": 1_795_000_000_000}
    if isinstance(program, OpenClaw):
        store = root / "agents" / "main" / "agent" / STORE_NAME
        (stored,) = last_places(store)
        row = session_path(store, stored)
        data = b"".join(session_rows(row))
        native = f"~/{row.relative_to(home)}"
        return written_copy(
            machine.home, tool, stored, data, device, tool_session=stored, native=native, **about
        )
    found = [
        path for path in root.rglob("*.jsonl") if path.is_file() and session_of(tool, root, path) is not None
    ]
    path = max(found, key=lambda path: path.stat().st_mtime)
    session = session_of(tool, root, path)
    assert session is not None
    first = parse_json(path.read_bytes().split(b"\n")[0])
    own = as_text(first.get("sessionId")) if is_object(first) and tool == "gemini-cli" else session
    return written_copy(
        machine.home,
        tool,
        session,
        path.read_bytes(),
        device,
        tool_session=own or session,
        native=f"~/{path.relative_to(home)}",
        **about,
    )


@pytest.fixture
def desktop(laptop: Program, bare: Bare) -> Program:
    """Another machine with the same program, in a vault."""
    program = bare(type(laptop))
    program.workplace.machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", check=False)
    return program


def resumed(program: Program, head: Head, folder: Path) -> dict[str, Any]:
    """Put the session where the program looks for it, as `crystal resume` does before it becomes the program."""
    machine = program.workplace.machine
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of_a_stand_in(program)
    for file in (program.workplace.home / ROOTS[program.source]).rglob("*.jsonl"):
        written_long_ago(file)
    planned = machine.run("resume", head.session, "--in", str(folder), "--json", PATH=path).json
    machine.run("resume", head.session, "--in", str(folder), PATH=path)
    return planned


def folder_of_a_stand_in(program: Program) -> Path:
    """A folder with a program of the same name that notes its arguments: a screen is not what is tried here."""
    name = program.name.removesuffix("-code").removesuffix("-cli")
    folder = program.workplace.home / "stand-in"
    folder.mkdir(exist_ok=True)
    really = (
        f'[ "$1" = doctor ] && exec \'{program.command}\' "$@"\n' if isinstance(program, OpenClaw) else ""
    )
    (folder / name).write_text(f"#!/bin/sh\n{really}printf '%s\\0' \"$@\" > '{folder}/arguments'\n")
    (folder / name).chmod(0o755)
    return folder


def path_of_a_stand_in(program: Program) -> str:
    """A PATH with that folder; OpenClaw's own import is run, on its Node.js."""
    folders = (folder_of_a_stand_in(program), program.workplace.tools.node_folder, os.environ["PATH"])
    return os.pathsep.join(map(str, folders))


def started_with(program: Program) -> list[str]:
    """The arguments that the stand-in was given."""
    return (program.workplace.home / "stand-in" / "arguments").read_text().split("\0")


def asked_after(program: Program, folder: Path, session: str, prompt: str) -> str:
    """What the model reads when the session goes on."""
    script = program.workplace.model.script
    program.ask(folder, script.says(prompt, f"Answer to: {prompt}"), session)
    return script.holding(prompt)[-1].text


@pytest.mark.parametrize("place", PLACES)
def test_the_earlier_turns_are_in_the_request(laptop: Program, desktop: Program, place: str) -> None:
    folder = PLACES[place](desktop.workplace.home)
    head = sent(laptop, desktop.workplace.machine)
    if isinstance(desktop, ClaudeCode) and place == "over 200 signs":
        folder.mkdir(parents=True)
        desktop.ask(folder, desktop.workplace.model.script.says("A first word here", "Hello."))
    planned = resumed(desktop, head, folder)
    assert planned["folder"] == str(folder)
    assert TOLD in asked_after(desktop, folder, planned["session"], f"And in winter? ({place})")


def test_half_a_last_line_does_no_harm(laptop: Program, desktop: Program) -> None:
    if isinstance(desktop, OpenClaw):
        pytest.skip("a row of a database has no half")
    folder = desktop.workplace.home / "work" / "torn"
    head = sent(laptop, desktop.workplace.machine)
    (written,) = resumed(desktop, head, folder)["writes"]
    file = Path(written["file"])
    file.write_bytes(file.read_bytes() + b'{"type":"user","half')
    assert TOLD in asked_after(desktop, folder, head.tool_session, "What did I ask before?")


def test_a_fork_is_a_session_of_its_own(laptop: Program, desktop: Program) -> None:
    folder = desktop.workplace.home / "work" / "fork"
    head = sent(laptop, desktop.workplace.machine)
    (written,) = resumed(desktop, head, folder)["writes"]
    file = Path(written["file"])
    if isinstance(desktop, OpenClaw):
        common = b"".join(session_rows(file))
        asked_after(desktop, folder, head.session, "Something else here")
    else:
        common = file.read_bytes()
        file.write_bytes(common + b'{"type":"mode","mode":"normal"}\n')
    theirs = written_copy(
        desktop.workplace.machine.home,
        head.tool,
        head.session,
        common + last_line_of_another(common),
        tool_session=head.tool_session,
        native=head.native,
        cwd=head.cwd,
        updated_at=head.updated_at,
    )
    planned = resumed(desktop, theirs, folder)
    assert planned["relation"] == "forked"
    assert planned["session"] != head.tool_session
    assert TOLD in asked_after(desktop, folder, planned["session"], "What is known of the camera?")


def last_line_of_another(common: bytes) -> bytes:
    """What was said on the other machine in the meantime: for OpenClaw an entry below the last one."""
    last = parse_json(common.splitlines()[-1])
    if not is_object(last) or "parentId" not in last:
        return b'{"type":"mode","mode":"plan"}\n'
    entry = {"type": "session_info", "id": "9f0c", "parentId": last["id"], "name": "theirs"}
    stamped = entry | {"timestamp": "2026-11-28T14:00:00.000Z"}
    return json.dumps(stamped, separators=(",", ":")).encode() + b"\n"  # as JavaScript writes it


def test_back_and_forth_three_times(laptop: Program, desktop: Program, bare: Bare) -> None:
    """Each says something in turn; the next one's model reads all of it."""
    first = bare(type(laptop))
    first.workplace.machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", check=False)
    head = sent(laptop, first.workplace.machine)
    said = [TOLD]
    here, there = first, desktop
    session = resumed(first, head, first.workplace.project("herons"))["session"]
    for number in range(3):
        for _ in range(2):
            prompt = f"Turn {number} on {here.workplace.home.name}"
            seen = asked_after(here, here.workplace.project("herons"), session, prompt)
            assert [each for each in said if each not in seen] == []
            said.append(prompt)
            head = sent(here, there.workplace.machine)
            session = resumed(there, head, there.workplace.project("herons"))["session"]
            here, there = there, here


@pytest.mark.parametrize("command", ["resume", "restore"])
def test_what_the_tool_cleaned_up_comes_back(laptop: Program, bare: Bare, command: str) -> None:
    """The background service copied the session; the tool deleted it, with all that lay beside it."""
    program = bare(type(laptop))
    workplace, machine = program.workplace, program.workplace.machine
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", check=False)
    folder, root = workplace.project("herons"), workplace.home / ROOTS[program.source]
    with agent(machine):
        program.ask(folder, workplace.model.script.says("When does the heron camera wake?", TOLD))
        until(lambda: is_copied(machine, root), "the copy of the session", seconds=RECORDED_SECONDS_MAX)
    head = next(SessionCopies(machine.home).heads())
    cleaned_up(program, root, head)
    assert [path for path in root.rglob("*.jsonl") if TOLD in path.read_text("utf-8", "replace")] == []
    if command == "restore":
        path = path_of_a_stand_in(program)
        (restored,) = machine.run("sessions", "restore", "--all", "--json", PATH=path).json["restored"]
        assert restored["session"] == head.session
        session = head.tool_session or head.session
    else:
        session = resumed(program, head, folder)["session"]
    assert TOLD in asked_after(program, folder, session, "And in winter?")


def copied(machine: Machine) -> str:
    """What the copies of a home hold."""
    copies = SessionCopies(machine.home)
    try:
        return "".join(block.decode() for head in copies.heads() for block in copies.read(head))
    except CopyIncomplete:  # a segment was merged meanwhile
        return ""


def is_copied(machine: Machine, root: Path) -> bool:
    """Whether the copies hold what was told, and the tool's file whole if it has one: it stands there more than once."""
    texts = [text for path in root.rglob("*.jsonl") if TOLD in (text := path.read_text("utf-8", "replace"))]
    copy = copied(machine)
    return TOLD in copy and all(text in copy for text in texts)


def cleaned_up(program: Program, root: Path, head: Head) -> None:
    """Delete a session as the tool does. Claude Code does so itself, once a day, some seconds into a session, and not where the
    turn has ended by then: the files are older than `cleanupPeriodDays`. Of OpenClaw the whole database is lost."""
    own = head.tool_session or head.session
    if isinstance(program, ClaudeCode):
        workplace = program.workplace
        assert program.shell is not None
        lasts = Call(program.shell.name, {"command": f"timeout {CLEANING_SECONDS} tail -f /dev/null || true"})
        for _ in range(CLEANING_TURNS_MAX):
            for path in root.rglob(f"*{own}*"):
                written_long_ago(path)
            (root / ".last-cleanup").unlink(missing_ok=True)
            program.ask(workplace.project("other"), workplace.model.script.says("Say a word", lasts, "Word."))
            if not list(root.rglob(f"{own}.jsonl")):
                return
        return
    if isinstance(program, OpenClaw):
        for path in (root / "agents" / "main" / "agent").glob(f"{STORE_NAME}*"):
            path.unlink()
        return
    names = (f"*{own}*", f"*{own[:8]}*") if program.source == "gemini-cli" else (f"*{own}*",)
    for path in [path for name in names for path in root.rglob(name)]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("where", ["sessions", "archived_sessions"])
def test_a_session_that_codex_archived_or_compressed_here_goes_on(
    bare: Bare, where: str, compressed: bool
) -> None:
    """Codex looks for it as a plain file first: that which Crystal writes has all turns, and Codex's own form stays."""
    laptop, desktop = bare(Codex), bare(Codex)
    script = laptop.workplace.model.script
    laptop.ask(laptop.workplace.project("herons"), script.says("When does the heron camera wake?", TOLD))
    desktop.workplace.machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", check=False)
    folder = desktop.workplace.project("herons")
    head = sent(laptop, desktop.workplace.machine)
    (written,) = resumed(desktop, head, folder)["writes"]
    own = Path(written["file"])
    put_away = own if where == "sessions" else desktop.workplace.home / ".codex" / where / own.name
    data = own.read_bytes()
    own.unlink()
    put_away = put_away.with_name(own.name + ".zst") if compressed else put_away
    put_away.parent.mkdir(parents=True, exist_ok=True)
    put_away.write_bytes(zstandard.compress(data) if compressed else data)
    asked_after(laptop, laptop.workplace.project("herons"), head.session, "And in winter?")
    head = sent(laptop, desktop.workplace.machine)
    resumed(desktop, head, folder)
    seen = asked_after(desktop, folder, head.session, "And in spring?")
    assert TOLD in seen
    assert "And in winter?" in seen
    assert put_away.exists()


@pytest.mark.parametrize("kind", RESUMED, ids=lambda kind: kind.name)
def test_what_is_handed_over_is_read(bare: Bare, kind: type[Program]) -> None:
    """What is packed is in the first request of the program that it is handed to, or its model reads the file that is named."""
    program = bare(kind)
    workplace, machine = program.workplace, program.workplace.machine
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", check=False)
    lines = turn("When does the heron camera wake?", session=HANDED_OVER) + turn(TOLD, session=HANDED_OVER)
    head = written_copy(machine.home, "claude-code", HANDED_OVER, lines.encode(), cwd="~/work/herons")
    folder = workplace.project("herons")
    path = path_of_a_stand_in(program)
    short = program.name.removesuffix("-code").removesuffix("-cli")
    machine.run("handoff", head.session, "--to", short, PATH=path)
    (file,) = (machine.home / "state" / "handoff").rglob("*.md")
    options = {
        "claude-code": ["--add-dir", str(file.parent)],
        "gemini-cli": ["--include-directories", str(file.parent)],
        "qwen-code": ["--include-directories", str(file.parent)],
    }.get(program.name, [])
    assert program.shell is not None
    reads = Call(program.shell.name, dict.fromkeys(program.shell.arguments, f"cat '{file}'"))
    steps = [] if options else [reads]
    workplace.model.script.says("Go on with the session", *steps, "I have read it.")
    before = len(workplace.model.script.asked)
    (prompt,) = (words for words in started_with(program) if words.startswith("Go on with the session"))
    workplace.run([*program.words(prompt, ""), *options], folder, **program.variables)
    assert TOLD in "".join(asked.text for asked in workplace.model.script.asked[before:])
