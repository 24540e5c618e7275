"""Writer of files made from the memory, below the home and never through a link.

A file is written to ``state/making/`` (emptied at the next start), synced, and moved into place. A file with the same content
is left alone, and so is one that a person changed, unless it must go.
"""

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from crystal_mirror.files.ports import FileTrouble
from crystal_node.base.home import DIRECTORY_MODE, FILE_MODE, Home
from crystal_node.sync.files.artefacts import (
    ABSENT,
    CHANGED,
    ArtefactForm,
    ArtefactLook,
    ArtefactPlace,
    ArtefactState,
    look_at,
    sealed,
)
from crystal_node.sync.files.folders import READ, folder_of, prune, troubles

_WRITE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ArtefactOutcome(StrEnum):
    """Outcome for one file."""

    SAME = "same"
    WRITTEN = "written"
    REPLACED = "replaced"
    """A person's changes were replaced, too."""
    KEPT = "kept"
    """A person changed the file, and it stays."""


class ArtefactWriter:
    """Writes below one home. One writer at a time (``state/works.lock``)."""

    def __init__(self, home: Home) -> None:
        self._root = home.root
        self._scratch = home.state / "making"

    def open(self) -> None:
        """Makes the scratch folder and empties it. Raises OSError."""
        self._scratch.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        for left in self._scratch.iterdir():
            left.unlink()

    def look(self, path: str) -> ArtefactLook:
        """What is at the path. Raises FileTrouble if a link or a file is on the way there."""
        with folder_of(self._root, path) as found:
            if found is None:
                return ABSENT
            folder, name = found
            try:
                descriptor = os.open(name, READ, dir_fd=folder)
            except FileNotFoundError:
                return ABSENT
            except OSError:  # a link, or not ours to read
                return CHANGED
            try:
                with troubles():
                    return look_at(descriptor)
            finally:
                os.close(descriptor)

    def is_changed(self, path: str) -> bool:
        """Whether the path holds anything but a file as it was made. Reads the file."""
        try:
            return self.look(path).state is ArtefactState.CHANGED
        except FileTrouble:
            return True

    def is_there(self, path: str) -> bool:
        """Whether anything is at the path, or in the way to it. Reads nothing."""
        try:
            with folder_of(self._root, path) as found:
                if found is None:
                    return False
                os.stat(found[1], dir_fd=found[0], follow_symlinks=False)
        except FileNotFoundError:
            return False
        except (FileTrouble, OSError):
            return True
        return True

    def write(
        self, place: ArtefactPlace, content: Iterable[bytes], *, whatever_is_there: bool = False
    ) -> ArtefactOutcome:
        """Writes a file. ``whatever_is_there``: also over a person's changes.

        Raises:
            FileTrouble: it cannot be written. NoRoom: the disk is full.
        """
        before = self.look(place.path)
        if before.state is ArtefactState.CHANGED and not whatever_is_there:
            return ArtefactOutcome.KEPT
        draft = self._scratch / secrets.token_hex(8)
        try:
            with troubles():
                after = self._draft(draft, content, place.form)
            if before == after:
                return ArtefactOutcome.SAME
            with folder_of(self._root, place.path, create=True) as found, troubles():
                assert found is not None, "the folder was made"
                os.rename(draft, found[1], dst_dir_fd=found[0])
                os.fsync(found[0])
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()
        return ArtefactOutcome.REPLACED if before.state is ArtefactState.CHANGED else ArtefactOutcome.WRITTEN

    def remove(self, path: str, *, whatever_is_there: bool = False) -> ArtefactOutcome:
        """Removes a file that is as it was made, and folders that become empty. Raises FileTrouble."""
        before = self.look(path)
        if before.state is ArtefactState.ABSENT:
            return ArtefactOutcome.SAME
        if before.state is ArtefactState.CHANGED and not whatever_is_there:
            return ArtefactOutcome.KEPT
        with folder_of(self._root, path) as found:
            if found is not None:
                with troubles(), suppress(FileNotFoundError):
                    os.unlink(found[1], dir_fd=found[0])
                    os.fsync(found[0])
        with suppress(FileTrouble):
            prune(self._root, path)
        return ArtefactOutcome.REPLACED if before.state is ArtefactState.CHANGED else ArtefactOutcome.WRITTEN

    def _draft(self, draft: Path, content: Iterable[bytes], form: ArtefactForm) -> ArtefactLook:
        descriptor = os.open(draft, _WRITE, FILE_MODE)
        with os.fdopen(descriptor, "w+b") as file:
            file.writelines(sealed(content, form))
            file.flush()
            os.fsync(file.fileno())
            return look_at(file.fileno())
