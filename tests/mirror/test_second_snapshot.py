"""The document is enough to read a vault whose log was let go of: from the newest snapshot on, files and decrees included."""

from hashlib import sha256

from crystal_mirror.entries.control_state import newest_snapshot, published_floor
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import (
    Amend,
    Capture,
    ChangeFiles,
    DropFile,
    FilePart,
    Forget,
    LinkProjects,
    Piece,
    PutDocument,
    PutFile,
    PutSource,
    Remember,
)
from crystal_mirror.retention.pruning import prune_now
from crystal_mirror.snapshots.blobs import put_blob
from crystal_mirror.snapshots.creation import make_snapshot
from tests.mirror.household import MODEL, Household, same
from tests.mirror.independent_vault import read_vault
from tests.mirror.support import reembed

NOW = 1_800_000_000_000


def _pieces(count: int, name: str) -> tuple[Piece, ...]:
    messages = ("m1", "m1", "", "00000000-0000-4000-8000-00000000000a", "m1x", "m1xy")
    return tuple(
        Piece(
            f"{name} {n} " + "words of a session " * (n % 7),
            "user",
            1_760_000_000_000 + 13 * n,
            messages[n % 6],
            n,
            ("", "model-a", "model-b")[n % 3],
        )
        for n in range(count)
    )


def _put(home: Household, member: Member, path: str, content: bytes, *, first_turn: int = 0) -> None:
    ref = home.store.run(put_blob(member, content, first_turn, compress=True))
    row = member.replica.file(path)
    base = row.version if row is not None and not row.gone else None
    member.accept(
        PutFile(path, base, path.endswith(".sh"), 5, (FilePart(ref.content, ref.length, ref.named),))
    )


def read_in(member: Member) -> None:
    """A source with a document, and memories that changed."""

    def hidden(text: str) -> bytes:
        return member.secret.forget_hash(sha256(text.encode()).digest())

    texts = ("spoken 0 ", "words of a document ", *(f"paragraph {number} " * 9 for number in range(30)))
    member.accept(PutSource("notes", "Documents", ("*.md", "*.txt"), ("old/*",), 6))
    member.accept(
        PutDocument("notes", "a.md", bytes(32), 7, "markdown", 0, len(texts), texts, ("A", "") * 16)
    )
    member.accept(Remember("the new way", "fact", "agent", 8, 80))
    member.accept(
        Remember(
            "the newer way", "fact", "agent", 9, supersedes=(hidden("the new way"), hidden("kept in mind"))
        )
    )
    member.accept(Amend(hidden("the newer way"), "event", 50, "retired", "person", 10))
    member.accept(Remember("the way of a project", "fact", "agent", 11, scope="host/a/b"))
    member.accept(Remember("the way of all", "fact", "agent", 12, scope="src/x"))
    member.accept(Amend(hidden("the way of all"), None, None, None, "person", 13, ""))
    member.accept(LinkProjects(("src/x", ""), ("", "host/a/b"), True, 14))


def _house() -> Household:
    home = Household()
    home.laptop = home.add("laptop")
    home.core.accept(Capture("agent", "session", "p", "r", "s", _pieces(40, "spoken")))
    home.laptop.accept(Capture("other", "session", "", "", "s", _pieces(9, "answered")))
    home.core.accept(Remember("spoken 1 words of a session ", "fact", "agent", 3))
    home.core.accept(Remember("kept in mind", "fact", "agent", 4))
    read_in(home.core)
    home.sync(home.core, home.laptop, home.core)
    _put(home, home.core, "notes/a.md", b"first version " * 40)
    _put(home, home.laptop, "run.sh", b"#!/bin/sh\n" * 30)
    home.sync(home.laptop, home.core, home.laptop)
    _put(home, home.core, "notes/a.md", b"second version " * 40)
    _put(home, home.laptop, "notes/a.md", b"at the same time " * 40)
    row = home.laptop.replica.file("run.sh")
    assert row is not None
    home.laptop.accept(
        ChangeFiles(
            (
                DropFile("run.sh", row.version),
                PutFile("notes/a.md", None, False, 5, ()),
                PutFile("b", None, False, 5, ()),
            )
        )
    )
    home.laptop.accept(Forget((home.core.secret.forget_hash(sha256(b"kept in mind").digest()),)))
    home.sync(home.laptop, home.core, home.laptop)
    return home


def _agrees(home: Household, *, from_snapshot: bool) -> int:
    state, stated = read_vault(home.root.to_bytes(), dict(home.store), from_snapshot=from_snapshot)
    assert state.digest() == home.core.replica.digest().to_bytes()
    counts = {table.name: table.count for table in home.core.replica.digest().tables}
    assert (len(state.files), len(state.condemned)) == (counts["files"], counts["condemned"])
    return len(stated)


def test_a_second_reader_reads_a_log_with_files_and_decrees_from_its_first_slot() -> None:
    home = _house()
    assert home.store.run(make_snapshot(home.core)) is not None
    home.sync(home.core)
    whole = _agrees(home, from_snapshot=False)
    assert _agrees(home, from_snapshot=True) < whole
    assert any("conflict" in row.path for row in home.core.replica.files())


def test_a_second_reader_reads_a_vault_from_the_newest_snapshot_on() -> None:
    home = _house()
    for number in range(2):
        assert home.store.run(make_snapshot(home.core)) is not None
        home.sync(home.core)
        home.core.accept(Capture("agent", "session", "p", "r", "s", _pieces(45 + number, "spoken")))
        home.sync(home.core)
    home.revoke(home.add("lost"))
    home.store.run(prune_now(home.core, NOW))
    newest = newest_snapshot(home.core.replica)
    assert newest is not None
    assert published_floor(home.core.replica) == (newest.epoch, newest.sequence)
    assert not any(key.endswith("/mirror/0000000001/0000000000000000") for key in home.store)
    _put(home, home.core, "notes/a.md", b"first version " * 40, first_turn=3)
    home.store.run(reembed(home.core, "other/2"))
    home.sync(home.core, home.laptop, home.core, home.laptop)
    assert same(home.core, home.laptop)
    assert _agrees(home, from_snapshot=True) >= 3
    assert home.core.replica.meta_get("model") != MODEL.encode()
