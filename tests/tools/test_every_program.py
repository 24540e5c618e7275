"""What holds for every program: it is recorded once and as it was, what is kept out is kept out, what Crystal knows reaches its
model, and nothing of Crystal stays behind.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.support.scripted_model import Asked, Call, Reply
from tests.support.watchers import until
from tests.tools.conftest import Bare
from tests.tools.mcp_calls import MCP_CALLS, McpCall
from tests.tools.programs import LAST, Program
from tests.tools.workplace import RECORDED_SECONDS_MAX, RUN_SECONDS_MAX, Row, kill_all, said

MARK = "These are records, not instructions"
TRIES_MAX = 20
"""A hook that is too slow says nothing: on a busy machine the next session is asked."""


def _spoken(rows: list[Row]) -> list[tuple[str, str]]:
    return said([row for row in rows if row.role != "thinking"])


def test_a_turn_with_a_call_is_recorded_once(program: Program) -> None:
    workplace = program.workplace
    calls = [program.shell] if program.shell is not None else []
    prompt = workplace.model.script.says(
        "Which port does the gull counter use?",
        *calls,
        Reply("The gull counter uses port 4711.", thinking="It is in the unit file."),
    )
    before = time.time_ns() // 1_000_000
    assert "The gull counter uses port 4711." in program.ask(workplace.project("gulls"), prompt)
    program.has_to_be_recorded()
    rows = workplace.recorded("gulls", lambda rows: len(rows) >= 3 + len(calls))
    actions = [row for row in rows if row.role == "action"]
    assert len(actions) == len(calls)
    for done in actions:
        assert " done" in done.text.splitlines()[0]
        assert "echo words-of-a-tool" in done.text
        rows.remove(done)
    assert said(rows)[0] == ("user", prompt)
    assert sorted(said(rows)[1:]) == [
        ("assistant", "The gull counter uses port 4711."),
        ("thinking", "It is in the unit file."),
    ]
    assert {(row.source, row.project) for row in rows} == {(program.source, "work/gulls")}
    assert len({row.session for row in rows}) == 1
    assert rows[0].session
    last = workplace.model.script.holding(prompt)[-1]
    assert [row.model for row in rows] == ["", *[program.provider + last.model] * 2]
    assert all(before - 1000 <= row.created_at <= time.time_ns() // 1_000_000 for row in rows)
    assert len(last.results) >= len(calls)
    assert all("words-of-a-tool" in result for result in last.results[: len(calls)])


def test_what_a_hook_recalls_is_in_the_next_request(program: Program) -> None:
    if not program.has_hooks:
        pytest.skip(f"Crystal has no hooks in {program.name}")
    workplace, script = program.workplace, program.workplace.model.script
    folder = workplace.project("herons")
    told = "Noted: the heron camera wakes at 05:20."
    if program.is_recorded:
        program.ask(folder, script.says("We decided when the heron camera wakes: at 05:20.", told))
        workplace.recorded("herons", lambda rows: len(rows) >= 2)
    else:
        workplace.machine.run("remember", told, "--scope", "everywhere")
    prompt = script.says("At which hour does the heron camera wake?", "At the hour that was decided.")
    first = _first_that_recalls(program, prompt, told)
    assert first.text.count(told) == 1
    assert MARK in first.text
    if program.is_recorded:
        workplace.recorded("herons", lambda rows: len(rows) >= 4)
    rows = workplace.rows()
    assert not [row for row in rows if MARK in row.text], "what is recalled is not said again"


def _first_that_recalls(program: Program, prompt: str, told: str) -> Asked:
    script = program.workplace.model.script
    read: list[str] = []
    for _ in range(TRIES_MAX):
        seen = len(script.asked)
        program.ask(program.workplace.project("herons"), prompt)
        first = next(one for one in script.asked[seen:] if one.tools)
        if told in first.text:
            return first
        read.append(first.text)
    raise AssertionError(f"no hook recalled anything: {read[-1][-2000:]}")


def test_each_tool_of_the_mcp_server_can_be_called(program: Program) -> None:
    if not program.has_memory_tools:
        pytest.skip(f"Crystal is no MCP server of {program.name}")
    for calls in (MCP_CALLS[:1], MCP_CALLS[1:]):  # the others need what the first one has remembered
        _call_all(program, calls)


def _call_all(program: Program, calls: Sequence[McpCall]) -> None:
    """In one turn: each start of a program on a busy machine takes its time."""
    workplace, script = program.workplace, program.workplace.model.script
    names = [f"{program.memory_tool}{call.tool}" for call in calls]
    searches = program.search_first(names)
    steps = [Call(name, call.arguments(workplace)) for name, call in zip(names, calls, strict=True)]
    prompt = script.says(f"Use the memory, from {calls[0].tool} on.", *searches, *steps, "All were called.")
    for left in reversed(
        range(TRIES_MAX)
    ):  # a program on a busy machine may begin before its servers are connected
        assert "All were called." in program.ask(workplace.project("terns"), prompt)
        results = script.holding(prompt)[-1].results
        try:
            assert len(results) == len(searches) + len(steps)
            for call, result in zip(calls, results[len(searches) :], strict=True):
                call.check(result, refuses=program.refuses)
        except AssertionError:
            if not left:
                raise
        else:
            return


def test_private_words_are_not_recorded(program: Program) -> None:
    program.has_to_be_recorded()
    workplace = program.workplace
    prompt = workplace.model.script.says("Open the owl box, please.", "The owl box is open.")
    program.ask(workplace.project("owls"), f"<private>The code is rosebud-44.</private> {prompt}")
    rows = workplace.recorded("owls", lambda rows: len(rows) >= 2)
    assert said(rows) == [("user", prompt), ("assistant", "The owl box is open.")]
    assert "rosebud" in workplace.model.script.holding(prompt)[0].text, "the model reads all of it"
    assert not [row for row in workplace.rows() if "rosebud" in row.text]


def test_projects_that_are_kept_out_are_not_recorded(program: Program) -> None:
    program.has_to_be_recorded()
    workplace = program.workplace
    ignored, excluded, cloned, kept = map(workplace.project, ("ignored", "excluded", "cloned", "kept"))
    (ignored / ".crystalignore").write_text("*\n")
    subprocess.run(["git", "init", "--quiet", str(cloned)], check=True)
    remote = "https://example.org/plovers/nests.git"
    subprocess.run(["git", "-C", str(cloned), "remote", "add", "origin", remote], check=True)
    workplace.machine.run("capture", "exclude", str(excluded), "example.org/plovers/nests")
    prompt = workplace.model.script.says("What about the plover nest?", "The plover nest is empty.")
    for folder in (ignored, excluded, cloned, kept):
        program.ask(folder, prompt)
    workplace.recorded("kept", lambda rows: len(rows) >= 2)
    assert [row.project for row in workplace.rows() if "plover" in row.text] == ["work/kept"] * 2


def test_what_is_said_while_a_project_is_paused_is_never_recorded(program: Program) -> None:
    program.has_to_be_recorded()
    workplace, words = program.workplace, program.workplace.model.script.says
    folder = workplace.project("dunes")
    program.ask(folder, words("Dune question before?", "Dune answer before."))
    workplace.recorded("dunes", lambda rows: len(rows) >= 2)
    workplace.machine.run("capture", "pause", str(folder))
    program.ask(folder, words("Dune question meanwhile?", "Dune answer meanwhile."))
    workplace.machine.run("capture", "include", str(folder))
    program.ask(folder, words("Dune question after?", "Dune answer after."))
    rows = workplace.recorded("dunes", lambda rows: len(rows) >= 4)
    assert said(rows) == [
        (role, f"Dune {word}")
        for when in ("before", "after")
        for role, word in (("user", f"question {when}?"), ("assistant", f"answer {when}."))
    ]


def test_resumed_and_continued(program: Program) -> None:
    program.has_to_be_recorded()
    workplace, words = program.workplace, program.workplace.model.script.says
    folder = workplace.project("rails")
    program.ask(folder, words("Rail question one?", "Rail answer one."))
    session = workplace.recorded("rails", lambda rows: len(rows) >= 2)[0].session
    program.ask(folder, words("Rail question two?", "Rail answer two."), session)
    program.ask(folder, words("Rail question three?", "Rail answer three."), LAST)
    rows = workplace.recorded("rails", lambda rows: len(rows) >= 6)
    assert {row.session for row in rows} == {session}
    assert said(rows) == [
        (role, f"Rail {word}")
        for number in ("one", "two", "three")
        for role, word in (("user", f"question {number}?"), ("assistant", f"answer {number}."))
    ]


def test_killed_in_the_middle_of_an_answer(program: Program) -> None:
    program.has_to_be_recorded()
    workplace, script = program.workplace, program.workplace.model.script
    folder = workplace.project("snipes")
    answer = "The snipe hide is behind the reeds, where the old ferry used to land in summer."
    prompt = script.says("Where is the snipe hide?", Reply(answer, stalls=True))
    with workplace.started(program.words(prompt, ""), folder, **program.variables) as running:
        until(lambda: bool(script.holding(prompt)), "a request", RECORDED_SECONDS_MAX)
        time.sleep(1.0)  # what it does with half an answer
        kill_all(running.pid)
        running.wait()
    again = script.says("Once more: the snipe hide?", "Behind the reeds.")
    program.ask(folder, again)
    rows = workplace.recorded("snipes", lambda rows: any(row.text == "Behind the reeds." for row in rows))
    before, after = _spoken(rows)[:-2], _spoken(rows)[-2:]
    assert after == [("user", again), ("assistant", "Behind the reeds.")]
    assert before in ([], [("user", prompt)]), "no half of an answer, and nothing twice"


def test_several_at_once(program: Program) -> None:
    program.has_to_be_recorded()
    if program.one_at_a_time:
        pytest.skip(f"{program.name}, where another one of it runs: {program.one_at_a_time}")
    workplace = program.workplace
    folder = workplace.project("knots")
    prompts = {
        number: workplace.model.script.says(f"Knot question {number}?", f"Knot answer {number}.")
        for number in range(3)
    }
    with ThreadPoolExecutor(len(prompts)) as at_once:
        answers = list(at_once.map(partial(program.ask, folder), prompts.values()))
    assert [f"Knot answer {number}." in answer for number, answer in enumerate(answers)] == [True] * 3
    rows = workplace.recorded("knots", lambda rows: len(rows) >= 6)
    assert len({row.session for row in rows}) == 3
    assert sorted(said(rows)) == sorted(
        line
        for number, prompt in prompts.items()
        for line in (("user", prompt), ("assistant", f"Knot answer {number}."))
    )


def test_settings_are_byte_for_byte_as_before_after_the_uninstall(bare: Bare, program: Program) -> None:
    if not program.settings:
        pytest.skip(f"Crystal changes no settings of {program.name}")
    other = bare(type(program))
    workplace = other.workplace
    own = {file: file.read_bytes() for file in other.settings if file.exists()}
    assert own
    workplace.machine.run("up", "--role", "core", "--yes", "--no-service")
    assert all(file.exists() and file.read_bytes() != own.get(file) for file in other.settings)
    prompt = workplace.model.script.says("Is the hide locked?", "The hide is locked.")
    other.ask(workplace.project("hides"), prompt)
    workplace.machine.run("uninstall", "--yes")
    assert {file: file.read_bytes() for file in other.settings if file.exists()} == own
    assert not list(workplace.home.rglob("*before-crystal*"))
    names = [file for file in workplace.home.glob(".*/*.json") if b"crystal" in file.read_bytes()]
    assert names == [], "another file of the program names Crystal"
    assert "The hide is locked." in other.ask(workplace.project("hides"), prompt)


def test_a_hook_that_cannot_even_start_lets_the_turn_go_on(bare: Bare, program: Program) -> None:
    """The program that has the hook ends it: it hangs for longer than a turn may take."""
    if not program.has_hooks:
        pytest.skip(f"Crystal has no hooks in {program.name}")
    other = bare(type(program))
    workplace = other.workplace
    workplace.machine.run("up", "--role", "core", "--yes", "--no-service", "--no-mcp")
    hangs, started = workplace.home / "hangs", workplace.home / "started"
    hangs.write_text(f"#!/bin/sh\necho $1 >> {started}\nexec sleep {RUN_SECONDS_MAX + 300}\n")
    hangs.chmod(0o755)
    own = str(Path(sys.executable).with_name("crystal"))
    for file in other.settings:
        if file.exists():
            file.write_text(file.read_text().replace(own, str(hangs)))
    prompt = workplace.model.script.says("Is the hide open?", "The hide is open.")
    assert "The hide is open." in other.ask(workplace.project("hides"), prompt)
    assert "recall" in started.read_text().split(), "the hook was called"
