"""Embedding anew: explicit, whoever is killed goes on, every Node follows, and words find everything meanwhile."""

from collections.abc import Callable, Generator
from typing import Any

import pytest

from crystal_core.replica import Replica
from crystal_mirror.entries.control_state import META_MODEL
from crystal_mirror.errors import Unready
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.operations import Remember
from crystal_mirror.requests import Embed, Request
from crystal_mirror.round import sync_round
from crystal_mirror.snapshots.creation import make_snapshot
from tests.mirror.household import MODEL, Household, has, same
from tests.mirror.support import reembed

OTHER = "other/2"
DIMENSIONS = 64
TEXTS = 300


class Stopped(Exception):
    """Somebody killed the process."""


def _run(
    home: Household, flow: Generator[Request, Any, Any], stop: Callable[[Request], bool] = lambda _: False
) -> Any:
    """With vectors of the other model, which are of another size."""
    reply: Any = None
    while True:
        try:
            request = flow.send(reply)
        except StopIteration as end:
            return end.value
        if stop(request):
            flow.close()
            raise Stopped
        if isinstance(request, Embed):
            reply = [[bytes([0, 60]) * DIMENSIONS] for _ in request.texts]
        else:
            reply = home.store.answer(request)


def _sync(home: Household, *members: Member) -> None:
    for member in members:
        _run(home, sync_round(member, OTHER))


@pytest.fixture
def home() -> Household:
    home = Household()
    home.laptop = home.add("laptop")
    for number in range(TEXTS):
        home.core.accept(Remember(f"fact number {number}", "fact", "agent", 1))
    home.sync(home.core, home.laptop)
    return home


def _without(member: Member) -> int:
    return len(member.replica.without_vectors(10 * TEXTS))


def _vectors(member: Member) -> set[int]:
    assert isinstance(member.replica, Replica)
    return {
        int(count) for (count,) in member.replica.database.rows("SELECT length(embedding) / 2 FROM vectors")
    }


def test_until_it_is_asked_for_new_texts_have_no_vectors_of_the_new_model_and_are_found_by_words(
    home: Household,
) -> None:
    home.core.accept(Remember("after the update", "fact", "agent", 2))
    _sync(home, home.core, home.laptop)
    assert Notice.MODEL_DIFFERS in home.core.notices.current()
    assert (_without(home.core), _without(home.laptop)) == (1, 1)
    assert has(home.laptop, "after the update")


def test_whoever_is_killed_goes_on_and_every_node_ends_with_the_same_vectors(home: Household) -> None:
    embeds = 0

    def second(request: Request) -> bool:
        nonlocal embeds
        embeds += isinstance(request, Embed)
        return embeds == 2

    with pytest.raises(Stopped):
        _run(home, reembed(home.core, OTHER), second)
    left = _without(home.core)
    assert 0 < left < TEXTS
    _sync(home, home.core, home.laptop)
    assert _without(home.laptop) == left
    assert has(home.laptop, "fact number 7")
    assert _run(home, reembed(home.core, OTHER)) == left
    _sync(home, home.core, home.laptop)
    assert _without(home.core) == _without(home.laptop) == 0
    assert same(home.core, home.laptop)
    for member in (home.core, home.laptop):
        assert member.replica.meta_get(META_MODEL) == OTHER.encode()
        assert _vectors(member) == {DIMENSIONS}
    assert Notice.MODEL_DIFFERS not in home.core.notices.current()


def test_it_is_done_once_and_a_new_device_comes_in_by_a_snapshot_of_it(home: Household) -> None:
    assert _run(home, reembed(home.core, OTHER)) == TEXTS
    assert _run(home, reembed(home.core, OTHER)) == 0
    _sync(home, home.core)
    assert home.store.run(make_snapshot(home.core)) is not None
    late = home.add("late")
    _sync(home, home.core, late, home.laptop)
    assert same(home.core, home.laptop, late)
    assert _vectors(late) == {DIMENSIONS}


def test_a_node_embeds_nothing_anew(home: Household) -> None:
    with pytest.raises(Unready):
        _run(home, reembed(home.laptop, OTHER))
    assert home.laptop.replica.meta_get(META_MODEL) == MODEL.encode()


def test_texts_whose_vectors_cannot_be_made_now_are_committed_and_get_them_later(home: Household) -> None:
    home.laptop.accept(Remember("while the provider was away", "fact", "agent", 3))
    home.sync(home.laptop)
    reply: Any = None
    flow = sync_round(home.core, MODEL)
    asked: list[Embed] = []
    while True:
        try:
            request = flow.send(reply)
        except StopIteration:
            break
        if isinstance(request, Embed):
            asked.append(request)
            reply = None
        else:
            reply = home.store.answer(request)
    assert [request.needed for request in asked] == [False]
    home.sync(home.laptop)
    assert has(home.laptop, "while the provider was away")
    assert (_without(home.core), _without(home.laptop)) == (1, 1)
    assert same(home.core, home.laptop)
    assert home.store.run(reembed(home.core, MODEL)) == 1
    home.sync(home.core, home.laptop)
    assert (_without(home.core), _without(home.laptop)) == (0, 0)
    assert same(home.core, home.laptop)


def test_a_core_that_embeds_nothing_asks_for_nothing_and_complains_of_nothing(home: Household) -> None:
    home.core.accept(Remember("without any model", "fact", "agent", 4))
    home.store.run(sync_round(home.core, ""))
    assert _without(home.core) == 1
    assert Notice.MODEL_DIFFERS not in home.core.notices.current()
