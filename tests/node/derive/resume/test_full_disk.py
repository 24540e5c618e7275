"""Another program fills the disk while a session is put back: nothing is lost, and the next call completes it."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from crystal_node.base.errors import LocalStorage
from crystal_node.derive.resume.files import SPARE_BYTES, Relation, compare, write
from tests.support.session_copies import written_long_ago
from tests.support.small_disk import empty, fill, mounted_disk

LINES = [b'{"n":%d,"text":"%s"}\n' % (number, b"words " * 20_000) for number in range(60)]
"""7 MB."""
OWN = LINES[:5]


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    with mounted_disk(tmp_path / "small", (SPARE_BYTES + 24 * 1024 * 1024) // 1024) as folder:
        yield folder


def lines() -> list[bytes]:
    return LINES


def filled_after(disk: Path, count: int) -> Callable[[], Iterator[bytes]]:
    """The lines; after so many of them something else has filled the disk."""

    def read() -> Iterator[bytes]:
        for number, line in enumerate(LINES):
            if number == count:
                fill(disk, 0)
            yield line

    return read


@pytest.mark.parametrize("own", [[], OWN], ids=["absent", "behind"])
def test_what_the_tool_has_stays_and_the_next_call_completes_it(
    disk: Path, tmp_path: Path, own: list[bytes]
) -> None:
    path = disk / "tool" / "session.jsonl"
    if own:
        path.parent.mkdir()
        path.write_bytes(b"".join(own))
        written_long_ago(path)
    found = compare(path, lines)
    assert found.relation is (Relation.BEHIND if own else Relation.ABSENT)
    with pytest.raises(LocalStorage, match="the disk is full") as raised:
        write(path, filled_after(disk, 30), found, tmp_path / "aside")
    assert "Free some space, then run this again" in raised.value.hint
    assert [each.name for each in path.parent.iterdir()] == [path.name] * bool(own)
    assert b"".join(own) == (path.read_bytes() if own else b"")
    with pytest.raises(LocalStorage, match="free; the session takes") as raised:
        write(path, lines, compare(path, lines), tmp_path / "aside")
    assert "Free some space" in raised.value.hint
    empty(disk)
    if own:
        written_long_ago(path)
    write(path, lines, compare(path, lines), tmp_path / "aside")
    assert path.read_bytes() == b"".join(LINES)
    assert compare(path, lines).relation is Relation.EQUAL
