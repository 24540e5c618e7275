"""What becomes of a request, at its target and at its asker: to be compared with the drawings."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from crystal_mirror.commands.asker import take_report, withdraw
from crystal_mirror.commands.database import ReceivedState
from crystal_mirror.commands.messages import EXPIRES_AFTER_ENTRIES, REPORTED, Action, CommandState, Report
from crystal_mirror.commands.stream import send
from crystal_mirror.commands.target import TRIES_MAX, HeldClaims, begin, finish, next_due
from crystal_mirror.requests import StoreFailure
from crystal_mirror.types import Position
from tests.mirror.commands.office import Office, Party, failing
from tests.support.drawings import Edge, World, tried


class Target(Office):
    """A request that may not be repeated has come to its target."""

    action = Action.DREAM_WEAVE

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.request = self.asker.ask(self.desk, self.action)
        self.asker.exchange()
        self.desk.exchange()

    def begins(self, party: Party | None = None) -> None:
        party = party or self.desk
        row = next_due(party.book)
        if row is not None:
            party.run(begin(party.member, party.book, row, party.claims, party.denied))

    def begins_without_a_reply(self) -> None:
        row = next_due(self.desk.book)
        if row is None or row.state is not ReceivedState.RECEIVED:
            return
        flow = begin(self.core, self.desk.book, row, self.desk.claims, self.desk.denied)
        try:
            failing(flow, self.store, 4, answered=False)
        except StoreFailure:
            return

    def dies(self) -> None:
        self.desk.claims = HeldClaims()
        row = next_due(self.desk.book)
        if row is not None and row.state is not ReceivedState.RECEIVED:
            self.begins()

    def dies_often(self) -> None:
        for _ in range(TRIES_MAX):
            self.dies()

    def ends(self, state: ReceivedState) -> None:
        row = self.desk.book.received(self.asker.member.device_id, self.request)
        assert row is not None
        finish(self.desk.book, row, state, "it did")

    def is_claimed_by_a_copy(self) -> None:
        row = next_due(self.desk.book)
        if row is not None and row.state is ReceivedState.RECEIVED:
            copy = self.desk.copied(f"copy {len(list(self.folder.iterdir()))}.db")
            copy.run(begin(copy.member, copy.book, row, copy.claims, copy.denied))

    def is_withdrawn(self) -> None:
        withdraw(self.asker.member, self.asker.book, self.request, 1)
        self.asker.exchange()
        self.desk.exchange()

    def is_passed(self) -> None:
        before = self.core.replica.position()
        self._stand_at(Position(before.epoch, before.sequence + 2 * EXPIRES_AFTER_ENTRIES, before.previous))
        self.begins_if_waiting()
        self._stand_at(before)  # else what has ended is forgotten at the next look

    def _stand_at(self, position: Position) -> None:
        with self.core.replica.transaction() as transaction:
            transaction.set_position(position)

    def is_denied(self) -> None:
        self.desk.denied = lambda _sender, _action: "denied"
        self.begins_if_waiting()

    def begins_if_waiting(self) -> None:
        row = next_due(self.desk.book)
        if row is not None and row.state is ReceivedState.RECEIVED:
            self.begins()

    def begins_after_a_copy(self) -> None:
        self.is_claimed_by_a_copy()
        self.begins_if_waiting()

    def state(self) -> str:
        row = self.desk.book.received(self.asker.member.device_id, self.request)
        assert row is not None
        return row.state.name.lower()


class RepeatableTarget(Target):
    """As above, of one that may be repeated."""

    action = Action.STATUS


EVENTS: dict[str, Callable[[Target], object]] = {
    "its own claim": Target.begins_if_waiting,
    "a claim of a copy": Target.begins_after_a_copy,
    "no reply to its claim": Target.begins_without_a_reply,
    "its claim again": lambda t: t.begins() if t.state() == "claiming" else None,
    "denied": Target.is_denied,
    "passed by the memory": Target.is_passed,
    "withdrawn": Target.is_withdrawn,
    "done": lambda t: t.ends(ReceivedState.DONE),
    "failed": lambda t: t.ends(ReceivedState.FAILED),
}


def target_once() -> set[Edge]:
    with _worlds(Target) as fresh:
        return tried(fresh, {**EVENTS, "the process dies": Target.dies}, Target.state)


def target_again() -> set[Edge]:
    with _worlds(RepeatableTarget) as fresh:
        return tried(fresh, {**EVENTS, "the process dies three times": Target.dies_often}, Target.state)


class Asking(Office):
    """A request as its asker knows it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.request = self.asker.ask(self.desk, Action.VERIFY)

    def is_sent(self) -> None:
        self.store.run(send(self.asker.member, self.asker.book, 1))

    def hears(self, state: CommandState) -> None:
        if self.state() == CommandState.UNSENT:
            return  # nobody can speak of what nobody has got
        with self.asker.book.transaction() as transaction:
            take_report(transaction, self.desk.member.device_id, Report(self.request, 9, state), 1)

    def is_withdrawn(self) -> None:
        withdraw(self.asker.member, self.asker.book, self.request, 1)

    def state(self) -> str:
        return self.asker.state(self.request).value


def asking() -> set[Edge]:
    events: dict[str, Callable[[Asking], object]] = {
        f"{state.value} is told": partial(Asking.hears, state=state) for state in REPORTED
    }
    events |= {"put on the relay": Asking.is_sent, "withdrawn": Asking.is_withdrawn}
    with _worlds(Asking) as fresh:
        return tried(fresh, events, Asking.state)


@contextmanager
def _worlds(kind: Callable[[Path], World]) -> Generator[Callable[[], World]]:
    """Makes worlds, each in a folder of its own, which are gone afterwards."""
    numbers = count()
    with TemporaryDirectory(prefix="crystal-test-") as folder:

        def fresh() -> World:
            own = Path(folder, str(next(numbers)))
            own.mkdir()
            return kind(own)

        yield fresh
