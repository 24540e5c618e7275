"""Plausible mistakes with files, to be put back on purpose. `mixed_mistakes` says which plot shows each."""

# pyright: reportPrivateUsage=false
# Mistakes are made in the middle of things.

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from crystal_core.database import Database
from crystal_core.state import files
from crystal_mirror.files import transfers as filemoves
from crystal_mirror.files.shared import FilesRound
from crystal_mirror.files.tree import FileAction, decide
from crystal_mirror.operations import DropFile, PutFile
from crystal_mirror.requests import Flow
from crystal_mirror.types import Origin
from tests.sim.tree import SimDisk


def the_second_version_of_a_file_is_dropped() -> AbstractContextManager[Any]:
    """Who comes first wins, and that is all."""
    honest = files.put

    def put(database: Database, secret: Any, digests: Any, origin: Origin, operation: PutFile) -> None:
        current = files.file(database, operation.path)
        if current is None or current.gone or current.version == operation.base:
            honest(database, secret, digests, origin, operation)

    return patch.object(files, "put", put)


def a_deletion_beats_an_edit() -> AbstractContextManager[Any]:
    """A tombstone is put whatever version stands there."""
    honest = files.drop

    def drop(database: Database, digests: Any, origin: Origin, operation: DropFile) -> None:
        current = files.file(database, operation.path)
        if current is not None:
            honest(database, digests, origin, DropFile(operation.path, current.version))

    return patch.object(files, "drop", drop)


@contextmanager
def a_file_is_overwritten_though_it_changed() -> Generator[None]:
    """What a look showed some time ago is taken for what stands there."""

    def holds(_self: FilesRound, *_what: object, **_how: object) -> bool:
        return True

    with patch.object(FilesRound, "still_holds", holds):
        yield


def the_trash_is_skipped() -> AbstractContextManager[Any]:
    """What sync removes is gone."""

    def nowhere(_self: SimDisk, _path: str, _data: bytes) -> None:
        return None

    return patch.object(SimDisk, "to_trash", nowhere)


def what_is_not_there_is_removed() -> AbstractContextManager[Any]:
    """A file that the tree does not have is taken for one that somebody has deleted."""
    honest = decide

    def hasty(local: Any, remote: Any, agreed: Any, **named: Any) -> FileAction:
        return FileAction.REMOVE if local and remote is None else honest(local, remote, agreed, **named)

    return patch("crystal_mirror.files.round.decide", hasty)


def an_absent_file_is_a_deletion() -> AbstractContextManager[Any]:
    """What is not on this disk is deleted everywhere, whatever became of it since it was agreed."""
    honest = filemoves._drop

    def drop(this: FilesRound, paths: Iterator[str]) -> None:
        absent = [
            row.path
            for row in this.member.replica.files()
            if not row.gone and this.disk.look(row.path) is None
        ]
        for path in absent:
            row = this.member.replica.file(path)
            if row is not None and path not in this.skipped:
                this.member.accept(DropFile(path, row.version))
        honest(this, paths)

    return patch.object(filemoves, "_drop", drop)


def files_are_offered_without_their_parts() -> AbstractContextManager[Any]:
    """The parts are left for later."""

    def nothing(_this: object, _path: str, *_rest: Any) -> Flow[None]:
        yield from ()

    sending = filemoves._Sending  # pyright: ignore[reportPrivateUsage]
    return patch.object(sending, "put_parts", nothing)
