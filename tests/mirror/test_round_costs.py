"""What a round asks of the store: whoever runs a relay pays for each request, for each device, every five minutes."""

from collections import Counter

from crystal_mirror.membership.cursors import About
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Get, GetMany, GetPart, List, Poll, Put, PutNew, Request
from crystal_mirror.round import sync_round
from tests.mirror.support import Objects, seeded
from tests.mirror.test_two_devices import MODEL, Pair, capture


def asked(
    pair: Pair, member: Member, *, tell_position: bool = True, about: About | None = None
) -> Counter[str]:
    """The requests of one round, by kind; reads count each object."""
    counted: Counter[str] = Counter()
    store = pair.store

    class Counting(Objects):
        def answer(self, request: Request) -> object:
            match request:
                case Get() | GetPart():
                    counted["get"] += 1
                case GetMany(keys):
                    counted["get"] += len(keys)
                case List():
                    counted["list"] += 1
                case Poll():
                    counted["poll"] += 1
                case Put() | PutNew():
                    counted["put"] += 1
                case _:
                    counted["other"] += 1
            return store.answer(request)

    Counting().run(sync_round(member, MODEL, tell_position=tell_position, about=about))
    return counted


def resting() -> Pair:
    """A vault with something in it, after the rounds in which devices look at more."""
    pair = Pair()
    pair.node.accept(capture("the tide gauge has four sensors"))
    for _ in range(3):
        pair.sync()
    assert pair.core.rounds > 1 and pair.node.rounds > 1
    return pair


def test_a_node_that_finds_nothing_to_do_reads_five_objects() -> None:
    pair = resting()
    assert asked(pair, pair.node) == {"get": 5}


def test_a_core_that_finds_nothing_to_do_reads_five_objects_and_lists_once() -> None:
    pair = resting()
    assert asked(pair, pair.core) == {"get": 5, "list": 1}


def test_a_core_lists_once_however_many_streams_it_knows() -> None:
    pair = resting()
    for number in range(5):
        node = pair.device(f"node {number}")
        for text in ("the first remark", "the second", "the third"):
            node.accept(capture(f"{text} of {number}"))
        pair.sync(node, pair.core)
    assert asked(pair, pair.core) == {"get": 5, "list": 1}


def test_an_entry_of_the_mirror_costs_a_node_two_reads_more_than_none() -> None:
    pair = resting()
    pair.core.accept(capture("a sixth sensor was put in"))
    pair.sync(pair.core)
    assert asked(pair, pair.node, tell_position=False) == {"get": 7}


def test_a_position_that_need_not_be_told_yet_costs_no_write_and_is_told_in_the_round_that_does() -> None:
    pair = resting()
    pair.node.accept(capture("a fifth sensor was put in"))
    pair.sync(pair.node, pair.core)
    before = pair.store[pair.node.keys.cursor(pair.node.device_id)]
    assert asked(pair, pair.node, tell_position=False)["put"] == 0
    assert pair.store[pair.node.keys.cursor(pair.node.device_id)] == before
    assert asked(pair, pair.node) == {"get": 5, "put": 1}
    assert pair.store[pair.node.keys.cursor(pair.node.device_id)] != before


def test_a_process_that_follows_another_asks_once_for_all_cursors() -> None:
    pair = resting()
    for number in range(5):
        node = pair.device(f"node {number}")
        pair.sync(node, pair.core)
    about = About(1_760_000_000_000)
    for member in (pair.core, pair.node):
        reads = []
        for _ in range(4):
            again = Member.open(
                member.identity, member.vault, member.journal, member.replica, seeded("process"), member.root
            )
            reads.append(asked(pair, again, about=about))
        assert reads[0]["get"] > reads[-1]["get"], "the first is a full check"
        assert reads[-1] == {"get": 5, "poll": 1} | ({"list": 1} if member is pair.core else {})


def test_a_process_checks_all_again_when_the_device_log_has_grown() -> None:
    pair = resting()
    about = About(1_760_000_000_000)
    member = pair.node

    def process() -> Counter[str]:
        again = Member.open(
            member.identity, member.vault, member.journal, member.replica, seeded("process"), member.root
        )
        return asked(pair, again, about=about)

    rest = [process() for _ in range(4)][-1]
    pair.device("late")
    assert process()["get"] > rest["get"] + 2
    assert process()["get"] <= rest["get"] + 2
