"""`python -m tests.node.derive.native_memory.killed_runs DIRECTORY MACHINE`: processes that keep files in step die at each
step.

``MACHINE`` is a machine's root with a change of its own and one of another device that has arrived; it is copied. Prints how
many died. Raises when the next run does not have every line once, or brings back what was removed right after the death.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crystal_node.base import home
from crystal_node.derive.native_memory import disk, store
from crystal_node.derive.native_memory.replicated_text import is_mark
from tests.support.dying_process import kill_at_each_step
from tests.support.machine import Machine

FILE = ".claude/CLAUDE.md"
WANTED = ["# Style", "- from here", "- from there", "- tabs"]
Step = Callable[[Callable[..., Any]], Callable[..., Any]]


def words(machine: Machine) -> list[str]:
    """The lines of the file, in the order of the alphabet."""
    lines = (machine.root / FILE).read_text().splitlines()
    return sorted(line for line in lines if line and not is_mark(line))


def main() -> None:
    folder, source = Path(sys.argv[1]), Path(sys.argv[2])
    machine = Machine(folder / "machine")

    def prepare() -> None:
        shutil.rmtree(machine.root, ignore_errors=True)
        shutil.copytree(source, machine.root)

    def work(step: Step) -> None:
        for module in (store, disk):
            setattr(module, "write_private", step(home.write_private))  # noqa: B010  as both imported it
        disk.is_still = step(disk.is_still)
        Path.replace = step(Path.replace)  # type: ignore[method-assign]
        machine.call("native", "sync", "--json")

    def check(done: bool) -> None:
        removed = "- from there" in words(machine)
        if removed:  # by a person, as soon as it was there
            path = machine.root / FILE
            path.write_text(path.read_text().replace("- from there\n", ""))
        machine.call("native", "sync", "--json")
        wanted = [line for line in WANTED if not (removed and line == "- from there")]
        assert words(machine) == wanted, (done, words(machine))
        machine.call("native", "sync", "--json")
        assert words(machine) == wanted, (done, words(machine))
        assert not list((machine.root / ".claude").glob(".crystal-tmp-*")), "a temporary file stays"

    sys.stdout.write(f"{kill_at_each_step(prepare, work, check)}\n")


if __name__ == "__main__":
    main()
