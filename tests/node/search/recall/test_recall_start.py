"""What a session begins with: what its project left off with by time, what was left open, its memories."""

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from crystal_core.search.latest import latest_turns
from crystal_node.base.settings import Settings, resolve
from crystal_node.search.finding.finder import Finder
from crystal_node.search.recall.hook import HookEvent, HookInput, Recalled
from crystal_node.search.recall.notes import told
from crystal_node.search.recall.selection import recall
from crystal_node.search.recall.start import said_to_remain
from crystal_node.search.recall.text import START_TOKENS_MAX
from crystal_node.search.tokens import estimated_tokens
from tests.support.machine import Machine, Vault

DAY = 86_400_000
NOW = 1_780_000_000_000
Spoken = Callable[..., None]


@pytest.fixture
def core(vault: Vault) -> Machine:
    for name in ("work/uploader", "work/uploader/inner", "clients/uploader", "work/idle"):
        (vault.core.root / name).mkdir(parents=True, exist_ok=True)
    return vault.core


@pytest.fixture
def settings(core: Machine) -> Settings:
    return resolve(environment=core.environment | {"CRYSTAL_HOME": str(core.home)})


def spoken(core: Machine, folder: str, days_ago: int, *turns: tuple[str, str]) -> None:
    """A session of so many days ago, captured."""
    session = f"{folder.replace('/', '-')}-{days_ago}"
    transcript = core.projects / "-work" / f"{session}.jsonl"
    transcript.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "type": role,
            "uuid": f"{session}-{number}",
            "sessionId": session,
            "timestamp": datetime.fromtimestamp((NOW - days_ago * DAY) / 1000 + number, UTC).isoformat(),
            "cwd": str(core.root / folder),
            "message": {"role": role, "content": [{"type": "text", "text": text}]},
        }
        for number, (role, text) in enumerate(turns)
    ]
    transcript.write_text("".join(json.dumps(line) + "\n" for line in lines))
    core.call("capture")


def write_context(settings: Settings, text: str) -> None:
    context = settings.home.agents / settings.agent_id / "CONTEXT.md"
    context.parent.mkdir(parents=True)
    context.write_text(text)


def begun(settings: Settings, folder: str | Path, session: str = "new", source: str = "startup") -> Recalled:
    hook = HookInput(HookEvent.START, session, str(settings.person_home / folder), source)
    with Finder(settings) as finder:
        return recall(hook, settings, lambda: finder, NOW, words_only=True)


def test_a_start_shows_the_last_answers_by_time_and_what_is_open(core: Machine, settings: Settings) -> None:
    spoken(
        core,
        "work/uploader",
        9,
        ("user", "Why does the upload stop?"),
        ("assistant", "The proxy closes idle connections after a minute."),
        ("user", "And on Windows?"),
    )
    spoken(
        core,
        "work/uploader",
        2,
        ("user", "Raise the retry budget."),
        ("assistant", "Let me look at the settings."),
        ("assistant", "The retry budget is 9 now. Still to do: the same for downloads."),
    )
    spoken(
        core, "clients/uploader", 1, ("user", "Whose is it?"), ("assistant", "Acme's, which is confidential.")
    )
    spoken(core, "work/uploader/inner", 1, ("user", "What is here?"), ("assistant", "Inner matters."))
    recalled = begun(settings, "work/uploader")
    text = recalled.text
    assert "records, not instructions" in text.split("\n")[0]
    worked, rest = text.split("Left open then, perhaps done since:")
    assert worked.index("The retry budget is 9 now.") < worked.index("The proxy closes idle connections")
    assert "] Q: Raise the retry budget. -> A: The retry budget is 9 now." in worked
    assert "Let me look" not in text
    assert "Still to do: the same for downloads." in rest and "And on Windows?" in rest
    assert "[2026-05-2" in worked
    assert "confidential" not in text and "Inner" not in text
    assert recalled.tokens == estimated_tokens(text) <= START_TOKENS_MAX
    told(recalled, settings, NOW)
    assert not begun(settings, "work/uploader").text, "not twice"
    assert "retry budget is 9" in begun(settings, "work/uploader", source="clear").text


def test_a_project_without_records_and_no_project_are_begun_in_silence(
    core: Machine, settings: Settings
) -> None:
    spoken(core, "work/uploader", 2, ("user", "Raise it."), ("assistant", "The retry budget is 9 now."))
    for folder in ("work/idle", "work/nowhere", "", "/", "work/uploader\0", "x" * 5_000):
        assert begun(settings, folder).text == "", folder


def test_preferences_are_told_everywhere(core: Machine, settings: Settings) -> None:
    core.call("remember", "--category", "preference", "Answers are wanted short and in British spelling.")
    for folder in ("work/idle", ""):
        assert "British spelling" in begun(settings, folder).text


def test_a_start_keeps_to_its_budget(core: Machine, settings: Settings) -> None:
    for days in range(1, 5):
        spoken(
            core,
            "work/uploader",
            days,
            ("user", "Tell me all of it, " + "wörtlich " * 300),
            ("assistant", f"Answer {days}. " + "It remains to be done, 語 and more. " * 300),
        )
    for number in range(12):
        core.call("remember", "--category", "preference", f"Preference {number}: " + f"word{number} " * 80)
    write_context(settings, "# Context\n" + "- woven line of the agent\n" * 400)
    text = begun(settings, "work/uploader").text
    assert estimated_tokens(text) <= START_TOKENS_MAX
    for part in ("Last worked on here:", "Left open then", "Remembered:", "as woven from its records"):
        assert part in text, part


def test_the_agents_context_is_given_only_where_all_that_it_did_was_done(
    core: Machine, settings: Settings
) -> None:
    write_context(settings, "# Context\n- Acme pays forty.\n")
    assert begun(settings, "work/idle").text == "", "nothing says what it is of"
    spoken(core, "clients/uploader", 3, ("user", "What does Acme pay?"), ("assistant", "Acme pays forty."))
    assert "> - Acme pays forty." in begun(settings, "clients/uploader").text
    for folder in ("work/uploader", "work/idle", ""):
        assert begun(settings, folder).text == "", folder
    core.call("sync")
    assert begun(settings, "work/uploader").text == ""
    with contextlib.chdir(core.root):
        core.call("projects", "link", "clients/uploader", "work/uploader")
    assert "Acme pays" in begun(settings, "work/uploader").text
    spoken(core, "work/idle", 2, ("user", "Is it idle?"), ("assistant", "It is."))
    assert "> - Acme" not in begun(settings, "clients/uploader").text


def test_a_session_is_not_told_its_own_messages(core: Machine, settings: Settings) -> None:
    spoken(core, "work/uploader", 2, ("user", "Raise it."), ("assistant", "The retry budget is 9 now."))
    assert not begun(settings, "work/uploader", session="work-uploader-2", source="resume").text


def test_a_forgotten_answer_is_not_the_last_one(core: Machine, settings: Settings) -> None:
    spoken(core, "work/uploader", 2, ("user", "Raise it."), ("assistant", "The retry budget is 9 now."))
    with Finder(settings) as finder:
        turns = finder.read(lambda database: latest_turns(database, [("work/uploader", "")]))
        assert turns[0][0].answer is not None
        core.call("forget", turns[0][0].answer.id)
    assert "retry budget" not in begun(settings, "work/uploader").text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Done. Next step: migrate the table.", "Next step: migrate the table."),
        ("All tests pass and it is released.", ""),
        ("It works.\n```\n# Remaining: the second line\n```\nFine.", ""),
        ("> still open: a quote\nThat was theirs.", ""),
        ("Fertig. Noch offen ist die Migration der Daten.", "Noch offen ist die Migration der Daten."),
        ("- The parser is done\n- Remaining: the printer", "Remaining: the printer"),
        ("", ""),
    ],
)
def test_what_an_answer_says_is_not_done(text: str, left: str) -> None:
    assert said_to_remain(text) == left


def test_a_compaction_shows_its_person_no_line(core: Machine, settings: Settings) -> None:
    spoken(
        core,
        "work/uploader",
        2,
        ("user", "Raise the retry budget."),
        ("assistant", "The retry budget is 9 now. Still to do: the same for downloads."),
    )
    assert begun(settings, "work/uploader").line == "Crystal loaded 1 record."
    compacted = begun(settings, "work/uploader", source="compact")
    assert "retry budget is 9" in compacted.text
    assert compacted.line == ""
