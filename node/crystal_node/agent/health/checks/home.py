"""The home's files: who may use them, and whether there is room for more."""

import stat
from collections.abc import Iterator

from crystal_node.agent.health.facts import free_space
from crystal_node.agent.health.findings import Check, State
from crystal_node.base.errors import ExitCode
from crystal_node.base.home import DIRECTORY_MODE, FILE_MODE, Exposure, exposure
from crystal_node.base.settings import Settings
from crystal_node.base.wording import size


def permissions(settings: Settings) -> Iterator[Check]:
    """What others can use. Closed by ``chmod`` where it is this user's."""
    found = [problem for path in settings.home.private_paths() if (problem := exposure(path)) is not None]
    for problem in found:
        yield Check(
            "permissions",
            State.FAILED,
            problem.text,
            problem.fix,
            ExitCode.STORAGE,
            mend=(lambda problem=problem: _close(problem)) if problem.fix.startswith("chmod ") else None,  # type: ignore[misc]
        )
    if not found and settings.home.root.exists():
        yield Check("permissions", State.OK, f"only you can use what is in {settings.home.root}")


def room(settings: Settings) -> Iterator[Check]:
    """Room on the disks. Nothing where there is no home yet."""
    for disk in free_space(settings.home):
        if disk.read_only:
            fix = (
                "Find out why it is mounted read-only (a disk that fails often is), and mount it for writing."
            )
            what = f"the disk of {disk.folder} takes no writes"
            yield Check("disk", State.FAILED, what, fix, ExitCode.STORAGE)
        elif disk.low:
            what = f"only {disk.words} left on the disk of {disk.folder}"
            yield Check(
                "disk", State.FAILED, what, "Make room: what waits here is safe meanwhile.", ExitCode.STORAGE
            )
        else:
            yield Check("disk", State.OK, f"{size(disk.free)} free for {disk.folder}")


def leftovers_here(settings: Settings) -> Iterator[Check]:
    """Copies that go by themselves are only counted where they are many bytes: they hold what was forgotten since."""
    from crystal_node.sync.leftovers import leftovers

    found = leftovers(settings.home)
    if found:
        total = size(sum(each.path.stat().st_size for each in found))
        yield Check(
            "copies", State.OK, f"{len(found)} older copies of the memory ({total}); each goes after a week"
        )


def _close(problem: Exposure) -> str:
    mode = DIRECTORY_MODE if stat.S_ISDIR(problem.path.stat().st_mode) else FILE_MODE
    problem.path.chmod(mode)
    return f"closed {problem.path} to others (mode {mode:o})"
