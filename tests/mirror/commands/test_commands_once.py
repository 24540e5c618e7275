"""Once only: a process that dies anywhere, two processes, a backup that is put back, a clone, a list that is lost."""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from crystal_mirror.commands.database import ReceivedState, command_notices
from crystal_mirror.commands.messages import Action, CommandState
from crystal_mirror.commands.reader import read_commands
from crystal_mirror.commands.stream import send
from crystal_mirror.commands.target import TRIES_MAX, BeginOutcome, HeldClaims, begin, finish, next_due
from crystal_mirror.requests import StoreFailure
from crystal_node.agent.commands.database import SqliteCommandDatabase
from tests.mirror.commands.office import Died, Office, Party, before_put, failing, until
from tests.mirror.household import another_process

ONCE, AGAIN = Action.DREAM_WEAVE, Action.STATUS


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def received(office: Office, action: Action) -> bytes:
    """A request that has come to its target and waits there."""
    request = office.asker.ask(office.desk, action)
    office.asker.exchange()
    office.desk.exchange()
    return request


def starts(party: Party, claims: HeldClaims | None = None) -> Any:
    row = next_due(party.book)
    assert row is not None
    return begin(party.member, party.book, row, claims or party.claims, party.denied)


STEPS: dict[str, Callable[[Office], Any]] = {
    "the asker sends": lambda o: send(o.asker.member, o.asker.book, o.asker.now),
    "the target looks": lambda o: read_commands(o.desk.member, o.desk.book, o.desk.now),
    "the target begins": lambda o: starts(o.desk),
    "the target tells": lambda o: send(o.desk.member, o.desk.book, o.desk.now),
    "the asker looks": lambda o: read_commands(o.asker.member, o.asker.book, o.asker.now),
}


def prepared(office: Office, step: str, action: Action) -> bytes:
    """The world right before that step."""
    request = office.asker.ask(office.desk, action)
    names = list(STEPS)
    for name in names[: names.index(step)]:
        outcome = office.store.run(STEPS[name](office))
        if outcome is BeginOutcome.RUN:
            _run(office)
    return request


def _run(office: Office) -> None:
    row = next_due(office.desk.book)
    assert row is not None
    office.desk.ran.append(row.id)
    finish(office.desk.book, row, ReceivedState.DONE, "done")


@pytest.mark.parametrize(
    ("step", "action"), [*((step, ONCE) for step in STEPS), ("the target begins", AGAIN)]
)
def test_a_process_that_dies_at_any_request_runs_nothing_twice(
    tmp_path: Path, step: str, action: Action
) -> None:
    ends: set[CommandState] = set()
    for answered in (False, True):
        for at in range(1, 20):
            folder = tmp_path / f"{answered} {at}"
            folder.mkdir()
            office = Office(folder)
            request = prepared(office, step, action)
            cut = until(office.store, STEPS[step](office), at, answered=answered)
            office.asker, office.desk = office.asker.restarted(), office.desk.restarted()
            office.whole()
            assert office.desk.ran in ([], [request])
            ends.add(office.asker.state(request))
            if office.asker.state(request) is CommandState.UNKNOWN:
                # Its claim was put, and the process died before it knew.
                assert (step, action, office.desk.ran) == ("the target begins", ONCE, [])
            else:
                assert (office.asker.state(request), office.desk.ran) == (CommandState.DONE, [request])
            if not cut:
                break
    assert ends <= {CommandState.DONE, CommandState.UNKNOWN}


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_reply_that_is_lost_costs_nothing_as_long_as_the_process_lives(
    tmp_path: Path, step: str, answered: bool
) -> None:
    for at in range(1, 20):
        folder = tmp_path / str(at)
        folder.mkdir()
        office = Office(folder)
        request = prepared(office, step, ONCE)
        failed = False
        try:
            if failing(STEPS[step](office), office.store, at, answered=answered) is BeginOutcome.RUN:
                _run(office)
        except StoreFailure:
            failed = True
        office.whole()
        assert (office.asker.state(request), office.desk.ran) == (CommandState.DONE, [request])
        if not failed:
            break


class DyingBook(SqliteCommandDatabase):
    """Dies at a commit: before it, or right behind it."""

    left = 10**6
    before = True

    @contextmanager
    def transaction(self) -> Generator[Self]:
        self.left -= 1
        with super().transaction() as transaction:
            yield transaction
            if self.left == 0 and self.before:
                raise Died
        if self.left == 0:
            raise Died


@pytest.mark.slow
@pytest.mark.parametrize(("before", "action"), [(True, ONCE), (False, ONCE), (True, AGAIN)])
def test_a_process_that_dies_at_any_commit_runs_at_most_once_what_may_not_be_repeated(
    tmp_path: Path, before: bool, action: Action
) -> None:
    ends: set[CommandState] = set()
    for commits in range(1, 40):
        folder = tmp_path / str(commits)
        folder.mkdir()
        office = Office(folder)
        request = office.asker.ask(office.desk, action)
        office.asker.exchange()
        office.desk.book.close()
        dying = DyingBook.open(office.desk.path)
        assert isinstance(dying, DyingBook)
        dying.left, dying.before = commits, before
        office.desk.book = dying
        died = True
        with suppress(Died):
            office.desk.exchange()
            office.desk.work()
            died = False
        office.desk = office.desk.restarted()
        office.whole()
        end = office.asker.state(request)
        ends.add(end)
        assert set(office.desk.ran) <= {request}
        assert len(office.desk.ran) <= (1 if action is ONCE else TRIES_MAX)
        assert end in ((CommandState.DONE, CommandState.UNKNOWN) if action is ONCE else (CommandState.DONE,))
        if not died:
            break
    else:
        pytest.fail("it never came to its end")
    assert (CommandState.UNKNOWN in ends) is (action is ONCE)


def test_an_action_whose_process_dies_each_time_is_given_up(office: Office) -> None:
    request = received(office, AGAIN)
    for _ in range(TRIES_MAX + 2):
        with suppress(Died):
            office.desk.work(then=_die)
        office.desk = office.desk.restarted()
    assert office.desk.ran == [request] * TRIES_MAX
    office.whole()
    assert office.asker.state(request) is CommandState.UNKNOWN


def _die() -> None:
    raise Died


def test_two_processes_of_one_home_do_not_both_run_a_request(office: Office) -> None:
    received(office, AGAIN)
    second = Party(office, office.core, office.desk.path, office.desk.ran)
    first_flow, second_flow = starts(office.desk), starts(second)
    outcomes = [office.store.run(first_flow), office.store.run(second_flow)]
    assert outcomes.count(BeginOutcome.RUN) == 1


def test_a_clone_and_its_original_do_not_both_run_a_request(office: Office) -> None:
    for action in (ONCE, AGAIN):
        clone = office.desk.copied(f"clone {action}.db")
        request = received(office, action)
        clone.exchange()
        clone.work()
        office.desk.work()
        assert office.desk.ran.count(request) == 1
        office.asker.exchange()
        assert office.asker.state(request) is CommandState.DONE
        office.whole()
        assert office.desk.ran.count(request) == 1


@pytest.mark.parametrize(("action", "first"), [*((ONCE, first) for first in range(8)), (AGAIN, 4)])
def test_a_clone_and_its_original_side_by_side_do_not_both_run_it(
    office: Office, action: Action, first: int
) -> None:
    """The original takes ``first`` requests' worth of its way, the clone all of its own, and then the original goes on."""
    request = received(office, action)
    clone = office.desk.copied("clone.db")
    flow, reply, outcome = starts(office.desk), None, None
    try:
        for _ in range(first):
            reply = office.store.answer(flow.send(reply))
        clone.work()
        while True:
            reply = office.store.answer(flow.send(reply))
    except StopIteration as stop:
        outcome = stop.value
    if outcome is BeginOutcome.RUN:
        office.desk.ran.append(request)
    assert office.desk.ran.count(request) == 1


@pytest.mark.parametrize("action", [ONCE, AGAIN])
def test_a_home_that_is_put_back_from_a_backup_does_not_run_again_what_ran(
    office: Office, action: Action
) -> None:
    request = received(office, action)
    backup = office.desk.copied("backup.db")
    office.desk.work()
    office.asker.exchange()
    office.desk = backup
    office.whole()
    assert office.desk.ran == [request]
    assert office.asker.state(request) is CommandState.DONE
    again = office.asker.ask(office.desk, action)
    office.whole()
    assert office.desk.ran == [request, again]


def test_a_backup_from_the_moment_of_the_claim_does_not_run_again_what_may_not_be_repeated(
    office: Office,
) -> None:
    request = received(office, ONCE)
    before_put(office.store, starts(office.desk))
    backup = office.desk.copied("backup.db")
    (row,) = backup.book.all_received()
    assert row.state is ReceivedState.CLAIMING
    office.desk = office.desk.restarted()
    office.desk.work()
    assert office.desk.ran == [request]
    office.desk = backup
    office.whole()
    assert office.desk.ran == [request]


def test_what_was_begun_and_whose_home_was_lost_is_told_as_unknown(office: Office) -> None:
    request = received(office, ONCE)
    backup = office.desk.copied("backup.db")
    assert office.store.run(starts(office.desk)) is BeginOutcome.RUN
    office.desk = backup
    office.whole()
    assert office.asker.state(request) is CommandState.UNKNOWN
    assert command_notices(office.desk.book)["copied"].count == 1


def test_a_backup_that_is_older_than_what_the_relay_keeps_runs_nothing_of_what_it_lists(
    office: Office,
) -> None:
    """The claim and the request are gone from the relay, and the book that is put back still waits to run it."""
    request = received(office, ONCE)
    backup = office.desk.copied("backup.db")
    office.desk.work()
    for key in [key for key in office.store if key.startswith(office.core.keys.commands_prefix)]:
        del office.store[key]
    office.desk = backup
    office.desk.work()
    assert office.desk.ran == [request]
    (row,) = office.desk.book.all_received()
    assert row.state is ReceivedState.EXPIRED


@pytest.mark.parametrize("action", [ONCE, AGAIN])
def test_an_asker_that_is_put_back_from_a_backup_has_nothing_run_twice(
    office: Office, action: Action
) -> None:
    request = office.asker.ask(office.desk, action)
    backup = office.asker.copied("backup.db")
    office.whole()
    office.asker = backup
    other = office.asker.ask(office.desk, action)
    office.whole()
    assert sorted(office.desk.ran) == sorted([request, other])
    assert office.asker.state(other) is CommandState.DONE


@pytest.mark.parametrize("action", [ONCE, AGAIN])
def test_a_new_list_runs_nothing_that_was_asked_before_it(office: Office, action: Action) -> None:
    waiting = received(office, action)
    done = office.asker.ask(office.desk, action)
    office.asker.exchange()
    office.desk.book.close()
    office.desk.path = office.desk.path.with_name("new.db")
    office.desk = office.desk.restarted()
    office.whole()
    assert office.desk.ran == []
    assert {office.asker.state(request) for request in (waiting, done)} == {CommandState.REFUSED}
    after = office.asker.ask(office.desk, action)
    office.whole()
    assert office.desk.ran == [after]


def test_a_new_list_says_that_it_does_not_know_how_ended_what_was_begun_before_it(office: Office) -> None:
    request = received(office, ONCE)
    assert office.store.run(starts(office.desk)) is BeginOutcome.RUN
    office.desk.book.close()
    office.desk.path = office.desk.path.with_name("new.db")
    office.desk = office.desk.restarted()
    office.whole()
    assert office.asker.state(request) is CommandState.UNKNOWN
    assert office.desk.ran == []


def test_a_new_list_does_not_run_what_was_asked_at_an_earlier_place_and_hidden_from_its_first_look(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path, looked=False)
    office.asker.ask(office.desk)
    office.asker.exchange()
    hidden = {key: office.store.pop(key) for key in list(office.store) if "/commands/" in key}
    office.laptop_member.accept_many([])
    _something(office)
    office.desk.exchange()
    office.store.update(hidden)
    office.whole()
    assert office.desk.ran == []


def _something(office: Office) -> None:
    from crystal_mirror.operations import Remember

    office.core.accept(Remember("the tide table is on the wall", "fact", "agent", 1))
    office.sync(office.core)


def test_another_process_of_the_home_reads_along(office: Office) -> None:
    asked = office.asker.ask(office.desk)
    office.asker.exchange()
    office.desk.exchange()
    other = office.party("core", another_process(office.core))
    other.exchange()
    other.work()
    office.desk.work()
    office.asker.exchange()
    assert other.ran == [asked]
    assert office.desk.ran == []


@pytest.mark.parametrize("action", [ONCE, AGAIN])
def test_a_home_that_became_another_device_runs_nothing_that_the_one_before_was_asked(
    office: Office, action: Action
) -> None:
    request = received(office, action)
    backup = office.desk.copied("backup.db")
    office.desk.work()
    assert office.desk.ran == [request]
    heir = Party(office, office.by_kit("heir"), backup.path, office.desk.ran)
    heir.work()
    heir.exchange()
    heir.work()
    assert office.desk.ran == [request]
    assert heir.book.all_received() == []
