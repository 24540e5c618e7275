"""Which project a conversation was about, in words that mean the same on every machine.

Two names: the working folder relative to the person's home, and the repository's remote without protocol, user and
credentials (``host/owner/name``). Found by reading files; no process is started, nothing outside ``.git`` is opened.
"""

import re
from configparser import ConfigParser
from configparser import Error as ConfigError
from functools import lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from urllib.parse import urlsplit

CONFIG_BYTES_MAX = 256 * 1024
NAME_CHARS_MAX = 500
OUTSIDE_PARTS = 2
"""Of a folder outside the home only its last parts are kept, behind ``…/``."""

_SCP_LIKE = re.compile(r"(?:[^@/\s]{1,100}@)?([A-Za-z0-9.-]{1,253}):(?!//)([^\s]{1,400})")


def project_name(cwd: str, home: Path) -> str:
    """The folder relative to ``home`` with forward slashes, "." for the home itself, "" if unknown."""
    if not cwd or len(cwd) > 4096 or "\0" in cwd:
        return ""
    windows = "\\" in cwd and "/" not in cwd
    path: PurePosixPath | PureWindowsPath = PureWindowsPath(cwd) if windows else PurePosixPath(cwd)
    base = type(path)(str(home))
    try:
        name = path.relative_to(base).as_posix()
    except ValueError:
        name = "…/" + "/".join(path.parts[1:][-OUTSIDE_PARTS:]) if len(path.parts) > 1 else ""
    return name[:NAME_CHARS_MAX]


@lru_cache(maxsize=1024)
def repository_name(cwd: str) -> str:
    """The normalised remote of the repository around ``cwd``, or "" if there is none to be found."""
    if not cwd or "\0" in cwd or not Path(cwd).is_absolute():
        return ""
    try:
        config = _config_of(Path(cwd))
        remote = _remote(config) if config else ""
    except OSError:
        return ""
    return normalised_remote(remote)


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
    if not host or not path or len(host) == 1:
        return ""
    return f"{host}/{path}"[:NAME_CHARS_MAX]


def _config_of(folder: Path) -> Path | None:
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_dir():
            return git / "config"
        if git.is_file():
            return _worktree_config(place, git)
    return None


def _worktree_config(place: Path, pointer: Path) -> Path | None:
    """A worktree's ``.git`` is a file that names its folder, whose ``commondir`` names the repository's."""
    text = _bounded(pointer)
    if not text.startswith("gitdir:"):
        return None
    folder = place / text.removeprefix("gitdir:").strip()
    common = folder / "commondir"
    if common.is_file():
        folder = folder / _bounded(common).strip()
    return folder / "config"


def _remote(config: Path) -> str:
    if not config.is_file():
        return ""
    parser = ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    try:
        parser.read_string(_bounded(config))
    except ConfigError:
        return ""
    remotes = {
        name: section.get("url") or "" for name, section in parser.items() if name.startswith('remote "')
    }
    return remotes.get('remote "origin"') or next((url for _, url in sorted(remotes.items()) if url), "")


def _bounded(path: Path) -> str:
    with path.open("rb") as file:
        text = file.read(CONFIG_BYTES_MAX).decode("utf-8", "replace")
    return "\n".join(line.strip() for line in text.splitlines())
