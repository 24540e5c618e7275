"""A relay that shows junk in every slot of the mirror does not keep a device for ever that looks where the histories part."""

from typing import Any

import pytest

from crystal_mirror.history.closed_epochs import VOIDS_IN_A_ROW_MAX
from crystal_mirror.notices import Notice
from crystal_mirror.replication.rebuild import find_fork
from crystal_mirror.requests import Get, GetMany, Request
from crystal_mirror.round import sync_round
from tests.mirror.support import Objects
from tests.mirror.test_two_devices import Pair, capture


class JunkForEver(Objects):
    """A relay that shows its device log as it is, and junk in every slot of the mirror."""

    asked = 0

    def answer(self, request: Request) -> Any:
        match request:
            case Get(key) if "/mirror/" in key:
                self.asked += 1
                assert self.asked < 2 * VOIDS_IN_A_ROW_MAX, "it reads on and on"
                return b"junk"
            case GetMany(keys):
                return [self.answer(Get(key)) for key in keys]
            case _:
                return super().answer(request)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("need_seal", [False, True])
def test_endless_junk_is_no_history_to_go_over_to(need_seal: bool, ends: bool) -> None:
    pair = Pair()
    pair.node.accept(capture("one"))
    pair.sync()
    relay = JunkForEver(pair.store)
    assert relay.run(find_fork(pair.node, need_seal=need_seal, ends=ends)) is None


def test_a_round_over_endless_junk_ends_and_names_it() -> None:
    pair = Pair()
    pair.node.accept(capture("one"))
    pair.sync()
    before = pair.node.replica.digest()
    relay = JunkForEver(pair.store)
    report = relay.run(sync_round(pair.node))
    assert not report.rebuilt and not report.caught_up
    assert Notice.MIRROR_TAMPERED in pair.node.notices.current()
    assert pair.node.replica.digest() == before
