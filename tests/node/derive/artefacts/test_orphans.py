"""Files of conversations that are there no more go, whoever made them, also where nobody notes them any more."""

from pathlib import Path

import pytest

from crystal_node.derive.artefacts.orphans import CHECK_EVERY_MS
from tests.core.builders import capture, forget
from tests.support.workbench import Workbench, known


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    known(made, "agent")
    return made


def lose_works(bench: Workbench) -> None:
    """As on the next Core, or where the file was damaged and moved away."""
    for path in (bench.root / "state").glob("works.db*"):
        path.unlink()


@pytest.mark.parametrize("others", [(), (capture("another talk", session="second"),)])
def test_what_was_forgotten_leaves_the_files_that_another_core_made(
    bench: Workbench, others: tuple[object, ...]
) -> None:
    bench.apply(capture("The secret plan."), *others)  # type: ignore[arg-type]
    bench.run()
    assert b"secret plan" in bench.everywhere()
    lose_works(bench)
    bench.apply(forget("The secret plan."))
    bench.run()
    assert b"secret plan" not in bench.everywhere()
    assert bool(bench.files()) is bool(others)


def test_a_summary_under_the_day_of_a_text_that_was_forgotten_goes(bench: Workbench) -> None:
    day = 24 * 3_600_000
    bench.apply(capture("The secret plan.", created_at=bench.now - 9 * day))
    bench.apply(capture("Fine.", message="later", created_at=bench.now - 2 * day))
    bench.run()
    lose_works(bench)
    bench.apply(forget("The secret plan."))
    bench.run()
    assert b"secret plan" not in bench.everywhere()
    assert len(bench.files("agents")) == 3


def test_files_that_come_late_from_another_core_go_within_a_day(bench: Workbench) -> None:
    bench.apply(capture("The secret plan."))
    bench.run()
    late = bench.files()
    bench.apply(forget("The secret plan."))
    bench.run()
    for path, text in late.items():
        (bench.root / path).parent.mkdir(parents=True, exist_ok=True)
        (bench.root / path).write_text(text, encoding="utf-8")
    bench.now += CHECK_EVERY_MS
    assert bench.run()[1].removed == 3
    assert bench.files() == {}


def test_files_that_a_person_wrote_or_changed_stay(bench: Workbench) -> None:
    bench.apply(capture("one"))
    bench.run()
    changed, *_ = sorted(bench.files())
    own = bench.root / "agents" / "agent" / "memory" / "daily" / "2020-01-01.md"
    own.write_text("My own day.\n", encoding="utf-8")
    with (bench.root / changed).open("a", encoding="utf-8") as file:
        file.write("a line of my own\n")
    lose_works(bench)
    bench.apply(forget("one"))
    bench.run()
    assert set(bench.files()) == {changed, "agents/agent/memory/daily/2020-01-01.md"}
