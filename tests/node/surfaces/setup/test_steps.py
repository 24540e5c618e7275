"""A plan is carried out step by step, and tells of each what became of it."""

import pytest

from crystal_node.base.errors import ExitCode, LocalStorage
from crystal_node.surfaces.setup.steps import SetupStep, StepLater, StepState, carry_out, exit_code


class _World:
    """What steps change: the names of those that are done."""

    def __init__(self, *done: str, broken: str = "", bug: str = "") -> None:
        self.done = list(done)
        self._broken, self._bug = broken, bug

    def step(self, name: str, *, ground: bool = False, why_not: str = "") -> SetupStep:
        def do() -> str:
            if name == self._broken:
                raise LocalStorage(f"{name} is broken", hint="mend it")
            if name == self._bug:
                raise ZeroDivisionError
            self.done.append(name)
            return f"{name} is so"

        return SetupStep(name, f"do {name}", lambda: name in self.done, do, ground, why_not)


def test_each_step_is_done_was_so_or_was_left_out() -> None:
    world = _World("b")
    plan = [world.step("a"), world.step("b"), world.step("c", why_not="nobody asked")]
    outcomes = list(carry_out(plan))
    assert [(each.state, each.text) for each in outcomes] == [
        (StepState.DONE, "a is so"),
        (StepState.WAS_SO, ""),
        (StepState.LEFT_OUT, "nobody asked"),
    ]
    assert exit_code(outcomes) == 0
    assert [each.state for each in carry_out(plan[:2])] == [StepState.WAS_SO] * 2


def test_what_could_not_be_done_keeps_nothing_else_from_being_done() -> None:
    world = _World(broken="a")
    outcomes = list(carry_out([world.step("a"), world.step("b")]))
    assert [each.state for each in outcomes] == [StepState.COULD_NOT, StepState.DONE]
    assert (outcomes[0].text, outcomes[0].hint) == ("a is broken", "mend it")
    assert exit_code(outcomes) == ExitCode.STORAGE


def test_what_comes_later_keeps_nothing_from_being_done_and_is_no_failure() -> None:
    def do() -> str:
        raise StepLater("it waits for rain", hint="Wait.")

    world = _World()
    waits = SetupStep("a", "do a", lambda: False, do, ground=True)
    outcomes = list(carry_out([waits, world.step("b")]))
    assert [each.state for each in outcomes] == [StepState.LATER, StepState.DONE]
    assert (outcomes[0].text, outcomes[0].hint) == ("it waits for rain", "Wait.")
    assert exit_code(outcomes) == 0


def test_nothing_is_built_on_ground_that_could_not_be_laid() -> None:
    world = _World(broken="a")
    outcomes = list(carry_out([world.step("a", ground=True), world.step("b"), world.step("c")]))
    assert [each.state for each in outcomes] == [StepState.COULD_NOT, StepState.LEFT_OUT, StepState.LEFT_OUT]
    assert world.done == []


def test_a_mistake_in_crystal_is_not_passed_off_as_a_step_that_could_not_be_done() -> None:
    world = _World(bug="a")
    with pytest.raises(ZeroDivisionError):
        list(carry_out([world.step("a")]))
