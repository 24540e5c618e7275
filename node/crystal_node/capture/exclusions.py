"""Projects that a person keeps out of the record, for good or for a time.

One is kept out on all devices by a file of the memory home, ``exclusions/<name>.json``, which travels as every file of the home
does. Each exclusion has its own file, so that two devices never change the same one::

    {"folder": "~/work/diary", "repository": "", "since": 0, "until": null}

``folder`` holds with all that is below it; ``~`` is the home of each device's person. A message is left out if its working
folder or its repository is named, and its time (milliseconds since 1970) lies from ``since`` on, up to ``until``. One without a
time is left out whenever its folder or repository is named, unless its conversation began after ``until``.

A folder is also kept out by a ``.crystalignore`` in it or above it whose patterns match the folder or, as ``*``, all in it.
"""

import errno
import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec
from msgspec import structs

from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.decoding import from_json
from crystal_node.base.errors import ExitCode
from crystal_node.base.home import write_private
from crystal_node.base.ignore_patterns import IgnoreFile
from crystal_node.base.project import normalised_remote, repository_name
from crystal_node.base.settings.options import ActionDetail
from crystal_node.capture.line_reader import open_regular

FOLDER = "exclusions"
IGNORE_NAME = ".crystalignore"
EXCLUSIONS_MAX = 1000
FILE_BYTES_MAX = 64 * 1024
_ANYTHING = "a-name-that-no-pattern-means"
"""A pattern that matches this in a folder matches everything in it."""
_HASH_CHARS = 16

Moment = Annotated[int, msgspec.Meta(ge=0)]


class Exclusion(msgspec.Struct, frozen=True, kw_only=True):
    """One exclusion. ``until`` None: it holds now."""

    folder: str = ""
    repository: str = ""
    since: Moment = 0
    until: Moment | None = None

    @property
    def subject(self) -> str:
        return self.folder or self.repository

    @property
    def holds(self) -> bool:
        return self.until is None

    @property
    def file_name(self) -> str:
        named = f"{self.folder}\0{self.repository}\0{self.since}".encode("utf-8", "surrogateescape")
        return f"{sha256(named).hexdigest()[:_HASH_CHARS]}.json"


class UnreadableExclusion(OSError):
    """A file of exclusions cannot be understood: nothing is recorded until it is corrected or removed."""

    exit_code = ExitCode.STORAGE
    hint = (
        "Correct or delete it: until then nothing is recorded, so that nothing that was to stay out comes in."
    )

    def __str__(self) -> str:
        return str(self.strerror)


class Exclusions:
    """The exclusions of one home, read once. ``person_home``: what ``~`` stands for."""

    def __init__(self, person_home: Path, found: Iterable[Exclusion] = ()) -> None:
        self._homes = (str(person_home), str(person_home.resolve()))
        self.all = tuple(found)
        self._ignored: dict[str, bool] = {}

    @classmethod
    def read(cls, home: Path, person_home: Path) -> "Exclusions":
        """Those of a Crystal home. Raises OSError: a file cannot be read, or is none of ours (``UnreadableExclusion``)."""
        return cls(person_home, map(_read, _paths(home)))

    def hides(self, cwd: str, repository: str, moment: int, begun: int = 0) -> bool:
        """Whether a message from there and then (0: unknown) is kept out. ``begun``: when the conversation began, for a message
        without a time (0: unknown)."""
        for one in self.all:
            timely = (not moment or one.since <= moment) and (
                one.until is None or (moment or begun) <= one.until
            )
            if timely and self._names(one, cwd, repository):
                return True
        return self._is_ignored(cwd)

    def naming(self, subject: Exclusion) -> list[Exclusion]:
        """Those that hold and name the same folder or repository."""
        return [one for one in self.all if one.holds and one.subject == subject.subject]

    def _names(self, one: Exclusion, cwd: str, repository: str) -> bool:
        if one.repository:
            return one.repository == repository
        folders = [one.folder]
        if one.folder == "~" or one.folder.startswith("~/"):
            folders = [home + one.folder[1:] for home in self._homes]
        given = cwd.replace("\\", "/")
        return any(given == folder or given.startswith(folder.rstrip("/") + "/") for folder in folders)

    def _is_ignored(self, cwd: str) -> bool:
        found = self._ignored.get(cwd)
        if found is None:
            found = self._ignored[cwd] = _is_ignored(cwd)
        return found


def exclusion_of(named: str, person_home: Path, *, since: int) -> list[Exclusion]:
    """What a person means by a folder or a repository: a folder that is a repository's root stands for the repository, too.

    Empty if it is neither.
    """
    path = Path(named).expanduser()
    if path.is_dir():
        path = path.resolve()
        home = person_home.resolve()
        folder = f"~/{path.relative_to(home).as_posix()}" if path.is_relative_to(home) else path.as_posix()
        found = [Exclusion(folder="~" if path == home else folder, since=since)]
        remote = repository_name(str(path)) if (path / ".git").exists() else ""
        return [*found, *([Exclusion(repository=remote, since=since)] if remote else [])]
    if named.startswith("~/") and ".." not in PurePosixPath(named).parts:
        return [Exclusion(folder=named.rstrip("/"), since=since)]
    remote = normalised_remote(named) or normalised_remote(f"https://{named}")
    return [Exclusion(repository=remote, since=since)] if remote and "/" in named and "." in remote else []


def write(home: Path, one: Exclusion) -> None:
    """Keep an exclusion, or its end."""
    folder = home / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    write_private(folder / one.file_name, msgspec.json.encode(one) + b"\n")


def end(home: Path, subject: str, *, until: int) -> None:
    """Ends all that hold for a folder or a repository, also one that a conflict of two devices has put beside another.

    Raises OSError as ``Exclusions.read``.
    """
    for path in _paths(home):
        one = _read(path)
        if one.holds and one.subject == subject:
            write_private(path, msgspec.json.encode(structs.replace(one, until=until)) + b"\n")


def _paths(home: Path) -> list[Path]:
    try:
        paths = sorted(path for path in (home / FOLDER).iterdir() if path.suffix == ".json")
    except (FileNotFoundError, NotADirectoryError):
        return []
    if len(paths) > EXCLUSIONS_MAX:
        raise UnreadableExclusion(
            errno.E2BIG, f"{FOLDER} of the home has more than {EXCLUSIONS_MAX:,} files", str(home / FOLDER)
        )
    return paths


class ExcludingAdapter:
    """What every adapter has of its person: the home folder, what is kept out (nothing without a Crystal home), and how much of
    tool calls is recorded."""

    crystal_home: Path | None = None
    actions: ActionDetail = ActionDetail.OFF

    def __init__(self, home: Path) -> None:
        self._home = home

    def exclusions(self) -> Exclusions:
        """What its person keeps out, as it is now. Raises OSError."""
        home = self.crystal_home
        return Exclusions(self._home) if home is None else Exclusions.read(home, self._home)


def _read(path: Path) -> Exclusion:
    with open_regular(path) as file:
        data = file.read(FILE_BYTES_MAX)
    try:
        one = from_json(data, Exclusion)
    except UNDECODABLE:
        one = Exclusion()
    if not one.subject:
        raise UnreadableExclusion(
            errno.EINVAL, f"{FOLDER}/{path.name} of the home is no exclusion", str(path)
        )
    return one


def _is_ignored(cwd: str) -> bool:
    folder = Path(cwd)
    if not cwd or "\0" in cwd or not folder.is_absolute() or ".." in folder.parts:
        return False
    for above in (folder, *folder.parents):
        patterns = _patterns(above / IGNORE_NAME)
        if not patterns:  # of a thousand folders above each other few have such a file, and what follows grows with the depth
            continue
        names = folder.relative_to(above).parts
        entries = [_ANYTHING] if not names else ["/".join(names[: n + 1]) + "/" for n in range(len(names))]
        if any(patterns.verdict(entry) for entry in entries):
            return True
    return False


def _patterns(path: Path) -> IgnoreFile:
    """The patterns of an ignore file; none if there is no such file. Raises OSError: it is there and cannot be read."""
    try:
        with open_regular(path) as file:
            return IgnoreFile(file.read(FILE_BYTES_MAX).decode("utf-8", "replace").splitlines())
    except (FileNotFoundError, NotADirectoryError):
        return IgnoreFile(())
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL) or not os.path.lexists(path):
            return IgnoreFile(())
        raise
