"""Walking a tool's folder. Links below it are not followed; a missing folder is empty."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from crystal_node.capture.adapter import FoundTranscript


def files_below(folder: Path, wanted: Callable[[str], bool], depth: int = 64) -> Iterator[FoundTranscript]:
    """Files below a folder whose name is wanted, in order, without links; and folders that could not be read. ``depth``: levels
    below the folder; 0 is the folder itself."""
    problems: list[OSError] = []
    for place, folders, files in os.walk(folder, onerror=problems.append):
        folders.sort()
        if len(Path(place).relative_to(folder).parts) >= depth:
            folders.clear()
        for name in sorted(files):
            path = Path(place, name)
            if wanted(name) and not path.is_symlink():
                yield FoundTranscript(path)
    yield from _told(problems)


def folders_in(folder: Path) -> tuple[list[Path], list[FoundTranscript]]:
    """The folders directly in a folder, in order, without links; and why it could not be read."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError as error:
        error.filename = error.filename or str(folder)
        return [], list(_told([error]))
    return [folder / name for name in found], []


def is_plain_file(path: Path) -> bool:
    """Whether it is a file, and no link. A path that comes from another program or device may be one that no system takes."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def below(path: str, folder: Path) -> tuple[str, ...] | None:
    """The components of a path below a folder; None if it is elsewhere. Events may name the real folder where we name a link
    to it."""
    for root in (folder, Path(os.path.realpath(folder))):  # `resolve` fails on a loop of links
        if Path(path).is_relative_to(root):
            return Path(path).relative_to(root).parts
    return None


def _told(problems: list[OSError]) -> Iterator[FoundTranscript]:
    for problem in problems:
        if not isinstance(problem, FileNotFoundError | NotADirectoryError):
            yield FoundTranscript(Path(problem.filename), f"cannot be looked into: {problem.strerror}")
