"""`crystal search` and queries that nobody means well, or by mistake: each is answered or refused, and harms nothing."""

import shutil
from pathlib import Path

import pytest

from crystal_core.embed import builtin
from crystal_core.embed.manifest import WEIGHTS_FILE
from crystal_node.models.embedding import selection
from tests.core.embed.conftest import MODEL
from tests.support.bad_queries import BLANK, CHARS_MAX, ENORMOUS, ODD, PASTED
from tests.support.machine import Machine, core_that_heard, turn
from tests.support.relay_process import RelayProcess

SAID = (
    "The harbour crane exceeded its lifting limit; we raised the offset of its gauge. \x1b[31m\u202e\x9b2J",
    "What is it that we decided about the readings? To keep them for ninety days.",
    "The rocket 🚀 is the sign of a release.",
)
_COMMANDS = (
    set(map(chr, range(32))) - {"\n"}
    | set(map(chr, range(127, 160)))
    | set("\u200e\u200f\u202a\u202e\u2066\u2069")
)
"""What no terminal may be sent."""


@pytest.fixture(scope="module")
def memory(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = core_that_heard(relay, tmp_path_factory.mktemp("memory"), *SAID)
    _say(
        machine,
        "src/old-harbour",
        "The quay was measured before the move.",
        repository="example.org/port/harbour",
    )
    _say(
        machine,
        "src/new-harbour",
        "The quay was measured after the move.",
        repository="example.org/port/harbour",
    )
    machine.call("sync")
    return machine


def _say(machine: Machine, folder: str, text: str, *, repository: str) -> None:
    """In a project's folder, which is a clone of that repository for as long as it is there."""
    place = machine.root / folder
    (place / ".git").mkdir(parents=True)
    (place / ".git" / "config").write_text(f'[remote "origin"]\n\turl = https://{repository}.git\n')
    path = machine.root / f"{place.name}.jsonl"
    path.write_text(turn(text, session=place.name, cwd=str(place)))
    machine.call("capture", str(path))


@pytest.mark.parametrize("query", BLANK)
def test_a_blank_query_is_refused_with_an_example(memory: Machine, query: str) -> None:
    outcome = memory.call("search", "--json", "--", query, check=False)
    assert (outcome.code, outcome.out) == (2, "")
    assert "empty" in outcome.error["error"]
    assert "crystal search" in outcome.error["hint"]


def test_an_enormous_query_is_refused_with_both_numbers(memory: Machine) -> None:
    outcome = memory.call("search", "--json", "--", ENORMOUS, check=False)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{len(ENORMOUS):,}" in outcome.error["error"]
    assert f"{CHARS_MAX:,}" in outcome.error["error"]
    assert memory.found("crane " * 2500)


@pytest.mark.parametrize("name", ODD)
def test_whatever_is_asked_is_answered_and_the_terminal_is_sent_no_command(
    memory: Machine, name: str
) -> None:
    outcome = memory.call("search", "--", ODD[name], check=False)
    assert outcome.code == 0, outcome.err
    assert not set(outcome.out + outcome.err) & _COMMANDS
    answer = memory.call("search", "--json", "--", ODD[name])
    assert not set(answer.out) & _COMMANDS
    assert answer.json["query"].encode("utf-8", "replace") == ODD[name].encode("utf-8", "replace")


def test_words_that_say_little_find_what_has_them(memory: Machine) -> None:
    assert SAID[1] in memory.found("what is it?")


def test_what_was_said_before_is_there_after_all_of_them(memory: Machine) -> None:
    assert memory.call("verify", "--json").json["digest"]
    assert any("lifting limit" in text for text in memory.found("harbour crane"))


@pytest.mark.parametrize("name", PASTED)
def test_something_pasted_finds_what_speaks_of_the_same(memory: Machine, name: str) -> None:
    assert any("lifting limit" in text for text in memory.found(PASTED[name]))


def test_the_path_of_a_file_is_searched_as_words_and_the_file_is_not_read(memory: Machine) -> None:
    path = memory.root / "readings.txt"
    path.write_text("harbour crane\n")
    found = memory.found(str(path))
    assert SAID[1] in found
    assert not any("lifting limit" in text for text in found)


@pytest.mark.parametrize(
    ("option", "time"), [("--since", "2026-02-30"), ("--until", "31.06.2026"), ("--since", "2026-13-45")]
)
def test_a_day_that_does_not_exist_is_refused_as_a_filter(memory: Machine, option: str, time: str) -> None:
    outcome = memory.call("search", "crane", option, time, check=False)
    assert (outcome.code, outcome.out) == (2, "")
    assert time in outcome.err
    assert "2026-01-31" in outcome.err


@pytest.mark.parametrize(
    ("project", "moves"),
    [
        ("src/old-harbour", ["before"]),
        ("old-harbour", ["before"]),
        ("new-harbour", ["after"]),
        ("example.org/port/harbour", ["before"]),
        ("port/harbour", ["before"]),
    ],
)
def test_a_project_that_was_renamed_is_found_by_each_of_its_names(
    memory: Machine, project: str, moves: list[str]
) -> None:
    found = memory.found("quay measured move", "--project", project)
    assert sorted(text.split()[-3] for text in found) == moves


def test_a_folder_that_was_moved_finds_what_was_recorded_of_its_repository(memory: Machine) -> None:
    moved = memory.root / "elsewhere" / "harbour-of-today"
    if not moved.exists():
        moved.parent.mkdir()
        (memory.root / "src/new-harbour").rename(moved)
    for given in (str(moved), "~/elsewhere/harbour-of-today"):
        found = memory.found("quay measured move", "--project", given)
        assert [text.split()[-3] for text in found] == ["before"]


@pytest.mark.parametrize(
    ("project", "nearest"),
    [
        ("old-harbor", "src/old-harbour"),
        ("Old-Harbour", "src/old-harbour"),
        ("harbour-old", "example.org/port/harbour"),
        ("harbou", "example.org/port/harbour"),
    ],
)
def test_an_unknown_project_is_told_with_the_nearest_names(
    memory: Machine, project: str, nearest: str
) -> None:
    outcome = memory.call("search", "--json", "crane", "--project", project)
    assert outcome.json["results"] == []
    assert f"called {project!r}" in outcome.json["note"]
    assert repr(nearest) in outcome.json["note"]
    assert nearest in memory.call("search", "crane", "--project", project).err


def test_a_project_that_is_like_none_is_told_without_names_and_commands(memory: Machine) -> None:
    outcome = memory.call("search", "crane", "--project", "\x1b[31m\u202eqqq")
    assert "nothing was said in a project" in outcome.err.lower()
    assert "harbour" not in outcome.err
    assert not set(outcome.err) & _COMMANDS


@pytest.mark.parametrize("damage", ["missing", "cut", "changed", "no weights"])
def test_without_a_whole_model_words_are_searched_and_the_note_says_so(
    memory: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    _damage(tmp_path / "model", damage)
    monkeypatch.setattr(builtin, "__file__", str(tmp_path / "builtin.py"))  # the model lies beside the module
    vars(selection)["_builtin_identity"].cache_clear()  # as in a new process
    answer = memory.call("search", "--json", "harbour crane").json
    assert answer["mode"] == "keyword"
    assert "words alone" in answer["note"]
    assert "lifting limit" in answer["results"][0]["text"]
    assert "words alone" in memory.call("search", "harbour crane").err.lower()


def _damage(model: Path, damage: str) -> None:
    """A copy of the shipped model that is not whole."""
    if damage == "missing":
        return
    shutil.copytree(MODEL, model)
    weights = model / WEIGHTS_FILE
    if damage == "no weights":
        weights.unlink()
    else:
        data = weights.read_bytes()
        weights.write_bytes(data[:-1] if damage == "cut" else b"\xff" * len(data))
