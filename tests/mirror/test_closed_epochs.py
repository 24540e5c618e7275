"""The epoch of a revoked Core is read to its end, and a relay that shows none does not keep its reader for ever."""

from crystal_mirror.history.closed_epochs import VOIDS_IN_A_ROW_MAX, needs_its_end, read_to_the_end
from crystal_mirror.requests import GetMany, Request
from crystal_mirror.types import START
from tests.mirror.support import Objects
from tests.mirror.test_reoffers import Forked


class JunkForEver(Objects):
    """A relay that shows junk in every slot that it is asked for."""

    asked = 0

    def answer(self, request: Request) -> object:
        assert isinstance(request, GetMany)
        self.asked += len(request.keys)
        assert self.asked < 2 * VOIDS_IN_A_ROW_MAX, "it reads on and on"
        return [b"junk"] * len(request.keys)


def test_an_epoch_of_a_revoked_core_is_read_to_its_seal() -> None:
    forked = Forked()
    assert needs_its_end(forked.heir, 1) and not needs_its_end(forked.heir, 2)
    closed = forked.pair.store.run(read_to_the_end(forked.heir, START))
    assert closed is not None
    kept = forked.heir.replica.entries(1, 0, 100)
    assert [(entry.epoch, entry.sequence) for entry in kept] == sorted(closed.hashes)


def test_a_relay_that_shows_junk_for_ever_does_not_keep_a_reader() -> None:
    forked = Forked()
    assert JunkForEver().run(read_to_the_end(forked.heir, START)) is None
