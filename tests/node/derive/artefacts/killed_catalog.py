"""`python -m tests.node.derive.artefacts.killed_catalog DIRECTORY`: processes that make files of the memory die at each step.

A step is a call that changes the disk, or a commit of works.db. Prints how many died. Raises when what the next run makes is
not what a run makes that nobody stopped, or when a forgotten text is left anywhere.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.core.builders import capture, forget
from tests.support.dying_process import kill_at_each_step
from tests.support.workbench import Workbench, known, step_at_commits

Step = Callable[[Callable[..., Any]], Callable[..., Any]]

SECRET = "The secret plan."


def main() -> None:
    folder = Path(sys.argv[1])
    source, home = folder / "source", folder / "home"
    bench = Workbench(source)
    known(bench, "agent")
    bench.apply(capture("one", SECRET), capture("whole", session="gone"))
    bench.run()
    bench.apply(forget(SECRET, "whole"), capture("more", message="2"), capture("next day", session="n"))
    bench.replica.close()
    shutil.copytree(source, folder / "whole")
    whole = Workbench(folder / "whole")
    whole.run()
    wanted = whole.files()
    whole.replica.close()

    def prepare() -> None:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(source, home)

    def work(step: Step) -> None:
        step_at_commits(step)
        Workbench(home).run()

    def check(done: bool) -> None:
        again = Workbench(home)
        again.run()
        assert again.files() == wanted
        assert SECRET.encode() not in again.everywhere()
        looked, made = again.run()
        assert not (looked.pieces or looked.checked_all or made.written or made.removed)
        again.replica.close()

    sys.stdout.write(f"{kill_at_each_step(prepare, work, check)}\n")


if __name__ == "__main__":
    main()
