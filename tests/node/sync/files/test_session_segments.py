"""Superseded parts of copies of sessions go without a question and without a trace; others are files like any other."""

from crystal_node.derive.sessions.layout import Head
from crystal_node.sync.files.artefacts import is_superseded_segment
from tests.node.derive.sessions.support import head_of, lines, write
from tests.support.desks import Desk, settle

PARTS = [lines(number, number + 1) for number in range(40)]


def _written(core: Desk) -> Head:
    return write(core.root, head_of("a", PARTS), PARTS)


def test_superseded_parts_go_without_a_question_and_leave_nothing_in_the_trash(
    core: Desk, laptop: Desk
) -> None:
    head = _written(core)
    settle(core, laptop)
    folder = head.place.folder(core.root)
    old = sorted(folder.glob("*.zst"))
    assert len(old) == len(PARTS)
    whole = [b"".join(PARTS)]
    write(core.root, head_of("a", whole), whole)
    for path in old:
        path.unlink()
    settle(core, laptop)
    assert core.tree() == laptop.tree()
    assert len(list(head.place.folder(laptop.root).glob("*.zst"))) == 1
    assert not list((laptop.root / ".trash").rglob("*.zst"))


def test_parts_that_are_still_named_wait_for_a_person(core: Desk, laptop: Desk) -> None:
    head = _written(core)
    settle(core, laptop)
    for path in head.place.folder(core.root).glob("*.zst"):
        path.unlink()
    settle(core, laptop)
    assert len(list(head.place.folder(laptop.root).glob("*.zst"))) == len(PARTS)


def test_only_a_whole_head_says_what_is_superseded(core: Desk) -> None:
    head = _written(core)
    path = head.place.folder(core.root)
    named = (path / head.main.segments[0].file_name).relative_to(core.root).as_posix()
    other = named.replace("/0-", "/1-")
    assert not is_superseded_segment(core.root, named)
    assert is_superseded_segment(core.root, other)
    assert not is_superseded_segment(core.root, "notes/0-1-aaaaaaaa.zst")
    (path / "head.json").write_bytes((path / "head.json").read_bytes()[:-5])
    assert not is_superseded_segment(core.root, other)
    (path / "head.json").unlink()
    assert not is_superseded_segment(core.root, other)
