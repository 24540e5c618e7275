"""`python -m tests.node.sync.files.killed_rounds DIRECTORY SCENARIO`: a device dies at each step of a round of files in turn.

A step is a call that changes the disk, a request to the store, or the acceptance of an offer. Prints how many died. Raises
when a content was lost, a device holds a file half, or the two do not become equal afterwards.
"""

import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crystal_mirror.membership.member import Member
from tests.support.desks import Desks, settle
from tests.support.dying_process import kill_at_each_step

Step = Callable[[Callable[..., Any]], Callable[..., Any]]

BIG = random.Random(5).randbytes(1_500_000)
MORE = random.Random(6).randbytes(1_500_000)
_MORE_STEPS = ("link", "write", "rmdir", "ftruncate", "fchmod")


def fetching(desks: Desks) -> set[bytes]:
    """Others made, changed, renamed and deleted files. Returns what must be somewhere afterwards."""
    core, laptop = desks.open("core"), desks.open("laptop")
    core.write("changed", b"before")
    core.write("deleted/inner", b"to be deleted")
    core.write("old-name", BIG)
    settle(core, laptop, rounds=2)
    core.write("new/file", MORE)
    core.write("changed", b"after it")
    (core.root / "deleted/inner").unlink()
    (core.root / "old-name").rename(core.root / "new-name")
    core.sync()
    laptop.memory()
    core.close()
    laptop.close()
    return {BIG, MORE, b"after it", b"to be deleted"}


def offering(desks: Desks) -> set[bytes]:
    """This device made, changed and deleted files, one of them against another's change."""
    core, laptop = desks.open("core"), desks.open("laptop")
    core.write("changed", b"before")
    core.write("deleted", b"to be deleted")
    core.write("both", b"of nobody")
    settle(core, laptop, rounds=2)
    core.write("both", b"of the core")
    core.sync()
    laptop.write("both", b"of the laptop")
    laptop.write("made", MORE)
    laptop.write("changed", b"after it")
    (laptop.root / "deleted").unlink()
    core.close()
    laptop.close()
    return {MORE, b"after it", b"of the core", b"of the laptop"}


SCENARIOS = {"fetching": fetching, "offering": offering}


def main() -> None:
    folder, scenario = Path(sys.argv[1]), SCENARIOS[sys.argv[2]]
    template = folder / "template"
    wanted = scenario(Desks(template, "laptop"))
    world = folder / "world"

    def prepare() -> None:
        shutil.rmtree(world, ignore_errors=True)
        shutil.copytree(template, world)

    def work(step: Step) -> None:
        for name in _MORE_STEPS:
            setattr(os, name, step(getattr(os, name)))
        Member.accept_many = step(Member.accept_many)  # type: ignore[method-assign]
        desks = Desks(world, "laptop")
        laptop = desks.open("laptop")
        desks.store.answer = step(desks.store.answer)  # type: ignore[method-assign]
        laptop.sync()
        if sys.argv[2] == "offering":  # to the end: the conflict is settled
            desks.open("core").sync()
            laptop.sync()

    def check(_done: bool) -> None:
        desks = Desks(world, "laptop")
        laptop, core = desks.open("laptop"), desks.open("core")
        for path, data in laptop.tree().items():
            assert data in wanted | {b"before", b"to be deleted", b"of nobody"}, f"{path} is half"
        settle(laptop, core, rounds=3)
        assert laptop.tree() == core.tree(), (sorted(laptop.tree()), sorted(core.tree()))
        trashed = {item.file.read_bytes() for desk in (laptop, core) for item in desk.disk.trash.items()}
        assert wanted <= set(core.tree().values()) | trashed, sorted(core.tree())
        assert not laptop.book.offers()
        laptop.close()
        core.close()

    sys.stdout.write(f"{kill_at_each_step(prepare, work, check)}\n")


if __name__ == "__main__":
    main()
