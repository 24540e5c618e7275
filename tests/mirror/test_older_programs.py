"""Devices whose program is older than an operation: they wait before it, say so, and lose nothing once they are updated."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any
from unittest.mock import patch

import msgspec
import pytest

from crystal_core.memories import memories
from crystal_core.projects import links
from crystal_core.replica import Replica
from crystal_mirror import operations
from crystal_mirror.entries import batches
from crystal_mirror.entries.control_state import newest_snapshot
from crystal_mirror.membership.administration import renew_generation
from crystal_mirror.notices import Notice
from crystal_mirror.operations import (
    Capture,
    ChangeFiles,
    FilePart,
    LinkProjects,
    Operation,
    Piece,
    PutFile,
    Remember,
)
from crystal_mirror.snapshots.creation import make_snapshot
from tests.mirror.test_two_devices import Pair, capture, equal

LINK = LinkProjects(("work/app", ""), ("", "host/me/library"), True, 9)
SCOPED = Remember("of a project", "fact", "agent", 8, scope="work/app")
NAMED = PutFile("plan.md", None, False, 5, (FilePart(bytes(32), 1, bytes(range(32))),))

ANSWERED = Capture("a", "s", "", "", "codex", (Piece("said", "assistant", 1, "m", 0, "gpt-7"),))

SEVERAL = ChangeFiles((PutFile("plan.md", None, False, 5, ()), PutFile("to-do.md", None, False, 5, ())))


class _OldRemember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="r"):
    text: str
    category: str
    agent: str
    created_at: int
    confidence: int = 100
    supersedes: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=16)] = ()


class _OldPut(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="p"):
    path: str
    base: tuple[bytes, bytes, int] | None
    executable: bool
    modified_at: int
    parts: tuple[tuple[bytes, int, int], ...]


class _OldCapture(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="c"):
    agent: str
    session: str
    project: str
    repository: str
    source: str
    texts: tuple[str, ...]
    roles: tuple[str, ...]
    times: tuple[int, ...]
    messages: bytes | tuple[str, ...]
    parts: tuple[int, ...]


_OLD: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_OldCapture | _OldRemember | _OldPut)


@contextmanager
def older_program() -> Generator[None]:
    """What is read meanwhile is read by a program of before there were models, scopes, links, names of blobs and changes of
    several files in one operation."""

    class Reader:
        def decode(self, data: bytes) -> object:
            _OLD.decode(data)
            return honest.decode(data)

    class HeadReader:
        def decode(self, data: bytes) -> object:
            announced = msgspec.msgpack.decode(data)[6]
            if announced is not None and not isinstance(announced[6], int):
                raise msgspec.ValidationError("Expected `int`, got `bytes`")
            return honest_head.decode(data)

    honest = operations._decoder  # pyright: ignore[reportPrivateUsage]
    honest_head = batches._decoder  # pyright: ignore[reportPrivateUsage]
    with patch.object(operations, "_decoder", Reader()), patch.object(batches, "_decoder", HeadReader()):
        yield


@pytest.mark.parametrize("operation", [SCOPED, LINK, NAMED, SEVERAL, ANSWERED])
def test_an_older_reader_waits_before_what_it_does_not_know(operation: Operation) -> None:
    pair = Pair()
    pair.node.accept(capture("before"))
    pair.sync()
    pair.core.accept(operation)
    pair.core.accept(capture("after"))
    pair.sync(pair.core)
    held = pair.node.replica.position()
    with older_program():
        pair.sync(pair.node)
        pair.sync(pair.node)
        assert Notice.MIRROR_UNREADABLE in pair.node.notices.current()
    assert pair.node.replica.position() == held
    assert not equal(pair.core, pair.node)
    pair.sync(pair.node)
    assert equal(pair.core, pair.node)


@pytest.mark.parametrize("operation", [SCOPED, LINK, NAMED, SEVERAL, ANSWERED])
def test_an_older_core_holds_the_stream_and_takes_it_once_it_is_updated(operation: Operation) -> None:
    pair = Pair()
    pair.sync()
    pair.node.accept(operation)
    pair.node.accept(capture("after"))
    pair.sync(pair.node)
    with older_program():
        pair.sync(pair.core)
        assert Notice.STREAM_UNREADABLE in pair.core.notices.current()
    assert pair.core.replica.digest().to_bytes() == pair.node.replica.digest().to_bytes()
    pair.sync()
    assert equal(pair.core, pair.node)
    assert isinstance(pair.core.replica, Replica)
    database = pair.core.replica.database
    assert [each.scope for each in memories(database)] == ["work/app"][: operation is SCOPED]
    assert len(links(database)) == (operation is LINK)
    assert [row.path for row in pair.core.replica.files()] == (
        ["plan.md", "to-do.md"] if operation is SEVERAL else ["plan.md"][: operation is NAMED]
    )


def test_older_programs_read_all_that_states_no_scope() -> None:
    pair = Pair()
    with older_program():
        pair.node.accept(Remember("of before", "fact", "agent", 8))
        pair.sync()
    assert equal(pair.core, pair.node)


def test_an_older_reader_waits_before_a_snapshot_of_a_later_generation() -> None:
    pair = Pair()
    pair.core.accept(capture("before"))
    pair.sync()
    pair.store.run(renew_generation(pair.core, now_ms=5))
    pair.sync()
    pair.store.run(make_snapshot(pair.core))
    pair.sync(pair.core)
    pair.core.accept(capture("after"))
    pair.sync(pair.core)
    with older_program():
        pair.sync(pair.node)
        assert Notice.MIRROR_UNREADABLE in pair.node.notices.current()
    assert not equal(pair.core, pair.node)
    pair.sync(pair.node)
    assert equal(pair.core, pair.node)
    assert newest_snapshot(pair.node.replica) == newest_snapshot(pair.core.replica)


def test_older_programs_read_snapshots_and_files_of_a_vault_in_its_first_generation() -> None:
    pair = Pair()
    pair.sync()
    with older_program():
        pair.node.accept(PutFile("plan.md", None, False, 5, (FilePart(bytes(32), 1, 0),)))
        pair.sync()
        pair.store.run(make_snapshot(pair.core))
        pair.sync()
    assert equal(pair.core, pair.node)
    assert newest_snapshot(pair.node.replica) == newest_snapshot(pair.core.replica) is not None
