"""Real processes that die at each of their steps on the disk in turn: before the step, and right after it.

For a program of its own (`python -m …`), started by a test: it forks, which a process with threads should not. A step is a
call of the operating system that changes what a later process finds, or a call that the caller names with `step`.
"""

import os
from collections.abc import Callable
from typing import Any

_STEPS = ("replace", "rename", "unlink", "fsync", "mkdir")
_DIED = 42
_STEPS_MAX = 1000


class _Death:
    """Dies at step number `at`."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.at = at
        self.after = after
        self.count = 0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            here = self.count == self.at
            self.count += 1
            if here and not self.after:
                os._exit(_DIED)
            try:
                return call(*arguments, **named)
            finally:
                if here:
                    os._exit(_DIED)

        return step


def kill_at_each_step(
    prepare: Callable[[], None],
    work: Callable[[Callable[[Callable[..., Any]], Callable[..., Any]]], None],
    check: Callable[[bool], None],
) -> int:
    """Prepares, works in a child that dies, checks; once for each step, until a child gets through. Returns how many died.

    `work` is given a function that makes any callable a step; `check` whether the work got through.
    """
    deaths = 0
    for after in (False, True):
        for number in range(_STEPS_MAX):
            prepare()
            done = _run(work, _Death(number, after=after))
            check(done)
            if done:
                break
            deaths += 1
        else:
            raise AssertionError(f"more than {_STEPS_MAX} steps")
    return deaths


def _run(work: Callable[[Callable[[Callable[..., Any]], Callable[..., Any]]], None], death: _Death) -> bool:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for name in _STEPS:
                setattr(os, name, death.around(getattr(os, name)))
            work(death.around)
            status = 0
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, _DIED):
        raise AssertionError(f"the child failed with {code}")
    return code == 0
