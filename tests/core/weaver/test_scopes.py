"""Whether what is remembered of a batch is for the project that all of it was said in."""

from dataclasses import replace

from crystal_core.weaver.sources import scope_of_all
from tests.support.woven import said


def test_memories_are_for_a_project_only_if_all_that_was_read_was_said_in_it() -> None:
    app, clone = ("work/app", "host/me/app"), ("src/app", "host/me/app")
    one, two = said(1, "The mast is up."), said(2, "The sail is torn.")
    assert scope_of_all([replace(one, project=app), replace(two, project=clone)]) == "host/me/app"
    assert scope_of_all([replace(one, project=app), replace(two, project=("work/pump", ""))]) == ""
    assert scope_of_all([replace(one, project=app), two]) == ""
    assert scope_of_all([one, two]) == ""
