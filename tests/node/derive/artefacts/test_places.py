"""What people, links and hostile names do to files that are made from the memory."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_node.base.agent_names import folder_name
from crystal_node.base.file_rules import TreeRules
from crystal_node.derive.artefacts.conversation_files import LOOK_MS
from crystal_node.sync.files.artefacts import (
    daily_place,
    is_made_here,
    staged_transcript,
    summary_place,
    transcript_place,
)
from tests.core.builders import capture, forget
from tests.support.workbench import Workbench, known

TRANSCRIPT = "agents/agent/memory/transcripts/session.jsonl"
SUMMARY = "agents/agent/memory/sessions/2027-01-15-session.md"
DAY = "agents/agent/memory/daily/2027-01-15.md"
HOSTILE = [
    "../../etc",
    "",
    ".",
    "..",
    "/root",
    "a/b",
    "con",
    "CON.txt",
    "a\0b",
    "x" * 5000,
    "$(id)",
    "-rf",
    "日本",
    "A",
]


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    known(made, "agent")
    return made


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_reaches_no_path_outside_its_folder(bench: Workbench, name: str) -> None:
    known(bench, folder_name(name[:1024]))
    before = set(bench.root.parent.rglob("*"))
    bench.apply(capture("words", agent=name[:1024], session=name[:1024]))
    bench.run()
    new = {path for path in set(bench.root.parent.rglob("*")) - before if path.is_file()}
    made = [path for path in new if not path.is_relative_to(bench.root / "state")]
    assert len(made) == 3
    for path in made:
        assert path.resolve().is_relative_to(bench.root / "agents")
        assert len(path.relative_to(bench.root).parts) == 5


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_every_place_is_one_that_may_travel_and_two_names_never_share_one(one: str, other: str) -> None:
    rules = TreeRules()
    for place in (
        transcript_place(one, other),
        summary_place(one, other, "undated"),
        daily_place(one, "2027-01-15"),
    ):
        assert rules.fault(place.path) is None
        assert is_made_here(place.path)
    assert rules.is_own(staged_transcript(one, other).path)
    if one != other:
        assert transcript_place(one, "s").path.lower() != transcript_place(other, "s").path.lower()
        assert transcript_place("a", one).path.lower() != transcript_place("a", other).path.lower()


def test_a_file_that_a_person_changed_stays_and_is_told_once(bench: Workbench) -> None:
    bench.apply(capture("one"))
    bench.run()
    mine = "my own notes\n"
    (bench.root / SUMMARY).write_text(mine, encoding="utf-8")
    for number in range(3):
        bench.apply(capture(f"more {number}", message=str(number)))
        bench.run()
    assert bench.files()[SUMMARY] == mine
    assert [line for line in bench.told if "was changed by somebody" in line] == bench.told
    assert len(bench.told) == 1
    (bench.root / SUMMARY).unlink()
    bench.run()
    assert bench.files()[SUMMARY].startswith("# one")


def test_a_days_log_that_a_person_changed_stays_and_comes_back_when_it_is_taken_away(
    bench: Workbench,
) -> None:
    bench.apply(capture("one"))
    bench.run()
    with (bench.root / DAY).open("a", encoding="utf-8") as file:
        file.write("- and I had coffee\n")
    bench.apply(capture("two", message="2"))
    bench.run()
    assert "coffee" in bench.files()[DAY]
    (bench.root / DAY).unlink()
    bench.run()
    assert "2 pieces" in bench.files()[DAY]


def test_files_that_somebody_has_taken_away_are_made_anew_within_the_hour(bench: Workbench) -> None:
    bench.apply(capture("one"))
    bench.run()
    before = bench.files()
    shutil.rmtree(bench.root / "agents")
    bench.run()
    assert bench.files() == {}
    bench.now += LOOK_MS
    bench.run()
    assert bench.files() == before


def test_a_changed_file_that_may_hold_a_forgotten_text_is_made_anew_and_that_is_told(
    bench: Workbench,
) -> None:
    bench.apply(capture("The secret plan.", "Fine."))
    bench.run()
    for path in (TRANSCRIPT, SUMMARY, DAY):
        with (bench.root / path).open("a", encoding="utf-8") as file:
            file.write("added by hand\n")
    bench.apply(forget("The secret plan."))
    bench.run()
    assert b"secret plan" not in bench.everywhere()
    assert len([line for line in bench.told if "made again" in line]) == 3


def test_a_file_of_another_core_is_taken_over_without_a_word(bench: Workbench, tmp_path: Path) -> None:
    """Files came by the file tree; what this device knew of them is nothing."""
    bench.apply(capture("one"))
    bench.run()
    for suffix in ("", "-wal", "-shm"):
        (bench.root / f"state/works.db{suffix}").unlink(missing_ok=True)
    bench.apply(capture("two", message="2"))
    bench.run()
    assert "two" in bench.files()[TRANSCRIPT]
    assert bench.told == []


def test_a_link_in_the_way_is_not_followed_and_does_not_stop_the_others(
    bench: Workbench, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    known(bench, "other")
    (bench.root / "agents/agent/memory").rmdir()
    (bench.root / "agents/agent/memory").symlink_to(outside)
    bench.apply(capture("one"), capture("two", agent="other"))
    bench.run()
    assert list(outside.iterdir()) == []
    assert "agents/other/memory/transcripts/session.jsonl" in bench.files()
    assert len(bench.told) == 1
    assert "link" in bench.told[0]
    bench.run()
    assert len(bench.told) == 1
    (bench.root / "agents/agent/memory").unlink()
    bench.now += 3_600_000
    bench.run()
    assert TRANSCRIPT in bench.files()


def test_a_link_in_a_files_place_is_kept_as_a_persons_own(bench: Workbench, tmp_path: Path) -> None:
    target = tmp_path / "target.md"
    target.write_text("mine", encoding="utf-8")
    place = bench.root / SUMMARY
    place.parent.mkdir(parents=True)
    place.symlink_to(target)
    bench.apply(capture("one"))
    bench.run()
    assert target.read_text(encoding="utf-8") == "mine"
    assert place.is_symlink()
