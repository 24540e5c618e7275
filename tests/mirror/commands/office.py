"""Devices with books of commands on one store: who asks, who runs, what ran, and copies of both."""

import sqlite3
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crystal_mirror.commands.asker import ask
from crystal_mirror.commands.database import AskedRequest, ReceivedState
from crystal_mirror.commands.entries import CLAIMS
from crystal_mirror.commands.messages import Action, Arguments, CommandState
from crystal_mirror.commands.reader import read_commands
from crystal_mirror.commands.stream import send
from crystal_mirror.commands.target import BeginOutcome, HeldClaims, begin, finish, next_due
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Flow, PutNew, Request, StoreFailure
from crystal_node.agent.commands.database import SqliteCommandDatabase
from tests.mirror.household import Household
from tests.mirror.support import Objects, seeded

NOW = 1_800_000_000_000
CLAIM_STREAM = f".{CLAIMS.hex()}/"


class Died(Exception):
    """The process is gone, between two requests or within a commit."""


@dataclass
class Party:
    """One process of one device: a member, its book in a file, and what it ran (shared by all copies of the device)."""

    home: "Office"
    member: Member
    path: Path
    ran: list[bytes]
    book: SqliteCommandDatabase = field(init=False)
    claims: HeldClaims = field(default_factory=HeldClaims)
    denied: Callable[[bytes, Action], str] = lambda _sender, _action: ""
    now: int = NOW

    def __post_init__(self) -> None:
        self.book = SqliteCommandDatabase.open(self.path)

    def ask(
        self, target: "Party", action: Action = Action.STATUS, arguments: Arguments | None = None
    ) -> bytes:
        return ask(
            self.member, self.book, target.member.device_id, action, arguments or Arguments(), self.now
        )

    def exchange(self) -> None:
        """Reads what has come, and sends what waits."""
        while (looked := self.run(read_commands(self.member, self.book, self.now))).more and looked.read:
            pass
        self.run(send(self.member, self.book, self.now))

    def work(self, *, then: Callable[[], None] = lambda: None) -> None:
        """Runs everything that waits. ``then`` happens when an action has run and before it is noted."""
        while (row := next_due(self.book)) is not None:
            if self.run(begin(self.member, self.book, row, self.claims, self.denied)) is BeginOutcome.RUN:
                self.ran.append(row.id)
                then()
                finish(self.book, row, ReceivedState.DONE, "done", b'{"ran": true}')
        self.run(send(self.member, self.book, self.now))

    def run(self, flow: Flow[Any]) -> Any:
        return self.home.store.run(flow)

    def restarted(self) -> "Party":
        """The process ends, however far it was, and another begins on the same home."""
        self.book.close()
        return Party(self.home, self.member, self.path, self.ran, denied=self.denied)

    def copied(self, name: str) -> "Party":
        """The home as it is now, somewhere else: a backup, or a clone."""
        path = self.path.with_name(name)
        with sqlite3.connect(self.path) as before, sqlite3.connect(path) as after:
            before.backup(after)
        member = Member.open(
            self.member.identity,
            self.member.vault,
            self.member.journal,
            self.member.replica,
            seeded(name),
            self.member.root,
        )
        return Party(self.home, member, path, self.ran, denied=self.denied)

    def asked(self, request: bytes) -> AskedRequest:
        row = self.book.asked(request)
        assert row is not None
        return row

    def state(self, request: bytes) -> CommandState:
        return self.asked(request).state

    def close(self) -> None:
        self.book.close()


class Office(Household):
    """A Core and a laptop, both with books that have looked once."""

    def __init__(self, folder: Path, *, looked: bool = True) -> None:
        super().__init__()
        self.folder = folder
        self.laptop_member = self.add("laptop")
        self.sync(self.core, self.laptop_member, self.core)
        self.desk = self.party("core", self.core)
        self.asker = self.party("laptop", self.laptop_member)
        if looked:
            self.desk.exchange()
            self.asker.exchange()

    def party(self, name: str, member: Member) -> Party:
        return Party(self, member, self.folder / f"{name}.db", [])

    def stored(self, sender: Member | None = None) -> list[str]:
        """The keys of the channel, in order; of one sender's streams, without claims."""
        prefix = self.core.keys.commands_prefix
        if sender is None:
            return sorted(key for key in self.store if key.startswith(prefix))
        mine = f"{prefix}{sender.device_id.hex()}."
        return sorted(k for k in self.store if k.startswith(mine) and CLAIM_STREAM not in k)

    def whole(self) -> None:
        """Everything goes its way until nothing moves."""
        for _ in range(3):
            self.asker.exchange()
            self.desk.exchange()
            self.desk.work()
        self.asker.exchange()


def until(
    store: Objects, flow: Generator[Request, Any, Any], requests: int, *, answered: bool = True
) -> bool:
    """Drives a flow for that many requests, and drops it; the last of them reaches the store if ``answered``.

    Returns False if it came to its end before.
    """
    reply: Any = None
    for number in range(requests):
        try:
            request = flow.send(reply)
        except StopIteration:
            return False
        if number + 1 < requests or answered:
            reply = store.answer(request)
    flow.close()
    return True


def before_put(store: Objects, flow: Generator[Request, Any, Any]) -> None:
    """Drives a flow until it would write, and drops it there."""
    reply: Any = None
    while not isinstance(request := flow.send(reply), PutNew):
        reply = store.answer(request)
    flow.close()


def failing(flow: Generator[Request, Any, Any], store: Objects, at: int, *, answered: bool) -> Any:
    """Drives a flow whose request number ``at`` fails, after its effect or before it."""
    reply: Any = None
    number = 0
    try:
        request = next(flow)
        while True:
            number += 1
            if number == at:
                if answered:
                    store.answer(request)
                request = flow.throw(StoreFailure("the reply was lost"))
            else:
                reply = store.answer(request)
                request = flow.send(reply)
    except StopIteration as stop:
        return stop.value
