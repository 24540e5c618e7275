"""Random histories of commands: deaths anywhere, backups put back, clones at work, a relay that hides and shows again.

Whatever happens, what may not be repeated ran once at most on all copies of its target together, and nothing ran that was not
asked. The seed is in the test's name and gives the same history again.
"""

from pathlib import Path
from random import Random

import pytest

from crystal_mirror.commands.asker import OPEN_MAX
from crystal_mirror.commands.database import ReceivedState
from crystal_mirror.commands.messages import Action, CommandState
from crystal_mirror.commands.reader import read_commands
from crystal_mirror.commands.stream import send
from crystal_mirror.commands.target import BeginOutcome, begin, finish, next_due
from crystal_mirror.requests import StoreFailure
from tests.mirror.commands.office import Office, Party, failing

STEPS = 100


class Storm:
    """One history. Copies of the desk share what they ran."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.office = Office(folder)
        self.draw = Random(seed)
        self.desks = [self.office.desk]
        self.askers = [self.office.asker]
        self.once: set[bytes] = set()
        self.all: set[bytes] = set()
        self.hidden: dict[str, bytes] = {}
        self.copies = 0

    def step(self) -> None:
        self.draw.choice(
            (
                self.asks,
                self.asks,
                self.exchanges,
                self.exchanges,
                self.exchanges,
                self.works,
                self.works,
                self.restarts,
                self.copies_itself,
                self.is_put_back,
                self.hides,
                self.shows,
            )
        )()
        for request in self.once:
            assert self.ran.count(request) <= 1
        assert set(self.ran) <= self.all

    @property
    def ran(self) -> list[bytes]:
        return self.office.desk.ran

    def asks(self) -> None:
        asker = self.draw.choice(self.askers)
        if sum(not row.state.ended for row in asker.book.all_asked()) >= OPEN_MAX:
            return
        action = self.draw.choice((Action.DREAM_WEAVE, Action.STATUS))
        request = asker.ask(self.office.desk, action)
        self.all.add(request)
        if action is Action.DREAM_WEAVE:
            self.once.add(request)

    def exchanges(self) -> None:
        group = self.draw.choice((self.desks, self.askers))
        number = self.draw.randrange(len(group))
        for flow in (read_commands, send):
            party = group[number]  # another process than before, if that one died
            self.run(party, flow(party.member, party.book, party.now))

    def works(self) -> None:
        desk = self.draw.choice(self.desks)
        row = next_due(desk.book)
        if row is None:
            return
        if self.run(desk, begin(desk.member, desk.book, row, desk.claims, desk.denied)) is BeginOutcome.RUN:
            desk.ran.append(row.id)
            if self.draw.random() < 0.3:
                self.restart(desk)
            else:
                finish(desk.book, row, ReceivedState.DONE, "done")

    def restarts(self) -> None:
        self.restart(self.draw.choice(self.desks + self.askers))

    def copies_itself(self) -> None:
        """A clone, or a backup that will be put back: both are copies that go on from here."""
        group = self.draw.choice((self.desks, self.askers))
        self.copies += 1
        if len(group) < 3:
            group.append(self.draw.choice(group).copied(f"copy {self.copies}.db"))

    def is_put_back(self) -> None:
        group = self.draw.choice((self.desks, self.askers))
        if len(group) > 1:
            group.pop(self.draw.randrange(len(group))).close()

    def hides(self) -> None:
        keys = self.office.stored()
        if keys:
            key = self.draw.choice(keys)
            if "." + "0" * 16 + "/" not in key:  # the relay keeps create-only: claims stay
                self.hidden[key] = self.office.store.pop(key)

    def shows(self) -> None:
        for key, data in self.hidden.items():
            self.office.store.setdefault(key, data)
        self.hidden.clear()

    def restart(self, party: Party) -> None:
        for group in (self.desks, self.askers):
            if party in group:
                group[group.index(party)] = party.restarted()

    def run(self, party: Party, flow: object) -> object:
        """To its end, or a reply is lost on the way; then the process may die."""
        store = self.office.store
        if self.draw.random() < 0.6:
            return store.run(flow)  # type: ignore[arg-type]
        try:
            at, answered = self.draw.randrange(1, 12), self.draw.random() < 0.5
            return failing(flow, store, at, answered=answered)  # type: ignore[arg-type]
        except StoreFailure:
            if self.draw.random() < 0.5:
                self.restart(party)
            return None


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_what_may_not_be_repeated_runs_once_at_most(tmp_path: Path, seed: int) -> None:
    storm = Storm(tmp_path, seed)
    for _ in range(STEPS):
        storm.step()
    storm.shows()
    office = storm.office
    for asker in storm.askers:
        for desk in storm.desks:
            office.asker, office.desk = asker, desk
            office.whole()
    for asker in storm.askers:
        asker.exchange()
    for request in storm.once:
        assert storm.ran.count(request) <= 1
    states = [row.state for asker in storm.askers for row in asker.book.all_asked()]
    assert states.count(CommandState.DONE) >= 1, "a storm in which nothing is done shows nothing"
    told = {
        row.id for asker in storm.askers for row in asker.book.all_asked() if row.state is CommandState.DONE
    }
    assert told <= set(storm.ran)
