"""A file that another process of the Core orders while blobs are being condemned keeps its parts."""

import pytest

from crystal_mirror.errors import TransactionStale
from crystal_mirror.operations import FilePart, PutFile
from crystal_mirror.retention import pruning
from crystal_mirror.retention.pruning import all_blobs, condemn_others, prune_now
from crystal_mirror.snapshots.blobs import BlobRef, get_blob, put_blob
from tests.mirror.household import Household, same
from tests.mirror.test_snapshots import NOW, remember, snapshot


@pytest.mark.parametrize("after", range(1, 8))
def test_a_file_that_is_ordered_between_two_decrees_keeps_its_parts(
    after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "CONDEMNED_MAX", 1)
    home = Household()
    laptop = home.add("laptop")
    remember(home.core, "something")
    home.sync(home.core, laptop)
    snapshot(home)
    home.sync(laptop)
    refs = [home.store.run(put_blob(laptop, f"part {number}".encode() * 99)) for number in range(3)]
    names = home.store.run(all_blobs(home.core))
    flow, reply = condemn_others(home.core, names), None
    steps = 0
    try:
        while True:
            request = flow.send(reply)
            reply = home.store.answer(request)
            steps += 1
            if steps == after:
                for number, ref in enumerate(refs):
                    part = FilePart(ref.content, ref.length, ref.named)
                    laptop.accept(PutFile(f"file {number}", None, False, 1, (part,)))
                home.sync(laptop, home.core)
    except (StopIteration, TransactionStale):
        pass
    for _ in range(2):
        home.store.run(prune_now(home.core, NOW))
    home.sync(home.core, laptop)
    assert same(home.core, laptop)
    for row in home.core.replica.files():
        for part in row.parts:
            assert home.store.run(get_blob(laptop, BlobRef.of(part)))
