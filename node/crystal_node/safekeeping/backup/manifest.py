"""What is in a backup: ``manifest.json``, and ``SHA256SUMS`` for checks without Crystal (``sha256sum -c SHA256SUMS``).

    crystal-1a2b3c4d-20260105T090000Z/
        manifest.json     whose home it is, when it was made, and each file with its size and hash
        SHA256SUMS        the same hashes, and the manifest's own
        home/             the files, as they are in a home

A manifest is foreign data until it was checked: a path that leaves the home, or that no home has, is refused.
"""

import os
import re
import stat
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from crystal_node.base.decoding import from_json
from crystal_node.base.errors import LocalStorage
from crystal_node.safekeeping.file_copy import CopiedFile

MANIFEST_NAME = "manifest.json"
SUMS_NAME = "SHA256SUMS"
HOME_NAME = "home"
VERSION = 1
MANIFEST_BYTES_MAX = 256 * 1024 * 1024
"""Enough for a million files."""

_Id = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_UNSAFE = re.compile(r"[\x00-\x1f\\]")


class BackupDamaged(LocalStorage):
    """A backup differs from what was written; the message names the file."""

    hint = "Use another backup (`crystal backup list`), and look after the disk that this one is on."


class Keys(StrEnum):
    """Whether a backup has the device's keys: not, as plain files, or as files that a passphrase protects."""

    NONE = "none"
    PLAIN = "plain"
    SEALED = "sealed"


class LeftOut(msgspec.Struct, frozen=True):
    """A path of the home that is not in the backup, and why."""

    path: str
    why: str


class BackupManifest(msgspec.Struct, frozen=True):
    """``manifest.json``. ``number`` counts the backups of a device in one folder, independent of its clock; ``unsent``:
    operations that were not durable when it was made; ``digest``: of the memory's rows."""

    format: Literal["crystal-backup"]
    version: Annotated[int, msgspec.Meta(ge=1)]
    vault: _Id
    device: _Id
    number: _Count
    made_ms: _Count
    program: str
    keys: Keys
    epoch: _Count
    sequence: _Count
    digest: str
    unsent: _Count
    items: tuple[CopiedFile, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(item.size for item in self.items)


def encoded(manifest: BackupManifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def sums(manifest: BackupManifest, data: bytes) -> bytes:
    """``SHA256SUMS`` for a manifest and its bytes."""
    lines = [f"{sha256(data).hexdigest()}  {MANIFEST_NAME}\n"]
    lines += [f"{item.sha256}  {HOME_NAME}/{item.path}\n" for item in manifest.items]
    return "".join(lines).encode("utf-8")


def read_manifest(folder: Path) -> BackupManifest:
    """Reads and checks the manifest of a backup.

    Raises:
        LocalStorage: there is none, or it is of a later version.
        BackupDamaged: it or ``SHA256SUMS`` has changed, or names a path that no home has.
    """
    path = folder / MANIFEST_NAME
    data, listed = _read(path), _read(folder / SUMS_NAME)
    try:
        manifest = from_json(data, BackupManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BackupDamaged(f"{path} is damaged") from error
    if manifest.version > VERSION:
        raise LocalStorage(f"{folder} was made by a later version of Crystal", hint="Update Crystal.")
    if listed != sums(manifest, data):
        own = f"{sha256(data).hexdigest()}  {MANIFEST_NAME}\n".encode()
        # Both hold all hashes: the manifest's own hash tells which one has changed.
        damaged = folder / SUMS_NAME if listed.startswith(own) else path
        raise BackupDamaged(f"{damaged} is damaged: it is not what the other one says")
    paths = [item.path for item in manifest.items]
    unsafe = next((each for each in paths if not is_safe(each)), None)
    if unsafe is not None or len(set(paths)) != len(paths):
        raise BackupDamaged(f"{path} names a path that is in no home")
    return manifest


def is_safe(path: str) -> bool:
    """Whether a path stays below the folder that it is joined to."""
    return bool(path) and not _UNSAFE.search(path) and all(p not in ("", ".", "..") for p in path.split("/"))


def _read(path: Path) -> bytes:
    if path.is_symlink():
        raise BackupDamaged(f"{path} is a link: a backup holds none")
    try:
        with open(path, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BackupDamaged(f"{path} is no file")
            data = file.read(MANIFEST_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise LocalStorage(
            f"{path.parent} is no backup: {path.name} is not there",
            hint="`crystal backup list --to FOLDER` shows the backups in a folder.",
        ) from error
    if len(data) > MANIFEST_BYTES_MAX:
        raise BackupDamaged(f"{path} is too large to be what was written")
    return data


def _open(path: str, flags: int) -> int:
    """Follows no link, and does not block on a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
