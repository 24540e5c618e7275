"""Recall keeps projects apart at random prompts. 100,000 of them: `python -m bench.quality.recall_projects`."""

import pytest

from bench.quality import recall_projects
from bench.quality.recall_projects import FOUND_MIN, Outcome, Place, run
from crystal_node.search.recall import selection
from tests.support.constant import always

pytestmark = pytest.mark.timeout(400)
"""How long a world takes is no property: it is a minute of processor time, on a machine that others use more."""


def checked(found: Outcome, prompts: int) -> None:
    assert found.leaks == []
    assert found.prompts == prompts and found.told > prompts / 4
    assert found.wanted > prompts / 10 and found.share >= FOUND_MIN


def test_no_text_of_another_project_is_told_and_what_holds_everywhere_is_found() -> None:
    checked(run(150, seed=3), 150)


@pytest.mark.slow
def test_nor_at_three_thousand_prompts() -> None:
    checked(run(3_000, seed=4), 3_000)


def test_a_recall_that_looks_everywhere_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere = [(place.folder, place.repository) for place in recall_projects.places()]
    monkeypatch.setattr(selection, "searched_projects", always(everywhere))
    assert run(30).leaks


def test_the_projects_are_easily_mistaken() -> None:
    places = recall_projects.places()
    assert len({place.word for place in places}) == recall_projects.PROJECTS

    def lies_in(one: Place, other: Place) -> bool:
        return one.folder.startswith(f"{other.folder}/")

    assert any(lies_in(one, other) for one in places for other in places)
    assert any(len(place.kin) == 2 for place in places)
