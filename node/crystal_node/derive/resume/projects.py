"""The folder on this machine in which a session of another machine goes on.

Looked for in this order, and taken only if it is there. Its repository has to be that of the session, where it had one,
unless a person said that this is the folder:

    what a person said before      state/resume/projects.json
    where this machine had the session itself
    the same place in the home     ~/work/tide-gauge there is ~/work/tide-gauge here
    where sessions of this machine had the same repository
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

import msgspec

from crystal_crypto.errors import UNDECODABLE, CrystalError
from crystal_node.base.decoding import from_json
from crystal_node.base.errors import ExitCode
from crystal_node.base.home import DIRECTORY_MODE, write_private
from crystal_node.base.project import FOLDER_CHARS_MAX, ProjectFinder, repository_name
from crystal_node.base.wording import one_line
from crystal_node.derive.sessions.layout import Head

ANSWERS_MAX = 2000
_ANSWERS_BYTES_MAX = 8 * 1024 * 1024
_SHOWN_CHARS = 200
_REPOSITORY = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}(?::\d{1,5})?(?:/[A-Za-z0-9_~][A-Za-z0-9._~-]{0,200}){1,20}"
)

_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,199}")


class UnknownProject(CrystalError):
    """Nobody has said where a session's project is on this machine."""

    exit_code = ExitCode.NOT_FOUND
    hint = "Name its folder once: `crystal resume ID --in FOLDER`."


@dataclass(frozen=True, slots=True)
class ProjectFolders:
    """``file``: answers that were given before. ``home``: the person's home folder."""

    file: Path
    home: Path

    def find(self, head: Head, own: Iterable[Head] = ()) -> Path | None:
        """The folder for a session; None if it is not known. ``own``: this machine's own copies, the latest first."""
        own = list(own)
        said = self._answers().get(_key(head))
        if said and _is_folder(Path(said)):
            return self._within(head, Path(said))
        candidates = [
            path for each in own if each.session == head.session and (path := here(each.cwd, self.home))
        ]
        if (same := here(head.cwd, self.home)) is not None:
            candidates.append(same)
        if head.repository:
            there = (here(each.cwd, self.home) for each in own if each.repository == head.repository)
            candidates += [path for path in dict.fromkeys(there) if path is not None]
        for candidate in candidates:
            if _is_folder(candidate) and (
                not head.repository or repository_name(str(candidate)) == head.repository
            ):
                return self._within(head, candidate)
        return None

    def remember(self, head: Head, folder: Path) -> None:
        """Keeps a person's answer, unless nothing is known that other sessions have in common with this one. Raises OSError."""
        if not _key(head):
            return
        answers = self._answers()
        answers.pop(_key(head), None)
        answers = dict(list(answers.items())[-ANSWERS_MAX + 1 :]) | {_key(head): str(folder)}
        self.file.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        write_private(self.file, msgspec.json.encode(answers))

    def unknown(self, head: Head) -> UnknownProject:
        """The error for a session whose project is not known here."""
        where = one_line(head.repository or head.cwd or "no project", _SHOWN_CHARS)
        clone = clone_address(head.repository)
        first = f"Clone it, `git clone {clone}`, then name" if clone else "Name"
        return UnknownProject(
            f"this session's project, {where}, is not known on this machine",
            hint=f"{first} its folder: `crystal resume {_shown_id(head)} --in FOLDER`. The answer is remembered.",
        )

    def _within(self, head: Head, folder: Path) -> Path:
        """The same folder of the repository as there, if it is here."""
        parts = _parts(head.cwd)
        root = ProjectFinder(self.home).of(str(folder))
        name = PurePosixPath(root.root or str(folder)).name
        if head.repository and name in parts:
            below = (
                folder.joinpath(*parts[len(parts) - parts[::-1].index(name) :])
                if folder.name == name
                else folder
            )
            return below if _is_folder(below) and ".." not in parts else folder
        return folder

    def _answers(self) -> dict[str, str]:
        try:
            with self.file.open("rb") as file:
                return from_json(file.read(_ANSWERS_BYTES_MAX), dict[str, str])
        except (OSError, *UNDECODABLE):
            return {}


def here(cwd: str, home: Path) -> Path | None:
    """A working folder of another machine as a path here: ``~`` is this person's home. None if it cannot be one."""
    if not cwd or len(cwd) > FOLDER_CHARS_MAX or any(ord(char) < 32 for char in cwd):
        return None
    if cwd == "~":
        return home
    if cwd.startswith(("~/", "~\\")):
        parts = _parts(cwd)[1:]
        return None if ".." in parts else home.joinpath(*parts)
    path = Path(cwd)
    return path if path.is_absolute() and ".." not in path.parts else None


def clone_address(repository: str) -> str:
    """What `git clone` takes for a repository as projects are identified; "" for what is none. Only ever shown."""
    return f"https://{repository}" if _REPOSITORY.fullmatch(repository) else ""


def _shown_id(head: Head) -> str:
    """An id in a command that a person may copy: one that no tool made is not repeated."""
    return head.session if _ID.fullmatch(head.session) else "ID"


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that no disk here takes
        return False


def _key(head: Head) -> str:
    return head.repository or head.cwd


def _parts(cwd: str) -> tuple[str, ...]:
    return (PureWindowsPath(cwd) if "\\" in cwd and "/" not in cwd else PurePosixPath(cwd)).parts
