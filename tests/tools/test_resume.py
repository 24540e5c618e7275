"""Each program goes on with a session that another machine sent: what was said there is in the request that its model sees."""

import os
from pathlib import Path
from typing import Any

import pytest

from crystal_node.capture.json_values import as_text, is_object, parse_json
from crystal_node.derive.resume.tools import ClaudeCodeSessions, CodexSessions, GeminiSessions, QwenSessions
from crystal_node.derive.sessions.layout import Head
from crystal_node.derive.sessions.tools import session_of
from tests.support.machine import Machine
from tests.support.session_copies import LAPTOP, written_copy, written_long_ago
from tests.tools.conftest import Bare
from tests.tools.programs import PROGRAMS, ClaudeCode, Program

STARTED = (ClaudeCodeSessions, CodexSessions, GeminiSessions, QwenSessions)
ROOTS = {"claude-code": ".claude", "codex": ".codex", "gemini-cli": ".gemini", "qwen-code": ".qwen"}
TOLD = "The heron camera wakes at 05:20."
PLACES = {
    "the same path": lambda home: home / "work" / "herons",
    "another path": lambda home: home / "src" / "birds" / "herons",
    "spaces and Unicode": lambda home: home / "Büro work" / "the 🌊 herons",
    "over 200 signs": lambda home: (home / "deep") / ("x" * (230 - len(f"{home}/deep/"))),
}


@pytest.fixture(scope="module", params=PROGRAMS, ids=lambda kind: kind.name)
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
        cwd="~/work/herons",
        updated_at=1_795_000_000_000,
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
    path = f"{folder_of_a_stand_in(program)}{os.pathsep}{os.environ['PATH']}"
    for file in (program.workplace.home / ROOTS[program.source]).rglob("*.jsonl"):
        written_long_ago(file)
    planned = machine.run("resume", head.session, "--in", str(folder), "--json", PATH=path).json
    machine.run("resume", head.session, "--in", str(folder), PATH=path)
    return planned


def folder_of_a_stand_in(program: Program) -> Path:
    """A folder with a program of the same name that does nothing: a screen is not what is tried here."""
    names = {"claude-code": "claude", "codex": "codex", "gemini-cli": "gemini", "qwen-code": "qwen"}
    folder = program.workplace.home / "stand-in"
    folder.mkdir(exist_ok=True)
    (folder / names[program.source]).write_text("#!/bin/sh\nexit 0\n")
    (folder / names[program.source]).chmod(0o755)
    return folder


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
    file.write_bytes(file.read_bytes() + b'{"type":"mode","mode":"normal"}\n')
    theirs = written_copy(
        desktop.workplace.machine.home,
        head.tool,
        head.session,
        b"".join(file.read_bytes().splitlines(keepends=True)[:-1]) + b'{"type":"mode","mode":"plan"}\n',
        tool_session=head.tool_session,
        native=head.native,
        cwd=head.cwd,
        updated_at=head.updated_at,
    )
    planned = resumed(desktop, theirs, folder)
    assert planned["relation"] == "forked"
    assert planned["session"] != head.tool_session
    assert TOLD in asked_after(desktop, folder, planned["session"], "What is known of the camera?")


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


def test_what_is_handed_over_is_read_at_once_or_named(laptop: Program, desktop: Program) -> None:
    """What is packed is in the first request of the program that it is handed to; the model of Codex is told the file."""
    workplace = desktop.workplace
    head = sent(laptop, workplace.machine)
    folder = workplace.project("herons")
    resumed(desktop, head, folder)
    path = f"{folder_of_a_stand_in(desktop)}{os.pathsep}{os.environ['PATH']}"
    short = desktop.name.removesuffix("-code").removesuffix("-cli")
    workplace.machine.run("handoff", head.session, "--to", short, PATH=path)
    (file,) = (workplace.machine.home / "state" / "handoff").iterdir()
    (tool,) = [kind(folder) for kind in STARTED if kind.name == desktop.source]
    prompt = tool.fresh(file)[-1]
    words = desktop.words(prompt, "")
    options = [] if desktop.name == "codex" else ["--add-dir", str(file.parent)]
    if desktop.name == "gemini-cli":
        options = ["--include-directories", str(file.parent)]
    workplace.model.script.says("Go on with the session", "I have read it.")
    before = len(workplace.model.script.asked)
    workplace.run([*words, *options], folder, **desktop.variables)
    seen = "".join(asked.text for asked in workplace.model.script.asked[before:])
    assert (str(file) if desktop.name == "codex" else TOLD) in seen
