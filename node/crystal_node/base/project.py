"""The project of a conversation, by names that mean the same on every machine.

The working folder relative to the person's home, and the repository's remote without protocol, user and credentials
(``host/owner/name``). Found by reading ``.git``; no process is started, and a missing folder is no error.
"""

import re
from base64 import b32encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import NamedTuple
from urllib.parse import urlsplit

CONFIG_BYTES_MAX = 256 * 1024
"""How much of a repository's configuration is read."""
FOLDER_CHARS_MAX = 4096
NAME_CHARS_MAX = 500
OUTSIDE = "…"
"""Begins the name of a folder outside the home."""
OUTSIDE_PARTS = 2
"""So many last parts of a folder outside the home are kept, after ``…/`` and a digest."""
OUTSIDE_DIGEST_CHARS = 12
"""Of five bits each."""

_SCP_LIKE = re.compile(r"(?:[^@/\s]{1,200}@)?([A-Za-z0-9.-]{1,253}):(?!//)([^\s]{1,400})")
_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*(.*)')
_SETTING = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*=\s*(.*)")


class Project(NamedTuple):
    """A project's folder and repository; "" if unknown. ``root``: the name of the folder that the repository is in."""

    project: str
    repository: str
    root: str = ""


class ProjectFinder:
    """Finds projects by working folder and caches them: use one per pass, since remotes change."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._found: dict[str, Project] = {}

    def of(self, cwd: str) -> Project:
        """The project of a working folder as a transcript names it."""
        place = self._found.get(cwd)
        if place is None:
            place = self._found[cwd] = self._place(cwd)
        return place

    def _place(self, cwd: str) -> Project:
        name = project_name(cwd, self._home)
        found = _repository(cwd)
        root = "" if found is None else project_name(str(found[0]), self._home)
        # A repository that the home itself is in is not what its folders are about.
        return (
            Project(name, found[1], root)
            if found is not None and root not in ("", ".")
            else Project(name, "")
        )


def project_name(cwd: str, home: Path) -> str:
    """The folder relative to ``home`` with forward slashes, "." for the home itself, "" if unknown.

    A path outside the home means little on another machine and may reveal too much: only its last two parts, after ``…/`` and a
    digest of the whole, so that no two folders have one name. A path within that is too long for a name is named so as well.
    """
    if not cwd or len(cwd) > FOLDER_CHARS_MAX or "\0" in cwd:
        return ""
    windows = "\\" in cwd and "/" not in cwd
    path: PurePath = PureWindowsPath(cwd) if windows else PurePosixPath(cwd)
    for base in (home, home.resolve()):
        if ".." not in path.parts and path.is_relative_to(type(path)(str(base))):
            name = path.relative_to(type(path)(str(base))).as_posix()
            if len(name) <= NAME_CHARS_MAX:
                return name
    parts = [part for part in path.parts if part != path.anchor][-OUTSIDE_PARTS:]
    digest = b32encode(sha256(path.as_posix().encode("utf-8", "surrogatepass")).digest()).decode().lower()
    return "/".join([OUTSIDE, digest[:OUTSIDE_DIGEST_CHARS], *parts])[:NAME_CHARS_MAX] if parts else ""


def repository_name(cwd: str) -> str:
    """The normalised remote of the repository around ``cwd``; "" if none is found."""
    found = _repository(cwd)
    return "" if found is None else found[1]


def _repository(cwd: str) -> tuple[Path, str] | None:
    """The folder of the repository around ``cwd``, and its normalised remote; None if there is none. A worktree's is the one
    that it was made of, if that one knows of it."""
    if not cwd or len(cwd) > FOLDER_CHARS_MAX or "\0" in cwd or not Path(cwd).is_absolute():
        return None
    try:
        root, config = _config_of(Path(cwd)) or (None, None)
        remote = _remote(config) if config is not None and config.is_file() else ""
        return (root, remote) if root is not None and remote else None
    except (OSError, ValueError, RuntimeError):  # a pointer with a NUL, or links in a circle
        return None


def normalised_remote(remote: str) -> str:
    """``host/owner/name`` of a remote in any of Git's forms; "" for local paths. Credentials never survive.

    >>> normalised_remote("https://user:secret@example.org/owner/name.git")
    'example.org/owner/name'
    >>> normalised_remote("git@example.org:owner/name.git")
    'example.org/owner/name'
    """
    remote = remote.strip()
    if "://" in remote:
        try:
            parts = urlsplit(remote)
            host, path = parts.hostname or "", parts.path
        except ValueError:
            return ""
    elif match := _SCP_LIKE.fullmatch(remote):
        host, path = match[1].lower(), match[2]
    else:
        return ""
    path = path.strip("/").removesuffix(".git").strip("/")
    if not path or len(host) < 2:  # one letter before a colon is a drive of Windows
        return ""
    return f"{host}/{path}"[:NAME_CHARS_MAX]


def _config_of(folder: Path) -> tuple[Path, Path] | None:
    """The folder of the repository, and its configuration."""
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_dir():
            return place, git / "config"
        if git.is_file():
            return _config_elsewhere(place, git)
    return None


def _config_elsewhere(place: Path, pointer: Path) -> tuple[Path, Path] | None:
    """The same of a worktree or submodule: its ``.git`` is a file that names a folder, whose ``commondir`` names the
    repository's. Anybody can write such a file: a worktree is of that repository only if that one has its folder, and this
    names it back."""
    first = next(_lines(pointer), "")
    if not first.startswith("gitdir:"):
        return None
    folder = place / first.removeprefix("gitdir:").strip()
    common = folder / "commondir"
    root = place
    if common.is_file():
        back = folder / next(_lines(folder / "gitdir"), "") if (folder / "gitdir").is_file() else None
        own, folder = folder.resolve(), (folder / next(_lines(common), "")).resolve()
        if back is not None and back.resolve() == pointer.resolve() and own.parent == folder / "worktrees":
            root = folder.parent if folder.name == ".git" else folder
    return root, folder / "config"


def _remote(config: Path) -> str:
    """The remote ``origin``, else the first by name that is not local."""
    remotes: dict[str, str] = {}
    section = name = ""
    for line in _lines(config):
        rest = line
        if heading := _SECTION.match(line):
            section, name, rest = heading[1].lower(), heading[2] or "", heading[3]
        setting = _SETTING.match(rest)
        if section == "remote" and setting and setting[1].lower() == "url":
            remotes.setdefault(name, normalised_remote(_value(setting[2])))
    return remotes.get("origin") or next((remotes[name] for name in sorted(remotes) if remotes[name]), "")


def _value(written: str) -> str:
    """A value of Git's configuration without quotes and comment, as far as remotes need it."""
    if written.startswith('"'):
        return written[1:].partition('"')[0]
    return re.split(r"\s[#;]", written, maxsplit=1)[0].strip()


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        text = file.read(CONFIG_BYTES_MAX).decode("utf-8", "replace")
    yield from (line.strip() for line in text.splitlines())
