"""The home's files: who may use them, and whether the disks have space."""

import stat
from collections.abc import Iterator

from crystal_node.agent.health.facts import free_space
from crystal_node.agent.health.findings import Finding, Severity, disk_findings
from crystal_node.base.errors import ExitCode
from crystal_node.base.home import DIRECTORY_MODE, FILE_MODE, Exposure, exposure
from crystal_node.base.settings import Settings
from crystal_node.base.wording import size
from crystal_node.sync.leftovers import leftovers


def permissions(settings: Settings) -> Iterator[Finding]:
    """What others can use. Closed by ``chmod`` where it is this user's."""
    found = [problem for path in settings.home.private_paths() if (problem := exposure(path)) is not None]
    for problem in found:
        yield Finding(
            "permissions",
            Severity.FAILED,
            problem.text,
            problem.fix,
            ExitCode.STORAGE,
            mend=(lambda problem=problem: _close(problem)) if problem.fix.startswith("chmod ") else None,  # type: ignore[misc]
        )
    if not found and settings.home.root.exists():
        yield Finding("permissions", Severity.OK, f"only you can use what is in {settings.home.root}")


def disk_space(settings: Settings) -> Iterator[Finding]:
    """Space on the disks. Nothing where there is no home yet."""
    for disk in free_space(settings.home):
        low = [each.named("disk") for each in disk_findings((disk,))]
        yield from low or [Finding("disk", Severity.OK, f"{size(disk.free)} free for {disk.folder}")]


def leftovers_here(settings: Settings) -> Iterator[Finding]:
    """Copies that go by themselves are only counted where they are many bytes: they hold what was forgotten since."""
    found = leftovers(settings.home)
    if found:
        total = size(sum(each.path.stat().st_size for each in found))
        yield Finding(
            "copies",
            Severity.OK,
            f"{len(found)} older copies of the memory ({total}); each goes after a week",
        )


def _close(problem: Exposure) -> str:
    mode = DIRECTORY_MODE if stat.S_ISDIR(problem.path.stat().st_mode) else FILE_MODE
    problem.path.chmod(mode)
    return f"closed {problem.path} to others (mode {mode:o})"
