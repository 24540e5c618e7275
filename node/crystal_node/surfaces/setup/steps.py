"""A plan is a list of steps. Each can be checked before it is carried out, and repeated.

::

                     is_so()                 do()
    planned ----------------> WAS SO  planned ----> DONE
       |                                  |
       +-- nobody asked for it: LEFT OUT  +-- known failure: COULD NOT, with why and what to do
                                          +-- the rest comes by itself: LATER, with what it waits for

A step that fails does not stop the next ones, unless they depend on it. No progress is stored: each step finds out by
itself whether it is done, so an interrupted plan is carried out by starting it again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import ExitCode, describe
from crystal_node.base.wording import printable

T = TypeVar("T")


class StepState(StrEnum):
    """How a step ended. See the drawing."""

    DONE = "done"
    WAS_SO = "was so"
    COULD_NOT = "could not"
    LATER = "later"
    LEFT_OUT = "left out"


class StepLater(CrystalError):
    """The step is done, and its result comes later: the message says what it waits for, and why."""

    hint = "The background service goes on by itself; `crystal sync` does it now."


@dataclass(frozen=True, slots=True)
class SetupStep:
    """``what`` is what it does, for people: "install hooks in Claude Code". ``do`` returns a sentence about the result, or "".

    ``ground``: all later steps depend on it. ``why_not``: why it is left out; "" if it is not.
    """

    name: str
    what: str
    is_so: Callable[[], bool]
    do: Callable[[], str]
    ground: bool = False
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """How one step ended. ``text`` is the sentence, ``hint`` what to do."""

    name: str
    what: str
    state: StepState
    text: str = ""
    hint: str = ""
    exit_code: int = ExitCode.OK
    waits: bool = False
    """Left out because an earlier step failed."""

    def document(self) -> dict[str, object]:
        """The outcome as JSON."""
        return {
            "name": self.name,
            "what": self.what,
            "state": self.state.name.lower().replace("_", "-"),
            "text": self.text or None,
            "hint": self.hint or None,
            "exit_code": int(self.exit_code),
        }

    def lines(self) -> list[str]:
        """The outcome for people."""
        text = f": {printable(self.text)}" if self.text else ""
        hint = [f"{'':<9}  {printable(self.hint)}"] if self.hint else []
        return [f"{self.state:<9}  {self.what}{text}", *hint]


def carry_out(plan: Sequence[SetupStep]) -> Iterator[StepOutcome]:
    """Carry out the steps in order, and yield the outcome of each.

    Raises:
        An error that `describe` does not know, and KeyboardInterrupt.
    """
    broken = ""
    for step in plan:
        outcome = (
            StepOutcome(step.name, step.what, StepState.LEFT_OUT, f"{broken} comes first", waits=True)
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
    except StepLater as error:
        return StepOutcome(step.name, step.what, StepState.LATER, str(error), error.hint)
    except Exception as error:
        failure = describe(error)
        if failure.exit_code == ExitCode.UNEXPECTED:
            raise
        return StepOutcome(
            step.name, step.what, StepState.COULD_NOT, failure.message, failure.hint, failure.exit_code
        )


def for_each(things: Iterable[T], do: Callable[[T], bool]) -> list[T]:
    """Does it for each, and returns those for which it was true. One that fails keeps no other back: the first error is raised
    once all were tried."""
    chosen: list[T] = []
    errors: list[CrystalError] = []
    for each in things:
        try:
            if do(each):
                chosen.append(each)
        except CrystalError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return chosen


def exit_code(outcomes: Sequence[StepOutcome]) -> int:
    """The exit code of the first step that failed; 0 if none did."""
    return next((each.exit_code for each in outcomes if each.state is StepState.COULD_NOT), ExitCode.OK)
