"""The document is enough to read a vault: a second reader comes from the root and the relay's objects to the same memory."""

from hashlib import sha256

from crystal_mirror.claim import claim
from crystal_mirror.operations import Capture, Forget, Piece, Remember
from tests.mirror.independent_vault import read_vault
from tests.mirror.test_two_devices import Pair, capture


def test_a_second_reader_comes_to_the_same_state_and_digests() -> None:
    pair = Pair()
    pieces = tuple(
        Piece(f"piece {n}", ("user", "assistant")[n % 2], 1_760_000_000_000 + n * 977, message, n % 3)
        for n, message in enumerate(["m1", "m2", "m2", "", "m1"])
    )
    pair.node.accept(Capture("cc-mini", "s", "src/x", "host/a/b", "claude-code", pieces))
    uuids = tuple(Piece(f"from {n}", "user", 5 - n, f"00000000-0000-4000-8000-{n:012d}", 0) for n in range(3))
    pair.core.accept(Capture("other", "s", "", "", "claude-code", uuids))
    pair.sync()
    pair.node.accept(Remember("piece 1", "fact", "cc-mini", 7))
    pair.core.accept(Remember("piece 1", "preference", "other", 8))
    pair.core.accept(Forget((pair.core.secret.forget_hash(sha256(b"piece 2").digest()),)))
    pair.node.accept(capture("piece 2", session="again"))
    pair.sync()
    pair.core.accept(Remember("piece 2", "event", "other", 9))
    pair.sync()
    pair.store.run(claim(pair.node, pair.root))
    pair.node.accept(capture("after the move"))
    for _ in range(2):
        pair.sync(pair.core, pair.node)
    state, stated = read_vault(pair.root.to_bytes(), dict(pair.store))
    assert len(stated) >= 4
    assert state.digest() == pair.core.replica.digest().to_bytes() == pair.node.replica.digest().to_bytes()
    counts = {table.name: table.count for table in pair.core.replica.digest().tables}
    assert (len(state.chunks), len(state.memories)) == (counts["chunks"], counts["memories"])
    assert state.memories[sha256(b"piece 1").digest()][1] == "preference"
