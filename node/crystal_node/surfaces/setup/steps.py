"""A plan is a row of steps; each can be looked at before it is carried out, and carried out again at any time.

::

                     is_so()                 do()
    planned ----------------> WAS SO  planned ----> DONE
       |                                  |
       +-- nobody asked for it: LEFT OUT  +-- known failure: COULD NOT, with why and what to do

A step that could not be done does not keep the next ones from their work, unless they stand on it. There is no record of
how far a plan has come: each step finds out by itself whether its work is done, so a plan that was killed anywhere is carried
out by starting it again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from crystal_node.base.errors import ExitCode, describe


class StepState(StrEnum):
    """How a step ended. See the drawing."""

    DONE = "done"
    WAS_SO = "was so"
    COULD_NOT = "could not"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class SetupStep:
    """``what`` is what it does, for people: "put hooks into Claude Code". ``do`` returns a sentence of how it is now, or "".

    ``ground``: all later steps stand on it. ``why_not``: nobody asked for it, and why it is named all the same.
    """

    name: str
    what: str
    is_so: Callable[[], bool]
    do: Callable[[], str]
    ground: bool = False
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """How one step went. ``text`` is the sentence, ``hint`` what to do."""

    name: str
    what: str
    state: StepState
    text: str = ""
    hint: str = ""
    exit_code: int = ExitCode.OK


def carry_out(plan: Sequence[SetupStep]) -> Iterator[StepOutcome]:
    """Carries the steps out, one after the other, and tells of each when it has ended.

    Raises:
        whatever is a mistake in Crystal, and what stops a person's command.
    """
    broken = ""
    for step in plan:
        outcome = (
            StepOutcome(step.name, step.what, StepState.LEFT_OUT, f"{broken} comes first")
            if broken
            else _carried_out(step)
        )
        yield outcome
        if step.ground and outcome.state is StepState.COULD_NOT:
            broken = step.name


def _carried_out(step: SetupStep) -> StepOutcome:
    if step.why_not:
        return StepOutcome(step.name, step.what, StepState.LEFT_OUT, step.why_not)
    try:
        if step.is_so():
            return StepOutcome(step.name, step.what, StepState.WAS_SO)
        return StepOutcome(step.name, step.what, StepState.DONE, step.do())
    except Exception as error:
        failure = describe(error)
        if failure.exit_code == ExitCode.UNEXPECTED:
            raise
        return StepOutcome(
            step.name, step.what, StepState.COULD_NOT, failure.message, failure.hint, failure.exit_code
        )


def exit_code(outcomes: Sequence[StepOutcome]) -> int:
    """That of the first step that could not be done; 0 if there is none."""
    return next((each.exit_code for each in outcomes if each.state is StepState.COULD_NOT), ExitCode.OK)
