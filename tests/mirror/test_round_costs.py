"""What a round asks of the store: whoever runs a relay pays for each request, for each device, every five minutes."""

from collections import Counter
from collections.abc import Callable

import pytest

from crystal_mirror.membership.cursors import About
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.unchanged import BELIEVED_MS
from crystal_mirror.notices import Notice
from crystal_mirror.operations import Capture, Piece
from crystal_mirror.ports import OutboxName
from crystal_mirror.replication.publish import Published, publish
from crystal_mirror.replication.pull import pull
from crystal_mirror.requests import (
    Flow,
    Get,
    GetMany,
    GetPart,
    List,
    Poll,
    Put,
    PutNew,
    Request,
    StoreFailure,
)
from crystal_mirror.round import sync_round
from crystal_node.device.journal import SqliteJournal
from tests.mirror.support import Objects, driven, seeded
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


def test_an_entry_of_the_mirror_costs_a_node_one_read_more_than_none() -> None:
    pair = resting()
    pair.core.accept(capture("a sixth sensor was put in"))
    pair.sync(pair.core)
    assert asked(pair, pair.node, tell_position=False) == {"get": 6}


def published(pair: Pair, *texts: str) -> list[str]:
    """Has the Core publish an entry for each text. Returns the keys of their slots."""
    before = set(pair.store)
    for text in texts:
        pair.core.accept(capture(text))
        pair.sync(pair.core)
    return sorted(key for key in pair.store.keys() - before if key.startswith(pair.node.keys.mirror_prefix))


def test_a_gap_behind_a_new_entry_is_named_in_the_same_round() -> None:
    pair = resting()
    _, missing, _ = published(pair, "a sixth sensor", "a seventh sensor", "an eighth sensor")
    del pair.store[missing]
    pair.sync(pair.node)
    assert Notice.MIRROR_GAP.value in pair.node.notices.current()


def test_entries_that_come_while_a_node_looks_behind_the_last_one_are_no_gap() -> None:
    pair = resting()
    published(pair, "a sixth sensor")
    position = pair.node.replica.position()
    behind = pair.node.keys.mirror(position.epoch, position.sequence + 2)
    came: list[str] = []

    def answer(request: Request) -> object:
        if isinstance(request, Get) and request.key == behind and not came:
            came.extend(published(pair, "a seventh sensor", "an eighth sensor"))
        return pair.store.answer(request)

    driven(sync_round(pair.node, MODEL, tell_position=False), answer)
    assert behind in came
    assert not pair.node.notices.current()
    assert pair.node.replica.position() == pair.core.replica.position()


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
        assert reads[-1] == {"get": 2, "poll": 1}


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
    assert process()["get"] > 5
    assert process()["get"] <= 5
    assert process() == rest


NOW = 1_760_000_000_000
REST = {"get": 2, "poll": 1}
"""A round for which the relay says that nothing was written: that, the log's head, and the end of the last mirror slot."""


def resting_with_clocks(nodes: int = 0) -> Pair:
    pair = resting()
    for number in range(nodes):
        pair.device(f"node {number}")
    for _ in range(4):
        for member in (pair.core, pair.node):
            asked(pair, member, about=About(NOW))
    return pair


def test_a_round_that_finds_nothing_new_takes_three_requests_however_many_devices_there_are() -> None:
    for nodes in (0, 6):
        pair = resting_with_clocks(nodes)
        for member in (pair.core, pair.node):
            assert asked(pair, member, about=About(NOW)) == REST


def test_devices_of_a_vault_in_which_nothing_was_said_yet_look_for_no_snapshot_again_and_again() -> None:
    """It took a list and a read for each device, in each round of each device."""
    pair = Pair()
    nodes = [pair.node, *(pair.device(f"node {number}") for number in range(4))]
    for _ in range(4):
        for member in (pair.core, *nodes):
            asked(pair, member, about=About(NOW))
    for member in nodes:
        assert asked(pair, member, about=About(NOW)) == {"get": 1, "poll": 1}


def test_a_round_reads_everything_when_anybody_has_written() -> None:
    pair = resting_with_clocks()
    pair.node.accept(capture("the tide gauge was read at noon"))
    assert asked(pair, pair.node, about=About(NOW))["put"] >= 1
    assert asked(pair, pair.core, about=About(NOW))["list"] == 1
    assert asked(pair, pair.node, about=About(NOW))["get"] > 2
    assert not pair.node.journal.names()
    assert pair.node.replica.position() == pair.core.replica.position()


def test_a_relay_that_says_nothing_was_written_is_believed_for_an_hour_only() -> None:
    pair = resting_with_clocks()
    for member in (pair.core, pair.node):
        reads = [
            asked(pair, member, about=About(at))["get"]
            for at in (NOW + BELIEVED_MS - 1, NOW + BELIEVED_MS, NOW + BELIEVED_MS, NOW)
        ]
        assert reads[0] == reads[2] == 2
        assert min(reads[1], reads[3]) >= 5, "in the last round its clock was set back"


def test_a_store_that_cannot_tell_is_read_as_a_whole() -> None:
    pair = resting_with_clocks()

    def answer(request: Request) -> object:
        if isinstance(request, Poll):
            raise StoreFailure("too many waits at once")
        asks.append(request)
        return pair.store.answer(request)

    for member in (pair.core, pair.node):
        asks: list[Request] = []
        flow, reply = sync_round(member, MODEL, about=About(NOW)), None
        request = next(flow)
        try:
            while True:
                try:
                    reply = answer(request)
                except StoreFailure as failure:
                    request = flow.throw(failure)
                else:
                    request = flow.send(reply)
        except StopIteration:
            assert len(asks) >= 4


def shown_as_before(pair: Pair, member: Member) -> None:
    """A round at a relay that says that nothing was written, whatever it has lost."""

    def answer(request: Request) -> object:
        return request.token if isinstance(request, Poll) else pair.store.answer(request)

    driven(sync_round(member, MODEL, about=About(NOW)), answer)


def test_a_relay_that_lost_the_mirrors_end_or_the_logs_head_is_noticed_though_it_says_that_nothing_changed() -> (
    None
):
    pair = resting_with_clocks()
    last = max(key for key in pair.store if key.startswith(pair.node.keys.mirror_prefix))
    held = pair.store.pop(last)
    shown_as_before(pair, pair.node)
    assert Notice.MIRROR_ROLLED_BACK.value in pair.node.notices.current()
    shown_as_before(pair, pair.core)
    assert pair.store[last] == held, "the Core puts it back"
    pair = resting_with_clocks()
    head = max(key for key in pair.store if key.startswith(pair.node.keys.log_prefix))
    held = pair.store.pop(head)
    shown_as_before(pair, pair.node)
    assert Notice.LOG_ROLLED_BACK.value in pair.node.notices.current()
    shown_as_before(pair, pair.core)
    assert pair.store[head] == held


def _with_another_end(head: bytes) -> bytes:
    return head[:-1] + bytes([head[-1] ^ 1])


def _shorter(head: bytes) -> bytes:
    return head[:-1]


def _longer(head: bytes) -> bytes:
    return head + b"x"


@pytest.mark.parametrize("change", [_with_another_end, _shorter, _longer])
def test_another_head_of_the_log_is_noticed_though_the_relay_says_that_nothing_changed(
    change: Callable[[bytes], bytes],
) -> None:
    pair = resting_with_clocks()
    head = max(key for key in pair.store if key.startswith(pair.node.keys.log_prefix))
    held = pair.store[head]
    shown_as_before(pair, pair.node)
    assert not pair.node.notices.current()
    pair.store[head] = change(held)
    shown_as_before(pair, pair.node)
    assert pair.node.notices.current()
    shown_as_before(pair, pair.core)
    assert pair.store[head] == held, "the Core puts it back"


def test_what_follows_a_round_that_found_nothing_new_reads_everything() -> None:
    """A claim seals the epoch behind all entries, also those that came since the device's last round."""
    pair = resting_with_clocks()
    assert asked(pair, pair.node, about=About(NOW)) == REST
    pair.core.accept(capture("the tide gauge was moved"))
    pair.sync(pair.core)
    assert pair.node.replica.position() != pair.core.replica.position()
    pair.store.run(pull(pair.node))
    assert pair.node.replica.position() == pair.core.replica.position()


def test_a_core_looks_at_its_whole_outbox_as_often_for_many_batches_as_for_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sending a million imported messages took hours: the whole outbox was read again after each batch."""
    counted: Counter[str] = Counter()
    names, publishing = SqliteJournal.names, publish

    def counting(journal: SqliteJournal) -> list[OutboxName]:
        counted["looks"] += 1
        return names(journal)

    def published(member: Member) -> Flow[Published]:
        counted["batches"] += 1
        return publishing(member)

    monkeypatch.setattr(SqliteJournal, "names", counting)
    monkeypatch.setattr("crystal_mirror.round.publish", published)
    looks: set[int] = set()
    for count in (40, 120):
        pair = Pair()
        for number in range(count):
            text = seeded(str(number))(15_000).hex()  # batches have half a MiB at most
            pieces = (Piece(text, "user", 1, f"message {number}", 0),)
            pair.core.accept(Capture("cc-mini", "s1", "src", "", "claude-code", pieces))
        counted.clear()
        report = pair.store.run(sync_round(pair.core, MODEL))
        looks.add(counted["looks"])
        assert (report.settled, pair.core.journal.names()) == (count, [])
        assert counted["batches"] > count / 20
    assert len(looks) == 1
