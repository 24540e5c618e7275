"""What a session's head tells people: project, branch, model, title, last words. Read from its records, forgivingly."""

from pathlib import Path
from typing import Any, NamedTuple

from crystal_node.capture.json_values import as_object, as_text

GIT_BYTES_MAX = 256 * 1024
NAME_CHARS_MAX = 200
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
    folder = Path(cwd)
    if not cwd or "\0" in cwd or not folder.is_absolute():
        return "", ""
    try:
        git = next((each / ".git" for each in (folder, *folder.parents) if (each / ".git").exists()), None)
        if git is None:
            return "", ""
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
