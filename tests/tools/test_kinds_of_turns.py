"""Turns that are more than a prompt and an answer: each message is recorded once, under the right role, session and project.

What a program does only on its screen is skipped by name.
"""

import base64
from typing import NoReturn

import pytest

from tests.support.scripted_model import Reply
from tests.support.watchers import until
from tests.tools.programs import Program
from tests.tools.workplace import RECORDED_SECONDS_MAX, said

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A PNG of one dot."""
LONG = "The marsh is wide, and the reeds stand high. " * 800
"""An answer that is worth compacting."""


def _only_with_a_screen(program: Program, what: str) -> NoReturn:
    pytest.skip(f"{program.name} {what} only on its screen, or not at all")


def test_a_fork_is_a_session_of_its_own(program: Program) -> None:
    program.has_to_be_recorded()
    workplace, words = program.workplace, program.workplace.model.script.says
    folder = workplace.project("forks")
    program.ask(folder, words("Which way does the fork go?", "It goes left."))
    session = workplace.recorded("forks", lambda rows: len(rows) >= 2)[0].session
    command = program.forked(words("And in the fork itself?", "Right, for once."), session)
    if command is None:
        _only_with_a_screen(program, "forks")
    workplace.run(command, folder, **program.variables)
    rows = workplace.recorded("forks", lambda rows: len(rows) >= 4)
    before = [("user", "Which way does the fork go?"), ("assistant", "It goes left.")]
    own = [("user", "And in the fork itself?"), ("assistant", "Right, for once.")]
    assert said([row for row in rows if row.session == session]) == before
    forked = [row for row in rows if row.session != session]
    assert len({row.session for row in forked}) == 1
    assert said(forked) in (own, [*before, *own]), "a fork may hold what it began with, each message once"


def test_a_sub_agents_words_bear_its_roles(program: Program) -> None:
    program.has_to_be_recorded()
    workplace, script = program.workplace, program.workplace.model.script
    task = script.says("Count the pelicans in the bay.", program.helper_says("Seventeen pelicans."))
    calls = program.asks_a_helper(task)
    if not calls:
        _only_with_a_screen(program, "is known to give tasks to sub-agents")
    # Told that the sub-agent is done, a program may ask its model once more.
    prompt = script.says("Have a helper count.", *calls, "I have asked a helper.", "The helper is done.")
    program.ask(workplace.project("pelicans"), prompt)
    until(lambda: bool(script.holding(task)), "a sub-agent's request", RECORDED_SECONDS_MAX)
    rows = workplace.recorded(
        "pelicans", lambda rows: len([row for row in rows if row.role != "action"]) >= 4
    )
    spoken = [row for row in rows if row.role not in ("action", "thinking")]
    both = said(spoken)
    assert both.count(("user", prompt)) == 1
    assert both.count(("subagent-user", task)) == 1
    assert [text for role, text in both if role == "user"] == [prompt]
    answers = [text for role, text in both if role == "assistant"]
    assert answers in (["I have asked a helper."], ["I have asked a helper.", "The helper is done."])
    assert [text for role, text in both if role == "subagent-assistant"] == ["Seventeen pelicans."]
    assert {row.project for row in spoken} == {"work/pelicans"}
    assert all(row.session for row in spoken)


def test_a_summary_of_a_compaction_is_nobodys_words(program: Program) -> None:
    program.has_to_be_recorded()
    workplace, script = program.workplace, program.workplace.model.script
    folder = workplace.project("marshes")
    if program.compacted("", "") is None:
        _only_with_a_screen(program, "compacts")
    for number in range(3):
        program.ask(
            folder,
            script.says(f"How wide is marsh {number}?", f"{LONG}Marsh {number}."),
            _session(program) if number else "",
        )
    before = workplace.recorded("marshes", lambda rows: any("Marsh 2." in row.text for row in rows))
    commands = program.compacted(script.says("And now, how wide?", "As wide as before."), before[0].session)
    if commands is None:
        _only_with_a_screen(program, "compacts")
    script.aside = Reply("<state_snapshot>A summary that nobody said.</state_snapshot>")
    for command in commands:
        workplace.run(command, folder, **program.variables)
    rows = workplace.recorded("marshes", lambda rows: len(rows) >= len(before) + 2)
    assert said(rows) == [*said(before), ("user", "And now, how wide?"), ("assistant", "As wide as before.")]
    assert len({row.session for row in rows}) == 1


def _session(program: Program) -> str:
    return program.workplace.recorded("marshes", lambda rows: len(rows) >= 2)[0].session


def test_a_prompt_with_a_picture_is_recorded_without_it(program: Program) -> None:
    program.has_to_be_recorded()
    workplace, script = program.workplace, program.workplace.model.script
    folder = workplace.project("pictures")
    (folder / "dot.png").write_bytes(PICTURE)
    prompt = script.says("Which colour is the dot?", "The dot is red.")
    command = program.pictured(prompt, folder / "dot.png")
    if command is None:
        _only_with_a_screen(program, "takes pictures")
    workplace.run(command, folder, **program.variables)
    assert any("image/png" in str(asked.body) for asked in script.holding(prompt)), "the model sees it"
    asked, answered = workplace.recorded("pictures", lambda rows: len(rows) >= 2)
    assert (asked.role, asked.text.removeprefix("@dot.png ")) == ("user", prompt)
    assert (answered.role, answered.text) == ("assistant", "The dot is red.")


def test_prompts_that_wait_for_their_turn_are_recorded_once(program: Program) -> None:
    program.has_to_be_recorded()
    workplace, script = program.workplace, program.workplace.model.script
    prompts = [script.says(f"Queue question {number}?", f"Queue answer {number}.") for number in range(3)]
    queued = program.queued(prompts)
    if queued is None:
        _only_with_a_screen(program, "queues prompts")
    command, typed = queued
    workplace.run(command, workplace.project("queues"), typed=typed, **program.variables)
    rows = workplace.recorded("queues", lambda rows: any("Queue answer 2." in row.text for row in rows))
    assert [text for role, text in said(rows) if role == "user"] in (
        prompts,
        [prompts[0], "\n".join(prompts[1:])],
    )
    assert len({row.session for row in rows}) == 1
    answers = [text for role, text in said(rows) if role == "assistant"]
    assert sorted(set(answers)) == answers, "none twice"
