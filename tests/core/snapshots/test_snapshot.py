"""A snapshot's parts: the same rows everywhere, the same bytes where nothing changed, and nothing of what was forgotten."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_core.replica import Replica
from crystal_core.snapshots import export
from crystal_core.snapshots.parts import decode_part
from crystal_core.state.vectors import float16_vectors
from crystal_mirror.operations import FilePart, Operation, PutFile
from crystal_mirror.ports import SNAPSHOT_PART_BYTES_MAX
from crystal_mirror.types import StateDigest
from tests.core.builders import (
    DEVICE,
    OTHER_DEVICE,
    apply,
    capture,
    content_hash,
    forget,
    keyword_rowids,
    new_replica,
    no_vectors,
    one_window,
    origin,
    remember,
    windows,
)


def parts_of(replica: Replica) -> list[bytes]:
    with replica.export() as moment:
        assert moment.digest() == replica.digest()
        assert moment.position() == replica.position()
        return list(moment.parts())


def load(replica: Replica, *parts: bytes) -> None:
    for part in parts:
        with replica.transaction() as transaction:
            transaction.load(part)


def sums_of(replica: Replica, parts: list[bytes]) -> StateDigest:
    sums = replica.part_sums()
    for part in parts:
        sums.add(part)
    return sums.digest()


def small_parts(monkeypatch: pytest.MonkeyPatch, bits: int = 3) -> None:
    """Cuts as in a memory a thousand times as large."""
    monkeypatch.setattr(export, "PART_BYTES_MIN", 2048)
    monkeypatch.setattr(export, "_CUT_MASK", (1 << bits) - 1)


def put(path: str, text: str) -> PutFile:
    return PutFile(path, None, bool(len(text) % 2), 5, (FilePart(content_hash(text), len(text), 1),))


def varied(count: int = 60, first: int = 0) -> list[Operation]:
    return [
        operation
        for number in range(first, first + count)
        for operation in (
            capture(
                f"stone {number}",
                f"pebble {number} é",
                "said often",
                session=f"session {number // 3}",
                message=f"0190163d-8694-739b-aea5-9663{number:08d}" if number % 2 else f"message {number}",
                created_at=1_800_000_000_000 - number * 77_777,
            ),
            remember(f"memory {number // 2}", "fact" if number % 3 else "event"),
            put(f"folder/{number}", f"content {number}"),
        )
    ]


def everything() -> Replica:
    replica = new_replica()
    apply(replica, *varied(), forget("stone 3", "pebble 9 é"), vectors=windows)
    apply(replica, capture("from elsewhere"), device=OTHER_DEVICE)
    with replica.transaction() as transaction:
        transaction.mark_done(origin(900))
        transaction.condemn([bytes([number]) * 32 for number in range(40)])
    return replica


def test_a_replica_from_parts_is_the_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)
    replica = everything()
    parts = parts_of(replica)
    assert len(parts) > 8
    restored = new_replica()
    load(restored, *parts)
    assert restored.digest() == restored.recompute_digest() == replica.digest() == sums_of(restored, parts)
    assert restored.database.check() == []
    assert list(restored.files()) == list(replica.files())
    assert restored.acks() == replica.acks()
    assert restored.done(origin(900))
    assert parts_of(restored) == parts
    for query in (
        "SELECT text FROM chunks ORDER BY rowid",
        "SELECT session, message, part, created_at FROM occurrences ORDER BY rowid",
    ):
        assert restored.database.rows(query) == replica.database.rows(query)
    assert len(keyword_rowids(restored.database, "stone")) == 59
    apply(replica, *varied(3, 1000))
    apply(restored, *varied(3, 1000))
    assert restored.digest() == replica.digest()


def test_an_empty_memory_has_no_parts() -> None:
    replica = new_replica()
    assert parts_of(replica) == []
    assert sums_of(replica, []) == replica.digest()


def test_what_is_appended_changes_only_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)
    replica = new_replica()
    apply(replica, *(operation for operation in varied(80) if not isinstance(operation, PutFile)))
    before = [part for part in parts_of(replica) if decode_part(part).texts][:-1]
    apply(replica, capture("said often", "something new", session="the last"))
    assert len(before) > 5
    assert parts_of(replica)[: len(before)] == before


def test_a_forget_changes_only_the_parts_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)
    replica = new_replica()
    apply(replica, *varied(150))
    before = set(parts_of(replica))
    apply(replica, forget("stone 75"))
    assert len(set(parts_of(replica)) - before) <= 5
    assert len(before) > 15


def test_equal_rows_give_equal_digests_in_whatever_order_they_came() -> None:
    operations = [capture(f"stone {number}", session=f"{number}") for number in range(30)]
    digests: set[StateDigest] = set()
    for seed in range(3):
        Random(seed).shuffle(operations)
        replica = new_replica()
        apply(replica, *operations)
        digests.add(sums_of(replica, parts_of(replica)))
        digests.add(replica.digest())
    assert len(digests) == 1


def test_a_text_said_everywhere_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "SNAPSHOT_PART_BYTES_MAX", 20_000)
    replica = new_replica()
    apply(replica, *(capture("yes", session=f"{number:036d}") for number in range(1000)))
    parts = parts_of(replica)
    assert len(parts) > 5
    assert max(map(len, parts)) <= 20_000
    restored = new_replica()
    load(restored, *parts)
    assert restored.digest() == replica.digest()


def test_no_part_holds_what_was_forgotten_or_is_only_pending() -> None:
    replica = new_replica()
    apply(
        replica, capture("xylophones are loud", "kept"), capture("quixotic", session="2"), forget("quixotic")
    )
    replica.index_provisional(origin(50), capture("zeppelins are pending"))
    apply(replica, forget("xylophones are loud"))
    parts = parts_of(replica)
    assert parts
    assert not any(word in part for part in parts for word in (b"xylophone", b"quixotic", b"zeppelin"))
    assert any(b"kept" in part for part in parts)


def test_texts_of_two_sessions_never_share_a_frame() -> None:
    """The size of one session's text is not to tell what another one says."""
    secret = "the password is hunter2 and nothing else, nothing else, nothing else at all"
    sizes: set[int] = set()
    for guess in (
        "the password is hunter2 and nothing else, nothing",
        "qvw xkcdwprd zs jygtbr7 hmb fktqlvn wsxz, plmqrtv",
    ):
        replica = new_replica()
        apply(replica, capture(secret * 3, session="a"), vectors=no_vectors)
        apply(replica, capture(guess, session="b"), vectors=no_vectors)
        sizes.add(len(parts_of(replica)[0]))
    assert len(sizes) == 1


def test_a_snapshot_takes_hardly_more_than_texts_and_vectors() -> None:
    from bench.memories import captures, random_passages
    from crystal_crypto.compression import compress

    memory = random_passages(1500)
    vectors = dict(zip(memory.texts, memory.vectors.astype("<f2"), strict=True))
    replica = new_replica()
    apply(replica, *captures(memory.texts), vectors=lambda text: [vectors[text].tobytes()])
    sessions = ("".join(memory.texts[at : at + 200]).encode() for at in range(0, 1500, 200))
    content = sum(len(compress(text) or text) for text in sessions) + 1500 * 768
    assert sum(map(len, parts_of(replica))) <= 1.05 * content


def test_a_moment_stays_what_it_was_while_others_write(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    replica = new_replica(path)
    apply(replica, *varied())
    wanted, digest = parts_of(replica), replica.digest()
    with replica.export() as moment:
        parts = moment.parts()
        found = [next(parts)]
        apply(replica, *varied(20, 500), forget("stone 1"))
        with new_replica(path).transaction() as transaction:
            transaction.wipe()
        found += parts
        assert moment.digest() == digest
    assert found == wanted
    assert parts_of(replica) == []


LOADER = """
import os, signal, sys
from pathlib import Path
from tests.core.builders import new_replica
path, folder, lives = sys.argv[1:]
replica = new_replica(path)
for number, part in enumerate(sorted(Path(folder).iterdir())):
    with replica.transaction() as transaction:
        transaction.load(part.read_bytes())
        transaction.meta_set("next", b"%d" % (number + 1))
        if number == int(lives):
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_who_is_killed_while_loading_keeps_the_parts_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    replica = everything()
    parts = parts_of(replica)
    folder = tmp_path / "parts"
    folder.mkdir()
    for number, part in enumerate(parts):
        (folder / f"{number:04d}").write_bytes(part)
    path = tmp_path / "crystal.db"
    died = subprocess.run([sys.executable, "-c", LOADER, str(path), str(folder), "3"], check=False)
    assert died.returncode == -9
    restored = new_replica(path)
    assert restored.meta_get("next") == b"3"
    assert restored.digest() == restored.recompute_digest() == sums_of(restored, parts[:3])
    load(restored, *parts[3:])
    assert restored.digest() == replica.digest()
    assert restored.database.check() == []


def test_texts_that_stand_provisionally_are_taken_over() -> None:
    replica = everything()
    restored = new_replica()
    pending = capture("stone 7", "only here", session="pending")
    restored.index_provisional(origin(999), pending)
    load(restored, *parts_of(replica))
    assert restored.digest() == restored.recompute_digest() == replica.digest()
    assert len(keyword_rowids(restored.database, "here")) == 1
    assert restored.database.check() == []
    restored.drop_provisional(origin(999))
    assert restored.digest() == restored.recompute_digest() == replica.digest()
    assert keyword_rowids(restored.database, "here") == []


def test_the_text_index_is_merged_as_usual_again_with_the_next_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)
    replica = everything()
    restored = new_replica()
    usual = "SELECT k, v FROM chunks_fts_config WHERE k IN ('automerge', 'crisismerge') ORDER BY k"
    load(restored, *parts_of(replica))
    assert restored.database.rows(usual) == [("automerge", 0), ("crisismerge", 64)]
    apply(restored, capture("the next entry", session="next"))
    assert restored.database.rows(usual) == [("automerge", 8), ("crisismerge", 16)]
    assert len(keyword_rowids(restored.database, "stone")) == 59
    assert restored.database.check() == []


operations = st.lists(
    st.one_of(
        st.builds(
            capture,
            st.sampled_from("abcde"),
            st.text("xyzé", min_size=1, max_size=9),
            session=st.sampled_from(["s", "t", ""]),
            message=st.sampled_from(
                ["", "m", "0190163d-8694-739b-aea5-966300000001", "0190163D-8694-739b-aea5-966300000001"]
            ),
            created_at=st.integers(0, 2**53),
        ),
        st.builds(remember, st.sampled_from("abcdefg")),
        st.builds(forget, st.sampled_from("abc")),
        st.builds(put, st.sampled_from(["p", "p/q", "r"]), st.sampled_from("abc")),
    ),
    max_size=12,
)


@settings(max_examples=80, deadline=None)
@given(operations, st.sampled_from([windows, one_window, no_vectors]))
def test_every_history_comes_back_from_its_parts(history: list[Operation], vectors: "object") -> None:
    replica, restored = new_replica(), new_replica()
    apply(replica, *history, vectors=vectors, device=DEVICE)  # type: ignore[arg-type]
    parts = parts_of(replica)
    load(restored, *parts)
    assert restored.digest() == restored.recompute_digest() == replica.digest() == sums_of(replica, parts)
    assert parts_of(restored) == parts
    assert max(map(len, parts), default=0) <= SNAPSHOT_PART_BYTES_MAX
    for (content,) in replica.database.rows("SELECT id FROM chunks"):
        rowids = [
            one.database.value("SELECT rowid FROM chunks WHERE id = ?", (content,))
            for one in (replica, restored)
        ]
        assert float16_vectors(replica.database, rowids[0]) == float16_vectors(restored.database, rowids[1])
