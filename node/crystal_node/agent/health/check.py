"""What a check of the doctor comes to: its name, how the thing is, in words, what mends it, and how that is done.

A mend changes nothing that is the only copy of something, may be repeated, and says in one sentence what it did.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from crystal_node.base.errors import ExitCode, describe

Mend = Callable[[], str]


class State(StrEnum):
    """What came of a check. Only ``FAILED`` makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: its name, how it is, in words, and what to do if it is not well. ``mend``: does that."""

    name: str
    state: State
    what: str
    fix: str = ""
    exit_code: int = ExitCode.OK
    mend: Mend | None = field(default=None, compare=False, repr=False)


def failed(name: str, error: BaseException) -> Check:
    """A check that met an error, as any command would show it."""
    failure = describe(error)
    return Check(name, State.FAILED, failure.message, failure.hint, failure.exit_code)


def warned(name: str, error: BaseException) -> Check:
    """The same for what this device can do without."""
    failure = describe(error)
    return Check(name, State.WARNING, failure.message, failure.hint)


def guarded(name: str, look: Callable[[], Iterable[Check]]) -> list[Check]:
    """A look's checks; one that fails hides no other."""
    try:
        return list(look())
    except Exception as error:  # noqa: BLE001  a report about what is broken goes on to the next thing
        return [failed(name, error)]
