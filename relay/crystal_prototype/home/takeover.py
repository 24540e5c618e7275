"""``crystal takeover``: converts the home of the published prototype, in place, to one in which Crystal can be set up.

::

    look --the prototype's?--> copy the whole folder beside it --every file compared--> take the prototype's own files out
           no: refuses                killed: starts over with another copy                  killed: continues
           something still writes there: refuses, and says what

Agents' files (``agents/`` and all others) stay where they are. The prototype's settings, database and state are removed;
they are in the copy, from which `crystal migrate-db` imports messages and memories once the vault is set up.
"""

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from msgspec import Struct, json

from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.errors import HomeBusy, LocalStorage, UsageError
from crystal_node.base.home import sync_directory

OWN = (
    "config.json",
    "memory/crystal.db",
    "memory/crystal.db-wal",
    "memory/crystal.db-shm",
    "memory/lance",
    "state",
    "bin",
)
"""The prototype's own files, relative to its home."""
HOOK_BYTES_MAX = 4 * 1024 * 1024
_BLOCK = 1024 * 1024
_MARKS = ("memory-crystal", "cc-hook.js", "crystal-capture.sh")
"""Strings by which its hooks and its timetable are recognized."""

Progress = Callable[[str], None]


class _PrototypeConfig(Struct, frozen=True):
    """Its ``config.json``: a version as a text, and the agents."""

    version: str
    agents: list[str]


@dataclass(frozen=True, slots=True)
class Prototype:
    """A home of the prototype. ``database``: None if it never recorded. ``writers``: what still writes into the home."""

    root: Path
    agents: tuple[str, ...]
    database: Path | None
    bytes: int
    writers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The copy of the home, and the database in it to migrate from."""

    copy: Path
    database: Path | None
    files: int
    bytes: int


def look(root: Path, claude_folder: Path) -> Prototype | None:
    """The prototype in that home; None if it is not a home of the prototype. Changes nothing. Raises LocalStorage."""
    try:
        config = json.decode((root / "config.json").read_bytes(), type=_PrototypeConfig)
    except (OSError, *UNDECODABLE):
        return None
    database = root / "memory" / "crystal.db"
    try:
        total = sum(path.lstat().st_size for path in _files(root))
    except OSError as error:
        raise LocalStorage(f"{root} cannot be read: {error.strerror or error}") from error
    return Prototype(
        root,
        tuple(config.agents),
        database if database.is_file() else None,
        total,
        tuple(_writers(claude_folder)),
    )


def take_over(
    root: Path, claude_folder: Path, now: datetime, *, even_so: bool, progress: Progress = lambda _: None
) -> TakenOver:
    """Copies the home, compares the copy, and removes the prototype's own files.

    Raises:
        UsageError: it is no home of the prototype's.
        HomeBusy: something of the prototype still writes there.
        LocalStorage: it cannot be read, copied, or is not the same in the copy. Nothing was taken out.
    """
    found = look(root, claude_folder)
    if found is None:
        raise UsageError(
            f"{root} is no home of the prototype's",
            hint="There is nothing to take over: `crystal up` sets this machine up.",
        )
    if found.writers and not even_so:
        raise HomeBusy(
            f"the prototype still writes there: {'; '.join(found.writers)}",
            hint="Take these out first: two programs would write one database. --even-so goes on without.",
        )
    folder = root / "memory"
    if folder.is_symlink():  # the copy would have the link alone, and what is behind it would be taken out
        raise LocalStorage(
            f"{folder} is a link to {folder.readlink()}",
            hint="Put the folder itself in its place, then run this again. Nothing was changed.",
        )
    for left in _beside(root, drafts=True):  # by one that was killed while it copied
        shutil.rmtree(left, ignore_errors=True)
    target = root.with_name(f"{root.name}-prototype-{now:%Y%m%d-%H%M%S}")
    draft = root.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        files = _copied(root, draft, progress)
        draft.rename(target)
        sync_directory(target.parent)
    except OSError as error:
        raise LocalStorage(
            f"the home cannot be copied: {error.strerror or error}: {error.filename}"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    _take_out(root)
    # If an earlier takeover was killed while it removed the database, that takeover's copy has it.
    copies = [copy / "memory" / "crystal.db" for copy in (target, *_beside(root))]
    database = next((path for path in copies if path.is_file()), None)
    return TakenOver(target, database, files, found.bytes)


def _beside(root: Path, *, drafts: bool = False) -> list[Path]:
    """The existing copies of the home, the newest first; with ``drafts`` the unfinished ones."""
    name = re.escape(root.name) + r"-prototype-\d{8}-\d{6}"
    wanted = re.compile(rf"\.{name}\.[0-9a-f]{{8}}" if drafts else name)
    return sorted((path for path in root.parent.iterdir() if wanted.fullmatch(path.name)), reverse=True)


def _files(root: Path) -> list[Path]:
    """All files and links below; links are not followed."""
    return sorted(path for path in root.rglob("*") if path.is_symlink() or not path.is_dir())


def _copied(root: Path, draft: Path, progress: Progress) -> int:
    """Copies the tree, each file synced to disk and compared with what was read. Returns the number of files."""
    draft.mkdir(mode=0o700)
    count = 0
    for path in sorted(root.rglob("*")):
        target = draft / path.relative_to(root)
        if path.is_symlink():
            target.symlink_to(path.readlink())
        elif path.is_dir():
            target.mkdir(mode=0o700, exist_ok=True)
            continue
        elif path.is_file():
            _copy(path, target)
        else:
            continue  # a socket or a pipe holds nothing
        count += 1
        if count % 500 == 0:
            progress(f"{count:,} files copied")
    return count


def _copy(path: Path, target: Path) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as reading, target.open("xb") as writing:
        while block := reading.read(_BLOCK):
            digest.update(block)
            writing.write(block)
        writing.flush()
        os.fsync(writing.fileno())
    target.chmod(0o600)
    for file in (target, path):
        again = hashlib.sha256()
        with file.open("rb") as reading:
            while block := reading.read(_BLOCK):
                again.update(block)
        if again.digest() != digest.digest():
            raise LocalStorage(
                f"{file} changed while it was copied",
                hint="Something still writes there: stop it, then run this again.",
            )


def _take_out(root: Path) -> None:
    """Removes the prototype's files. Idempotent; ``config.json``, which marks the home as the prototype's, is last."""
    for name in (*OWN[1:], OWN[0]):
        path = root / name
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise LocalStorage(
                f"{path} cannot be removed: {error.strerror or error}",
                hint="Everything is in the copy. Make it removable, then run this again.",
            ) from error
    sync_directory(root)


def _writers(claude_folder: Path) -> list[str]:
    """Hooks of the prototype in Claude Code's settings."""
    found: list[str] = []
    for name in ("settings.json", "settings.local.json"):
        path = claude_folder / name
        try:
            with path.open("rb") as file:
                text = file.read(HOOK_BYTES_MAX).decode("utf-8", "replace")
        except OSError:
            continue
        if any(mark in text for mark in _MARKS):
            found.append(f"a hook in {path}")
    return found
