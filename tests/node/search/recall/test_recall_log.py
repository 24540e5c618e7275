"""The recall log: what was given, for which prompt, at what price, and whether the answer used it; nothing forgotten."""

import json
from collections.abc import Generator
from pathlib import Path

import apsw
import pytest
from msgspec import structs

from crystal_core.database import Database
from crystal_node.base.clock import now_ms
from crystal_node.base.settings import Settings, resolve
from crystal_node.search.finding.finder import Finder
from crystal_node.search.recall.database import LOG_KEPT_MILLISECONDS, RecallDatabase
from crystal_node.search.recall.hook import Given, HookEvent, HookInput, Recalled
from crystal_node.search.recall.notes import told, untold
from crystal_node.search.recall.report import RecallReport, log_lines, recall_log, recall_report
from crystal_node.search.recall.selection import recall
from crystal_node.search.recall.words import telling_words, uses
from tests.support.machine import Machine, Vault

FACT = "The uploader's retry budget went from 3 to 9 attempts, since the relay restarts at 02:15."
PROMPT = "Why did we raise the retry budget of the uploader?"
DAY = 86_400_000


@pytest.fixture
def core(vault: Vault) -> Machine:
    vault.core.call("remember", "--category", "preference", FACT)
    vault.core.call("sync")
    return vault.core


@pytest.fixture
def settings(core: Machine) -> Settings:
    return resolve(environment=core.environment | {"CRYSTAL_HOME": str(core.home)})


@pytest.fixture
def memory(settings: Settings) -> Generator[Database]:
    with Database.open(settings.home.database) as database:
        yield database


def prompted(settings: Settings, prompt: str = PROMPT, session: str = "session-1", at: int = 0) -> Recalled:
    """A prompt of a session, answered by words alone and noted."""
    with Finder(settings) as finder:
        hook = HookInput(HookEvent.PROMPT, session, str(settings.person_home), "", prompt)
        recalled = recall(hook, settings, lambda: finder, now_ms(), words_only=True)
    told(recalled, settings, at or now_ms())
    return recalled


def spoken(machine: Machine, *turns: tuple[str, str], session: str = "session-1") -> None:
    """What Claude Code wrote of a session, a second a message from now on, captured."""
    from datetime import UTC, datetime

    transcript = machine.projects / "-work" / f"{session}.jsonl"
    transcript.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "type": role,
            "uuid": f"00000000-0000-4000-8000-{number:012d}",
            "sessionId": session,
            "timestamp": datetime.fromtimestamp(now_ms() / 1000 + number, UTC).isoformat(),
            "cwd": str(machine.root),
            "message": {"role": role, "content": [{"type": "text", "text": text}]},
        }
        for number, (role, text) in enumerate(turns)
    ]
    transcript.write_text("".join(json.dumps(line) + "\n" for line in lines))
    machine.call("capture")


def stored(settings: Settings) -> bytes:
    return b"".join(path.read_bytes() for path in settings.home.state.glob("recall.db*"))


def test_what_was_given_is_logged_with_its_price_and_reason(settings: Settings, memory: Database) -> None:
    recalled = prompted(settings)
    assert FACT in recalled.text and recalled.tokens > 20
    log = recall_log(settings, memory, now_ms())
    (entry,) = log.entries
    assert (entry.session, entry.event, entry.mode) == ("session-1", "UserPromptSubmit", "keyword")
    assert (entry.prompt, entry.tokens, entry.judged) == (PROMPT, recalled.tokens, False)
    (record,) = entry.records
    assert (record.id, record.why, record.used) == (recalled.ids[0], "fits the prompt", None)
    assert 0 < record.relevance <= 1
    assert "retry budget went" not in stored(settings).decode("latin-1"), "ids, no texts"
    assert PROMPT in log_lines(log)[0]


def test_an_answer_with_the_records_words_used_it_and_the_prompt_is_then_read_from_the_memory(
    core: Machine, settings: Settings, memory: Database
) -> None:
    prompted(settings)
    answer = "The retry budget is 9 attempts now: the relay restarts at 02:15, and 3 were too few."
    spoken(core, ("user", PROMPT), ("assistant", answer), ("user", "thanks"))
    (entry,) = recall_log(settings, memory, now_ms()).entries
    assert entry.judged and entry.records[0].used is True
    assert entry.prompt == PROMPT
    assert PROMPT.encode() not in stored(settings), "the log has its id now"


def test_an_answer_without_them_did_not_use_it(core: Machine, settings: Settings, memory: Database) -> None:
    prompted(settings)
    spoken(
        core, ("user", PROMPT), ("assistant", "I would have to look at the uploader first."), ("user", "ok")
    )
    (entry,) = recall_log(settings, memory, now_ms()).entries
    assert entry.judged and entry.records[0].used is False
    report = recall_report(settings, memory, now_ms())
    assert (report.judged, report.used, report.used_share) == (1, 0, 0.0)


def test_what_was_forgotten_leaves_the_log(core: Machine, settings: Settings, memory: Database) -> None:
    recalled = prompted(settings)
    spoken(core, ("user", PROMPT), ("assistant", "Nine."), ("user", "thanks"))
    (entry,) = recall_log(settings, memory, now_ms()).entries
    assert entry.prompt == PROMPT
    found = core.call("search", "--json", "--by", "message", PROMPT).json["results"]
    (asked,) = (hit["id"] for hit in found if hit["text"] == PROMPT)
    core.call("forget", asked, recalled.ids[0], typed="y\n")
    log = recall_log(settings, memory, now_ms())
    assert [(entry.prompt, entry.records) for entry in log.entries] == [("", [])]
    assert recalled.ids[0].encode() not in stored(settings)
    assert PROMPT.encode() not in stored(settings)


def test_silence_is_counted_and_no_word_of_its_prompt_is_kept(settings: Settings, memory: Database) -> None:
    prompted(settings, "Plan a birthday party with balloons")
    prompted(settings)
    prompted(settings)  # given already: silence
    prompted(settings, "yes")
    report = recall_report(settings, memory, now_ms())
    assert (report.prompts, report.silent, report.injections, report.records) == (3, 2, 1, 1)
    assert report.silent_share == pytest.approx(2 / 3, abs=1e-4)
    assert b"birthday" not in stored(settings)


def test_what_a_hook_went_without_is_not_in_the_log(settings: Settings, memory: Database) -> None:
    hook = HookInput(HookEvent.PROMPT, "session-1", str(settings.person_home), "", PROMPT)
    with Finder(settings) as finder:
        recalled = recall(hook, settings, lambda: finder, now_ms(), words_only=True)
    untold(recalled, settings, told(recalled, settings, now_ms()))
    assert recall_log(settings, memory, now_ms()).entries == []
    report = recall_report(settings, memory, now_ms())
    assert (report.prompts, report.silent, report.injections) == (0, 0, 0)


def test_what_could_not_be_logged_takes_no_other_entry_back(settings: Settings, memory: Database) -> None:
    recalled = prompted(settings)
    untold(structs.replace(recalled, given=()), settings, None)
    report = recall_report(settings, memory, now_ms())
    assert (report.prompts, report.silent, report.injections) == (1, 0, 1)
    assert len(recall_log(settings, memory, now_ms()).entries) == 1


def test_credentials_in_a_prompt_are_blanked_out(settings: Settings, memory: Database) -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    prompted(
        settings, f"{secret} Why did the retry budget of the uploader go to 9 attempts, the relay restarts"
    )
    (entry,) = recall_log(settings, memory, now_ms()).entries
    assert entry.prompt.startswith("[redacted:")
    assert secret.encode() not in stored(settings)


def test_in_private_mode_no_word_of_a_prompt_is_kept(
    core: Machine, settings: Settings, memory: Database
) -> None:
    core.call("private", "on")
    assert prompted(settings).given
    (entry,) = recall_log(settings, memory, now_ms()).entries
    assert entry.prompt == "" and PROMPT.encode() not in stored(settings)


def test_the_log_is_bounded_by_age_and_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crystal_node.search.recall.database.LOG_ENTRIES_MAX", 5)
    log = RecallDatabase.open(tmp_path / "recall.db")

    def given(number: int) -> Recalled:
        return Recalled(
            "x", event="UserPromptSubmit", session="s", mode="hybrid", given=(Given(f"{number:064x}", "why"),)
        )

    for number in range(9):
        log.add(given(number), f"prompt {number}", 1_000_000_000_000 + number)
    assert [entry.prompt for entry in log.entries()] == [f"prompt {number}" for number in range(8, 3, -1)]
    later = 1_000_000_000_000 + LOG_KEPT_MILLISECONDS + DAY
    log.add(given(9), "prompt 9", later)
    assert [entry.prompt for entry in log.entries()] == ["prompt 9"]
    assert log.days(0).prompts == 1
    log.close()


def test_a_log_of_the_version_before_keeps_its_marks(tmp_path: Path) -> None:
    path = tmp_path / "recall.db"
    old = apsw.Connection(str(path))
    old.execute(
        "CREATE TABLE given (session BLOB NOT NULL, mark INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (session, mark))"
        " WITHOUT ROWID, STRICT; CREATE INDEX given_by_time ON given (at);"
        f"PRAGMA application_id = {0x43525952}; PRAGMA user_version = 1"
    )
    old.close()
    log = RecallDatabase.open(path)
    log.note("s", ["ab" * 32], 1)
    assert log.entries() == [] and log.given("s", ["ab" * 32]) == {"ab" * 32}
    log.close()


def test_a_damaged_log_is_begun_anew_and_status_goes_on(
    core: Machine, settings: Settings, memory: Database
) -> None:
    prompted(settings)
    assert "recall   1 record told" in core.call("status").out
    for path in settings.home.state.glob("recall.db*"):
        path.write_bytes(b"no database " * 1000)
    assert recall_report(settings, memory, now_ms()).injections == 0
    assert core.call("status", "--json").json["recall"]["injections"] == 0
    assert core.call("recall", "log", "--json").json == {"entries": [], "more": False}


def test_people_and_programs_read_the_log(core: Machine, settings: Settings) -> None:
    assert core.call("recall", "log").out == ""
    prompted(settings)
    prompted(settings, session="session-2", at=now_ms() - 3 * DAY)
    assert len(core.call("recall", "log", "--json").json["entries"]) == 2
    assert len(core.call("recall", "log", "--since", "1d", "--json").json["entries"]) == 1
    only = core.call("recall", "log", "--session", "session-2", "--json").json["entries"]
    assert [entry["session"] for entry in only] == ["session-2"]
    shown = core.call("recall", "log").out
    assert PROMPT in shown and "fits the prompt" in shown
    assert core.call("recall", "--since", "1d", "anything", check=False).code == 2


@pytest.mark.parametrize(
    ("answer", "used"),
    [
        ("It is nine attempts: the relay restarts at 02:15.", True),
        ("Relay restarts made nine attempts necessary.", True),
        ("The retry budget of the uploader?", False),
        ("I do not know.", False),
        ("", False),
    ],
)
def test_words_of_the_record_that_the_prompt_lacks_tell(answer: str, used: bool) -> None:
    assert uses(answer, "nine attempts, since the relay restarts at 02:15", PROMPT) is used


def test_a_record_that_adds_nothing_to_its_prompt_is_not_judged() -> None:
    assert uses("anything", PROMPT, PROMPT) is None
    assert telling_words("yes, go on please") == frozenset()


def test_a_report_of_nothing_is_no_line() -> None:
    none = dict.fromkeys(RecallReport.__struct_fields__, 0)
    nothing = RecallReport(**none | {"since": "", "silent_share": None, "used_share": None})  # type: ignore[arg-type]
    assert nothing.line == ""
