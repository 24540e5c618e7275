"""What SQLite calls an I/O error on a disk without room is said to be a full disk, and only there."""

from pathlib import Path

import apsw
import pytest

from crystal_core import sqlite_file
from crystal_core.database import translated
from crystal_core.errors import VaultFull
from crystal_core.sqlite_file import immediate
from crystal_node.base.errors import describe


@pytest.mark.parametrize("full", [False, True])
def test_an_io_error_is_a_full_disk_only_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, full: bool
) -> None:
    if full:
        monkeypatch.setattr(sqlite_file, "ROOM_BYTES_MIN", 2**62)
    path = tmp_path / "some.db"
    error = apsw.IOError("disk I/O error")
    assert isinstance(translated(error, str(path)), VaultFull) is full
    database = apsw.Connection(str(path))
    with pytest.raises(apsw.FullError if full else apsw.IOError) as raised, immediate(database):
        raise error
    assert ("the disk is full" in describe(raised.value).message) is full
    assert describe(raised.value).exit_code == 8
