"""Which connections are admitted, and what strangers may hold of a relay, counted exactly."""

import asyncio
from dataclasses import dataclass, field

import pytest

from crystal_relay.errors import Busy, TooManyRequests
from crystal_relay.server import RelaySettings, admission
from crystal_relay.server.admission import Admission, Closing, Place, Refused, Trust
from crystal_relay.server.rates import Rates
from crystal_relay.server.settings import LOOKUPS_MAX, LOOKUPS_OF_ADDRESS_MAX

FIRST, SECOND = "203.0.113.7", "203.0.113.8"
LOOPBACK = "127.0.0.1"


@dataclass(eq=False)
class Peer:
    """A connection as the limits see it."""

    idle: bool = True
    ended: list[Closing] = field(default_factory=list[Closing])

    def end(self, closing: Closing) -> None:
        self.ended.append(closing)

    def authenticated(self) -> None:
        raise AssertionError("only an application says so")

    def refused(self) -> bool:
        raise AssertionError("only an application asks")


def entered(admitted: Admission, host: str, count: int = 1) -> list[tuple[Peer, Place]]:
    peers = [Peer() for _ in range(count)]
    return [(peer, admitted.enter(peer, (host, 9))) for peer in peers]


def test_an_address_opens_no_more_than_its_share_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "CONNECTIONS_OF_ADDRESS_MAX", 3)
    admitted = Admission(("198.51.100.0/24",))
    held = entered(admitted, FIRST, 3)
    for peer, place in held:
        admitted.authenticate(peer, place)
    with pytest.raises(Refused) as refused:
        admitted.enter(Peer(), (FIRST, 9))
    assert refused.value.closing is Closing.ADDRESS
    entered(admitted, SECOND)
    for unlimited in (LOOPBACK, "198.51.100.9"):
        assert {place.address for _, place in entered(admitted, unlimited, 10)} == {None}
    admitted.leave(*held[0])
    entered(admitted, FIRST)


def test_an_address_holds_few_connections_that_have_shown_no_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "ANONYMOUS_CONNECTIONS_OF_ADDRESS_MAX", 2)
    admitted = Admission()
    first, _ = entered(admitted, FIRST, 2)
    with pytest.raises(Refused):
        admitted.enter(Peer(), (FIRST, 9))
    admitted.authenticate(*first)
    admitted.authenticate(*first)
    entered(admitted, FIRST)
    with pytest.raises(Refused):
        admitted.enter(Peer(), (FIRST, 9))
    assert (admitted.count(Trust.AUTHENTICATED), admitted.count(Trust.ANONYMOUS)) == (1, 2)


def test_when_strangers_take_all_places_the_oldest_idle_one_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "ANONYMOUS_CONNECTIONS_MAX", 3)
    admitted = Admission()
    (busy, _), (idle, place), (young, _) = entered(admitted, LOOPBACK, 3)
    busy.idle = False
    entered(admitted, LOOPBACK)
    admitted.leave(idle, place)
    assert (busy.ended, idle.ended, young.ended) == ([], [Closing.EVICTED], [])
    assert admitted.count(Trust.ANONYMOUS) == 3


def test_no_connection_with_credentials_makes_room_for_a_stranger() -> None:
    admitted = Admission()
    admitted.connections_max = 3
    for peer, place in (members := entered(admitted, LOOPBACK, 3)):
        admitted.authenticate(peer, place)
    with pytest.raises(Refused) as refused:
        admitted.enter(Peer(), (LOOPBACK, 9))
    assert refused.value.closing is Closing.FULL
    assert [peer.ended for peer, _ in members] == [[], [], []]


def test_a_newcomer_is_refused_when_all_strangers_are_being_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "ANONYMOUS_CONNECTIONS_MAX", 2)
    admitted = Admission()
    for peer, _ in entered(admitted, LOOPBACK, 2):
        peer.idle = False
    with pytest.raises(Refused):
        admitted.enter(Peer(), (LOOPBACK, 9))


def test_bytes_that_wait_are_limited_in_all_and_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "WAITING_BYTES_MAX", 100)
    monkeypatch.setattr(admission, "WAITING_BYTES_OF_ADDRESS_MAX", 60)
    admitted = Admission()
    (_, one), (_, two) = entered(admitted, FIRST, 2)
    ((_, other),) = entered(admitted, SECOND)
    ((_, near),) = entered(admitted, LOOPBACK)
    admitted.wait(one, 40)
    with pytest.raises(Refused) as refused:
        admitted.wait(two, 30)
    assert (refused.value.closing, admitted.waiting_bytes) == (Closing.BYTES, 40)
    admitted.wait(other, 60)
    with pytest.raises(Refused):
        admitted.wait(near, 1)
    admitted.wait(one, 10)
    admitted.wait(near, 30)
    assert admitted.waiting_bytes == 100


def test_all_that_was_counted_is_given_back() -> None:
    admitted = Admission()
    held = [*entered(admitted, FIRST, 5), *entered(admitted, LOOPBACK, 5)]
    for number, (peer, place) in enumerate(held):
        admitted.wait(place, number)
        if number % 2:
            admitted.authenticate(peer, place)
    for peer, place in held:
        admitted.leave(peer, place)
    assert admitted.waiting_bytes == 0
    assert {trust: admitted.count(trust) for trust in Trust} == dict.fromkeys(Trust, 0)
    assert len(entered(admitted, FIRST, 5)) == 5


async def test_requests_begin_after_one_whose_beginning_fails() -> None:
    admitted, loop = Admission(), asyncio.get_running_loop()
    begun: list[int] = []
    failed: list[str] = []
    loop.set_exception_handler(lambda _, context: failed.append(repr(context["exception"])))

    def fail() -> None:
        raise ZeroDivisionError

    admitted.begin(fail, loop)
    admitted.begin(lambda: begun.append(1), loop)
    for _ in range(3):
        await asyncio.sleep(0)
    admitted.begin(fail, loop)
    await asyncio.sleep(0)
    admitted.begin(lambda: begun.append(2), loop)
    await asyncio.sleep(0)
    assert (begun, failed) == ([1, 2], ["ZeroDivisionError()"] * 2)


def test_so_many_lookups_run_at_once_in_all_and_for_an_address() -> None:
    rates = Rates(RelaySettings())
    running = [rates.lookup({"client": (FIRST, 9)}) for _ in range(LOOKUPS_OF_ADDRESS_MAX)]
    for each in running:
        each.__enter__()
    with pytest.raises(TooManyRequests), rates.lookup({"client": (FIRST, 9)}):
        pass
    nearby = [rates.lookup({"client": (LOOPBACK, 9)}) for _ in range(LOOKUPS_MAX - len(running))]
    for each in nearby:
        each.__enter__()
    with pytest.raises(Busy), rates.lookup({"client": (SECOND, 9)}):
        pass
    for each in (*running, *nearby):
        each.__exit__(None, None, None)
    with rates.lookup({"client": (FIRST, 9)}), rates.lookup({"client": (SECOND, 9)}):
        assert rates.refused_lookups == 2
