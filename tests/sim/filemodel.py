"""The oracle's tree of files: what a put and a deletion do to it, written apart from the product's code.

A row is a tuple, so that rows compare: version, executable, moment, parts, gone. Paths are those of the product
(``conflict_paths``); which of them is taken, and when, is decided here once more.
"""

from collections.abc import Callable, Mapping

from crystal_mirror.file_paths import conflict_paths, folded
from crystal_mirror.operations import DropFile, FilePart, PutFile
from crystal_mirror.types import Origin

FileState = tuple[Origin, bool, int, tuple[FilePart, ...], bool]
"""Version, executable, modified at, parts, gone."""
Files = dict[str, FileState]


def put(files: Files, origin: Origin, operation: PutFile, is_condemned: Callable[[FilePart], bool]) -> None:
    """A file is put: in its place, nowhere, or beside who came first."""
    if any(is_condemned(part) for part in operation.parts):
        return
    row = (origin, operation.executable, operation.modified_at, operation.parts, False)
    present = living(files).get(operation.path)
    if present is None:
        places = [operation.path, *_some(operation.path, origin)]
    elif present[0] == operation.base:
        files[operation.path] = row
        return
    elif content(present) == (operation.executable, [part.content for part in operation.parts]):
        return
    else:
        places = _some(operation.path, origin)
    taken = {folded(path) for path in living(files)}
    files[next(path for path in places if not _clashes(folded(path), taken))] = row


def drop(files: Files, origin: Origin, operation: DropFile) -> None:
    """A deletion: only of the version that it names."""
    present = living(files).get(operation.path)
    if present is not None and present[0] == operation.base:
        files[operation.path] = (origin, False, 0, (), True)


def living(files: Mapping[str, FileState]) -> dict[str, FileState]:
    return {path: row for path, row in files.items() if not row[4]}


def content(row: FileState) -> tuple[bool, list[bytes]]:
    return row[1], [part.content for part in row[3]]


def _some(path: str, origin: Origin) -> list[str]:
    """More conflict paths than a simulated tree can fill."""
    found: list[str] = []
    for candidate in conflict_paths(path, origin):
        found.append(candidate)
        if len(found) == 40:
            break
    return found


def _clashes(form: str, taken: set[str]) -> bool:
    """Whether a path in its folded form is one with another, a folder of it, or in it."""
    return any(
        form == other or form.startswith(other + "/") or other.startswith(form + "/") for other in taken
    )
