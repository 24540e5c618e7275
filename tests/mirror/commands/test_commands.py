"""Commands on an honest store: asked, run once, answered; refused where they must be."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from crystal_crypto.entry import parse
from crystal_mirror.commands.asker import OPEN_MAX, withdraw
from crystal_mirror.commands.database import ReceivedState
from crystal_mirror.commands.messages import EXPIRES_AFTER_ENTRIES, Action, Arguments, CommandState
from crystal_mirror.commands.reader import ENTRIES_PER_STREAM_MAX, read_commands
from crystal_mirror.commands.stream import STREAM_IDLE_MS, send
from crystal_mirror.commands.target import begin, finish, next_due, progress
from crystal_mirror.errors import NotAllowed, NotAMember
from crystal_mirror.replication.claim import claim
from crystal_mirror.requests import Request
from crystal_mirror.types import Position
from tests.mirror.commands.office import Office, before_put
from tests.mirror.support import Objects


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def test_a_request_is_run_once_and_its_asker_is_told(office: Office) -> None:
    request = office.asker.ask(office.desk, arguments=Arguments(agent="main", dry_run=True, limit=3))
    assert office.asker.state(request) is CommandState.UNSENT
    office.asker.exchange()
    assert office.asker.state(request) is CommandState.SENT
    office.desk.exchange()
    row = next_due(office.desk.book)
    assert row is not None
    assert (row.action, row.arguments) == ("status", Arguments(agent="main", dry_run=True, limit=3))
    office.whole()
    told = office.asker.asked(request)
    assert (told.state, told.text, told.result) == (CommandState.DONE, "done", b'{"ran": true}')
    office.whole()
    assert office.desk.ran == [request]


def test_it_goes_both_ways(office: Office) -> None:
    request = office.desk.ask(office.asker, Action.VERIFY)
    office.desk.exchange()
    office.asker.exchange()
    office.asker.work()
    office.desk.exchange()
    assert office.desk.state(request) is CommandState.DONE


def test_that_it_runs_and_how_far_it_is_are_told_before_it_ends(office: Office) -> None:
    request = office.asker.ask(office.desk)
    office.asker.exchange()
    office.desk.exchange()
    row = next_due(office.desk.book)
    assert row is not None
    office.desk.run(begin(office.desk.member, office.desk.book, row, office.desk.claims, _says_nothing))
    office.asker.exchange()
    assert office.asker.state(request) is CommandState.RUNNING
    for done in (1, 2):
        progress(office.desk.book, row, "halves", done, 2)
    assert len(office.desk.book.outgoing()) == 1
    office.desk.exchange()
    office.asker.exchange()
    told = office.asker.asked(request)
    assert (told.state, told.text, told.done, told.total) == (CommandState.RUNNING, "halves", 2, 2)
    finish(office.desk.book, row, ReceivedState.FAILED, "no")
    office.desk.exchange()
    office.asker.exchange()
    assert office.asker.state(request) is CommandState.FAILED


def test_what_is_for_somebody_else_is_not_taken_and_nobody_else_can_read_it(office: Office) -> None:
    other = office.party("tablet", office.add("tablet"))
    other.exchange()
    request = office.asker.ask(office.desk)
    office.asker.exchange()
    other.exchange()
    assert other.book.all_received() == []
    office.whole()
    other.exchange()
    assert other.book.all_asked() == []
    assert office.asker.state(request) is CommandState.DONE


def asked_of(store: Objects, flow: object) -> Counter[str]:
    counted: Counter[str] = Counter()

    class Counting(Objects):
        def answer(self, request: Request) -> object:
            counted[type(request).__name__] += 1
            return store.answer(request)

    Counting().run(flow)  # type: ignore[arg-type]
    return counted


def test_a_look_that_finds_nothing_new_lists_once_however_many_commands_there_are(office: Office) -> None:
    for _ in range(40):
        office.asker.ask(office.desk)
    office.whole()
    for party in (office.desk, office.asker):
        cost = asked_of(office.store, read_commands(party.member, party.book, party.now))
        assert cost == {"Get": 1, "GetMany": 1, "List": 1}
        assert asked_of(office.store, send(party.member, party.book, party.now)) == {}


def test_what_is_not_for_the_core_it_refuses_when_it_is_to_run(office: Office) -> None:
    office.desk.denied = lambda _sender, action: "denied" if action is Action.BACKUP else ""
    no, yes = office.asker.ask(office.desk, Action.BACKUP), office.asker.ask(office.desk, Action.STATUS)
    office.whole()
    assert office.asker.state(no) is CommandState.REFUSED
    assert office.asker.asked(no).text == "denied"
    assert office.asker.state(yes) is CommandState.DONE
    assert office.desk.ran == [yes]


def test_a_device_that_leads_no_more_refuses_what_only_the_core_does(office: Office) -> None:
    request = office.asker.ask(office.desk, Action.DREAM_WEAVE)
    office.asker.exchange()
    office.desk.exchange()
    heir = office.by_kit("heir")
    office.store.run(claim(heir, heir.root, force=True))
    office.desk.work()
    office.asker.exchange()
    assert office.asker.state(request) is CommandState.REFUSED
    assert office.desk.ran == []


def test_a_revoked_device_has_nothing_run_that_it_asked_before(office: Office) -> None:
    office.asker.ask(office.desk)
    office.asker.exchange()
    office.desk.exchange()
    office.revoke(office.laptop_member)
    office.desk.work()
    assert office.desk.ran == []
    assert [row.state for row in office.desk.book.all_received()] == [ReceivedState.REFUSED]
    assert office.desk.book.outgoing() == []


def test_a_revoked_device_is_asked_nothing_and_what_waits_for_it_is_refused_here(office: Office) -> None:
    tablet = office.party("tablet", office.add("tablet"))
    tablet.exchange()
    office.sync(office.core)
    request = office.desk.ask(tablet)
    office.revoke(tablet.member)
    before = set(office.store)
    office.desk.exchange()
    assert office.desk.state(request) is CommandState.REFUSED
    assert set(office.store) == before
    with pytest.raises(NotAMember):
        office.desk.ask(tablet)


def test_nobody_asks_himself(office: Office) -> None:
    with pytest.raises(NotAMember):
        office.desk.ask(office.desk)


def test_a_request_that_the_memory_has_gone_past_is_not_run(office: Office) -> None:
    request = office.asker.ask(office.desk)
    office.asker.exchange()
    office.desk.exchange()
    epoch, sequence, previous = office.core.replica.position()
    gone_on = Position(epoch, sequence + EXPIRES_AFTER_ENTRIES + 1, previous)
    with office.core.replica.transaction() as transaction:
        transaction.set_position(gone_on)
    office.desk.work()
    office.asker.exchange()
    assert office.asker.state(request) is CommandState.EXPIRED
    assert office.desk.ran == []


def test_a_request_that_was_withdrawn_before_it_began_is_not_run(office: Office) -> None:
    unsent, sent = office.asker.ask(office.desk), office.asker.ask(office.desk)
    withdraw(office.laptop_member, office.asker.book, unsent, office.asker.now)
    assert office.asker.state(unsent) is CommandState.REFUSED
    office.asker.exchange()
    withdraw(office.laptop_member, office.asker.book, sent, office.asker.now)
    office.whole()
    assert office.asker.state(sent) is CommandState.REFUSED
    assert office.desk.ran == []


def test_a_withdrawal_that_comes_before_its_request_counts(office: Office) -> None:
    request = office.asker.ask(office.desk)
    with office.asker.book.transaction() as transaction:
        (message,) = transaction.outgoing()
        transaction.remove_outgoing(message.turn)
        row = office.asker.asked(request)
        transaction.put_asked(msgspec.structs.replace(row, state=CommandState.SENT))
    withdraw(office.laptop_member, office.asker.book, request, office.asker.now)
    office.asker.exchange()
    office.desk.exchange()
    with office.asker.book.transaction() as transaction:
        transaction.add_outgoing(message)
    office.whole()
    assert office.desk.ran == []


def test_what_has_begun_is_not_called_back_and_its_end_is_told(office: Office) -> None:
    request = office.asker.ask(office.desk)
    office.asker.exchange()
    office.desk.exchange()

    def withdrawn() -> None:
        withdraw(office.laptop_member, office.asker.book, request, office.asker.now)
        office.asker.exchange()
        office.desk.exchange()

    office.desk.work(then=withdrawn)
    office.asker.exchange()
    assert office.asker.state(request) is CommandState.DONE


def test_a_device_has_no_more_than_so_many_requests_open(office: Office) -> None:
    for _ in range(OPEN_MAX):
        office.asker.ask(office.desk)
    with pytest.raises(NotAllowed):
        office.asker.ask(office.desk)
    office.whole()
    office.asker.ask(office.desk)


def test_what_waits_sealed_is_sealed_anew_when_a_device_was_put_out(office: Office) -> None:
    lost = office.add("lost")
    request = office.asker.ask(office.desk)
    before_put(office.store, send(office.laptop_member, office.asker.book, office.asker.now))
    assert [bool(message.sealed) for message in office.asker.book.outgoing()] == [True]
    office.sync(office.core, lost)
    office.revoke(lost)
    office.whole()
    assert office.asker.state(request) is CommandState.DONE
    mine = office.laptop_member.keys.commands_prefix
    sealed_in = {parse(data).header.generation for key, data in office.store.items() if key.startswith(mine)}
    assert sealed_in == {2}


def test_a_stream_that_was_not_used_for_long_is_not_gone_on_with(office: Office) -> None:
    office.asker.ask(office.desk)
    office.whole()
    before = office.asker.book.stream()
    office.asker.now += STREAM_IDLE_MS + 1
    office.asker.ask(office.desk)
    office.whole()
    after = office.asker.book.stream()
    assert before is not None
    assert after is not None
    assert after.incarnation != before.incarnation
    assert len(office.desk.ran) == 2


def test_a_request_to_a_device_that_was_put_out_is_over(office: Office) -> None:
    tablet = office.party("tablet", office.add("tablet"))
    office.sync(office.core)
    request = office.desk.ask(tablet)
    office.desk.exchange()
    assert office.desk.state(request) is CommandState.SENT
    office.revoke(tablet.member)
    office.desk.exchange()
    assert office.desk.state(request) is CommandState.REFUSED


def test_what_stands_behind_much_that_is_for_others_is_found(office: Office) -> None:
    tablet = office.party("tablet", office.add("tablet"))
    office.sync(office.core, office.laptop_member)
    for_another = office.asker.ask(tablet)
    office.asker.exchange()
    for _ in range(ENTRIES_PER_STREAM_MAX * 2):
        withdraw(office.laptop_member, office.asker.book, for_another, office.asker.now)
    request = office.asker.ask(office.desk)
    office.asker.exchange()
    office.desk.exchange()
    office.desk.work()
    assert office.desk.ran == [request]


def _says_nothing(*_: object) -> str:
    return ""
