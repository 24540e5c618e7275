"""What a session's head tells people: project, branch, uncommitted files, model, title, last words. Read forgivingly."""

import re
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from crystal_node.base.settings import child_environment
from crystal_node.capture.json_values import as_object, as_text
from crystal_node.derive.sessions.layout import CHANGED_FILES_MAX

GIT_BYTES_MAX = 256 * 1024
GIT_SECONDS_MAX = 2.0
"""Of one question to git; a working folder that takes longer has no known changes."""
GIT_PAUSE_SECONDS = 5.0
"""A working folder is asked about at most this often, and for at most a twentieth of the time."""
_GIT_SHARE = 20
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never")
_ALONE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
"""Writes nothing, and reaches no network: what is missing in a partial clone is not fetched, whatever its own configuration
allows."""
_UNCOMMITTED = (
    ("diff-index", "--cached", "--name-only", "-z", "--no-renames", "--ignore-submodules=all", "HEAD"),
    ("diff-files", "--name-only", "-z", "--ignore-submodules=all"),
    (
        "ls-files",
        "--others",
        "--exclude-standard",
        "--directory",
        "--no-empty-directory",
        "--full-name",
        "-z",
        ":/",
    ),
)
"""Changed in the index; in the working folder; and new."""
_FILTERS = ("config", "--includes", "--name-only", "-z", "--get-regexp", r"^filter\..*\.(clean|process)$")
_NO_SUCH = 1
"""What `git config` ends with where nothing matches."""
_FILTER = re.compile(r"filter\.([\w.-]{1,100})\.(?:clean|process)", re.ASCII | re.IGNORECASE)
_FILTERS_MAX = 100
NAME_CHARS_MAX = 200
_FOLDERS_MAX = 1000
TITLE_CHARS_MAX = 120
WORDS_CHARS_MAX = 240


class Facts(NamedTuple):
    """Facts of one record; "" where it says nothing."""

    cwd: str = ""
    branch: str = ""
    commit: str = ""
    tool_version: str = ""
    model: str = ""
    session: str = ""
    title: str = ""


def facts_of(record: dict[str, Any]) -> Facts:
    """What a record of any of the tools tells about its session."""
    payload, message = as_object(record.get("payload")), as_object(record.get("message"))
    git = as_object(payload.get("git"))
    return Facts(
        cwd=_first(record, payload, name="cwd", chars=4096),
        branch=_first(record, git, name="gitBranch") or _first(git, name="branch"),
        commit=_first(git, name="commit_hash"),
        tool_version=_first(record, name="version") or _first(payload, name="cli_version"),
        model=_first(message, record, payload, name="model"),
        session=_first(record, name="sessionId"),
        title=_first(record, name="customTitle")
        or _first(record, name="aiTitle")
        or _first(record, name="summary"),
    )


def git_place(cwd: str) -> tuple[str, str]:
    """The branch and commit that a working folder has checked out, by reading its files; "" if unknown. Starts no process."""
    git = git_folder(cwd)
    if git is None:
        return "", ""
    try:
        if git.is_file():
            git = git.parent / _text(git).removeprefix("gitdir:").strip()
        head = _text(git / "HEAD")
        if not head.startswith("ref: refs/heads/"):
            return "", head if _is_hash(head) else ""
        name = head.removeprefix("ref: ")
        common = git / _text(git / "commondir") if (git / "commondir").is_file() else git
        return name.removeprefix("refs/heads/")[:NAME_CHARS_MAX], _commit(common, name)
    except (OSError, ValueError, RuntimeError):
        return "", ""


class UncommittedFiles:
    """Names of files with uncommitted changes, as git tells them, asked seldom. For one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next: dict[str, float] = {}

    def of(self, cwd: str) -> tuple[str, ...] | None:
        """At most ``CHANGED_FILES_MAX``, relative to the repository; None if this is not to be known now."""
        began = self._clock()
        if began < self._next.get(cwd, began):
            return None
        if len(self._next) >= _FOLDERS_MAX:
            self._next.clear()
        found = uncommitted_files(cwd)
        ended = self._clock()
        self._next[cwd] = ended + max(GIT_PAUSE_SECONDS, (ended - began) * _GIT_SHARE)
        return found


def uncommitted_files(cwd: str) -> tuple[str, ...] | None:
    """Names of files with uncommitted changes, relative to the repository, at most ``CHANGED_FILES_MAX``; None if ``cwd`` is in
    no repository, or git is not there or does not answer in time. Runs no hook, no filter and no file system monitor."""
    if git_folder(cwd) is None:
        return None
    configured = _asked(cwd, _FILTERS, _NO_SUCH)
    filters = None if configured is None else {_FILTER.fullmatch(each) for each in configured}
    if filters is None or len(filters) > _FILTERS_MAX:
        return None
    # git gives a file that may have changed to the programs that the repository's configuration names.
    off: list[str] = []
    for each in filters:
        if each is None:  # a name that could not be turned off on a command line
            return None
        off += [
            option
            for setting in ("clean=", "process=", "required=false")
            for option in ("-c", f"filter.{each[1]}.{setting}")
        ]
    names: dict[str, None] = {}
    for question in _UNCOMMITTED:
        found = _asked(cwd, (*off, *question))
        if found is None:
            return None
        names |= dict.fromkeys(found)
    return tuple(short(name, NAME_CHARS_MAX) for name in list(names)[:CHANGED_FILES_MAX])


def git_folder(cwd: str) -> Path | None:
    """The ``.git`` of the repository that a folder is in; None if it is in none."""
    folder = Path(cwd)
    if not cwd or "\0" in cwd or not folder.is_absolute():
        return None
    try:
        return next((each / ".git" for each in (folder, *folder.parents) if (each / ".git").exists()), None)
    except (OSError, ValueError, RuntimeError):
        return None


def _asked(cwd: str, question: tuple[str, ...], nothing: int = 0) -> list[str] | None:
    """The names that git answers. ``nothing``: the exit code with which it says that there is none."""
    try:
        process = subprocess.Popen(
            [*_GIT, *question],
            cwd=cwd,
            env=child_environment(_ALONE),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None
    with process:
        assert process.stdout is not None, "it was asked for"
        stop = threading.Timer(GIT_SECONDS_MAX, process.kill)
        stop.start()
        try:
            data = process.stdout.read(GIT_BYTES_MAX + 1)
            if len(data) > GIT_BYTES_MAX:
                process.kill()
            code = process.wait()
        finally:
            stop.cancel()
            process.kill()
    whole, _, rest = data.rpartition(b"\0")
    cut = len(data) > GIT_BYTES_MAX
    if (data and not whole) or (not cut and (rest or code not in (0, nothing))):
        return None
    return [name.decode("utf-8", "replace") for name in whole.split(b"\0") if name]


def short(text: str, chars: int) -> str:
    """One line of a text, bounded."""
    return " ".join(text.split())[:chars]


def _commit(git: Path, name: str) -> str:
    loose = git / name
    if ".." not in Path(name).parts and loose.is_file():
        found = _text(loose)
        return found if _is_hash(found) else ""
    packed = git / "packed-refs"
    if packed.is_file():
        for line in _text(packed).splitlines():
            found, _, named = line.partition(" ")
            if named == name and _is_hash(found):
                return found
    return ""


def _is_hash(text: str) -> bool:
    return len(text) in (40, 64) and all(char in "0123456789abcdef" for char in text)


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(GIT_BYTES_MAX).decode("utf-8", "replace").strip()


def _first(*places: dict[str, Any], name: str, chars: int = NAME_CHARS_MAX) -> str:
    for place in places:
        found = as_text(place.get(name))
        if found:
            return found[:chars]
    return ""
