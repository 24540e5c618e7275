"""`python -m tests.node.derive.staging.killed_staging DIRECTORY`: processes that
move an agent through staging die at each step.

A step is a call that changes the disk, a commit of works.db, or the Dream Weaver's. Prints how many died. Raises when the next
runs do not bring the agent where a run brings it that nobody stopped, when anything of it is lost on the way, or when weaving
that came to its end is asked for again.
"""

import asyncio
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crystal_node.derive.catalog.agents import StagingState, find_staged, staged_agents
from crystal_node.derive.staging.service import StagingService
from tests.core.builders import capture
from tests.support.dying_process import kill_at_each_step
from tests.support.workbench import Workbench, step_at_commits

Step = Callable[[Callable[..., Any]], Callable[..., Any]]


def bench_at(root: Path) -> Workbench:
    return Workbench(root, environment={"CRYSTAL_STAGING": "extractive"})


def weave(home: Path) -> None:
    """Stands for the Dream Weaver: what it wrote is there or is not."""
    (home / "woven").mkdir()


def whole_run(bench: Workbench, woven: Callable[[Path], None] = weave) -> None:
    async def work() -> None:
        shop = bench.shop()
        desk = StagingService(shop)
        await shop.update(bench.now)
        await shop.make(bench.now)
        moves = await desk.move_on(bench.now)
        for agent, _ in moves.weaving:
            if not (bench.root / "woven").exists():
                woven(bench.root)
            desk.woven(agent, "", bench.now)
            desk.clean()
        shop.catalog.close()

    asyncio.run(work())


def main() -> None:
    folder = Path(sys.argv[1])
    source, home = folder / "source", folder / "home"
    bench = bench_at(source)
    bench.apply(capture("one", "two", agent="codex"))
    bench.replica.close()
    shutil.copytree(source, folder / "whole")
    whole = bench_at(folder / "whole")
    whole_run(whole)
    wanted = whole.files()
    whole.replica.close()

    def prepare() -> None:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(source, home)

    def work(step: Step) -> None:
        step_at_commits(step)
        whole_run(bench_at(home), step(weave))

    def check(done: bool) -> None:
        again = bench_at(home)
        agents = staged_agents(again.settings.home)
        if (
            agents
            and agents[0].state is not StagingState.LIVE
            and agents[0].state is not StagingState.GATHERING
        ):
            assert len(again.files("staging")) >= 2  # nothing goes before all of it worked
        whole_run(again)
        assert find_staged(staged_agents(again.settings.home), "codex").state is StagingState.LIVE
        assert again.files() == wanted
        assert not (home / "staging").exists()
        assert (home / "woven").exists()
        again.replica.close()

    sys.stdout.write(f"{kill_at_each_step(prepare, work, check)}\n")


if __name__ == "__main__":
    main()
