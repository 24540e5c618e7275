"""A disk that is full while a copy of a session is written: said, nothing lost, and the copy goes on once there is room."""

import json
import random
from collections.abc import Generator
from pathlib import Path

import apsw
import pytest

from crystal_node.base.errors import ExitCode, describe
from crystal_node.base.file_rules import TEMPORARY_PREFIX
from tests.node.derive.sessions.machines import Machine
from tests.node.derive.sessions.support import SESSION
from tests.support.small_disk import empty, fill, mounted_disk


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    with mounted_disk(tmp_path / "small", 4096) as folder:
        yield folder


def turns(first: int, end: int) -> bytes:
    """Lines that hardly compress."""
    noise = random.Random(first)
    return b"".join(
        json.dumps(
            {
                "type": "user",
                "uuid": f"u-{number}",
                "sessionId": SESSION,
                "timestamp": "2026-11-22T13:00:00Z",
                "cwd": "/home/ada/work",
                "message": {
                    "role": "user",
                    "content": " ".join(f"w{noise.randrange(10**6)}" for _ in range(300)),
                },
            }
        ).encode()
        + b"\n"
        for number in range(first, end)
    )


@pytest.mark.parametrize("left", [0, 4096, 20_000, 60_000, 100_000])
def test_a_copy_goes_on_where_it_was_once_there_is_room(disk: Path, left: int) -> None:
    one = Machine(disk, "a")
    one.says(turns(0, 20))
    one.copy()
    before = one.tip()
    one.says(turns(20, 120))
    fill(disk, left)
    with pytest.raises((OSError, apsw.Error)) as raised:
        one.copy()
    told = describe(raised.value)
    assert told.exit_code == ExitCode.STORAGE
    assert "space" in told.hint
    assert one.transcript.read_bytes().startswith(one.tip())
    assert one.tip().startswith(before)
    assert not list(one.root.rglob(f"{TEMPORARY_PREFIX}*")), (
        "nothing half written takes the room that is left"
    )
    empty(disk)
    one.copy()
    assert one.streams() == [turns(0, 20) + turns(20, 120)], "one stream, no fork"
    assert one.copy() == 0
