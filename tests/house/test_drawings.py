"""The state machines in docs/protocol.md are what the code does: everything is tried in every state, and has to agree."""

import ast
import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crystal_crypto.errors import BadMessage
from crystal_crypto.hierarchy import Root
from crystal_crypto.invite import Inviter, InviteStage, Joiner
from crystal_mirror.errors import ProtocolError
from crystal_mirror.membership.administration import revoke, rotate_root
from crystal_mirror.replication.claim import claim
from crystal_mirror.replication.held_entries import accept_held, drop_held, held_places
from crystal_mirror.requests import Flow
from crystal_mirror.streams.outbox import push
from crystal_mirror.types import Origin
from crystal_node.safekeeping.pairing import inviter as inviting
from crystal_relay.errors import RelayError
from crystal_relay.invites import CloseReason
from crystal_relay.limits import INVITE_SECONDS
from crystal_relay.memory import MemoryStore
from crystal_relay.server.invites import Invites
from crystal_relay.wire import InviteCreation
from tests.crypto.invite_support import ENTRY_HASH, HEAD, a_joiner, an_inviter
from tests.house.command_machines import asking as asking_another
from tests.house.command_machines import target_again, target_once
from tests.house.handover_machines import asking, giving
from tests.house.log_machines import devices, reigns, roots
from tests.house.replication_machines import forgets, restoring, snapshots
from tests.mirror.household import Household
from tests.mirror.test_two_devices import capture
from tests.support.drawings import Edge, drawn_machines, tried


def done(home: Household, flow: Flow[Any]) -> None:
    """Runs a flow; one that is refused changes nothing."""
    with contextlib.suppress(ProtocolError):
        home.store.run(flow)


class Leaving(Household):
    """The device that founded the vault, and an heir that can do all that is needed to put it out."""

    def __init__(self) -> None:
        super().__init__()
        self.heir = self.by_kit("heir")
        self.sync(self.core, self.heir)

    def rotate(self) -> None:
        new = Root.from_bytes(self.heir.random(32))
        assert self.heir.root is not None
        done(self, rotate_root(self.heir, self.heir.root, new, now_ms=1))
        self.heir.root = new

    def state(self) -> str:
        device = self.core.device_id
        info, lead = self.heir.log.member(device), self.heir.log.lead
        assert info is not None
        if info.revoked is not None:
            return "out"
        traits = [
            *(["leads"] if lead is not None and lead.device == device else []),
            *(["had the root"] if self.heir.log.held_root(device) else []),
        ]
        return ", ".join(traits) or "in"


def leaving() -> set[Edge]:
    return tried(
        Leaving,
        {
            "another takes the lead": lambda h: done(h, claim(h.heir, h.heir.root, force=True)),
            "another root": Leaving.rotate,
            "revoke": lambda h: done(h, revoke(h.heir, h.core.device_id, now_ms=2)),
        },
        Leaving.state,
    )


class Held(Household):
    """A revoked device has put one entry behind its cutoffs."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = self.add("lost")
        self.revoke(self.lost)
        self.place: Origin = self.lost.accept(capture("behind"))
        self.store.run(push(self.lost))

    def state(self) -> str:
        if self.core.replica.done(self.place):
            return "done"
        if self.place in {name.origin for name in self.core.journal.names()}:
            return "in an outbox"
        assert self.store.run(held_places(self.core, self.lost.device_id)) == [self.place]
        return "held"


def held() -> set[Edge]:
    return tried(
        Held,
        {
            "accept": lambda h: done(h, accept_held(h.core, h.lost.device_id)),
            "drop": lambda h: done(h, drop_held(h.core, h.lost.device_id)),
            "sync": lambda h: h.sync(h.core),
        },
        Held.state,
    )


@contextlib.contextmanager
def out_of_order() -> Generator[None]:
    """Calls out of order are refused by ValueError, messages that do not open by BadMessage."""
    with contextlib.suppress(ValueError, BadMessage):
        yield


@dataclass
class Sides:
    """Both sides of an invite. ``other`` is a second pairing's inviter, whose messages belong to nobody here."""

    inviter: Inviter
    joiner: Joiner

    @classmethod
    def fresh(cls) -> "Sides":
        inviter = an_inviter()
        return cls(inviter, a_joiner(inviter.code))

    def joins(self) -> None:
        if self.joiner.stage < InviteStage.JOINED:
            self.joiner.open_offer(self.inviter.offer())
        with out_of_order():
            self.inviter.open_join(self.joiner.join())

    def types(self, digits: str) -> None:
        with out_of_order():
            self.inviter.check(digits)

    def digits(self) -> str:
        if self.joiner.stage < InviteStage.REVEALED and self.inviter.stage >= InviteStage.REVEALED:
            self.joiner.open_reveal(self.inviter.reveal())
        return self.joiner.digits if self.joiner.stage >= InviteStage.REVEALED else "000000"

    def wrong(self) -> str:
        return f"{(int(self.digits()) + 1) % 1_000_000:06d}"

    def welcomes(self) -> bytes | None:
        with out_of_order():
            return self.inviter.welcome(7, ENTRY_HASH, HEAD, 0)

    def reveals(self) -> None:
        with out_of_order():
            self.inviter.reveal()

    def inviters_state(self) -> str:
        burnt = not self.inviter.tries_left and self.inviter.stage is InviteStage.REVEALED
        return "burnt" if burnt else self.inviter.stage.name.lower()


def inviters_messages() -> set[Edge]:
    def junk(sides: Sides) -> None:
        with out_of_order():
            sides.inviter.open_join(an_inviter("other").offer())

    def wrong(sides: Sides) -> None:
        for _ in range(3):
            sides.types(sides.wrong())

    return tried(
        Sides.fresh,
        {
            "join that opens": Sides.joins,
            "join that does not open": junk,
            "reveal": Sides.reveals,
            "right digits": lambda s: s.types(s.digits()),
            "wrong digits": lambda s: s.types(s.wrong()),
            "no digits": lambda s: s.types("what?"),
            "wrong three times": wrong,
            "welcome": Sides.welcomes,
        },
        Sides.inviters_state,
    )


def newcomers_messages() -> set[Edge]:
    def said(sides: Sides) -> dict[str, bytes]:
        """What an honest inviter answers to this newcomer's join."""
        whole = Sides.fresh()
        whole.joins()
        whole.reveals()
        whole.types(whole.digits())
        return {"reveal": whole.inviter.reveal(), "welcome": whole.welcomes() or b""}

    def opened(open_it: Callable[[Joiner, bytes], object], what: str) -> Callable[[Sides], None]:
        def event(sides: Sides) -> None:
            with out_of_order():
                open_it(sides.joiner, said(sides)[what])

        return event

    def offer(sides: Sides, inviter: Inviter) -> None:
        with out_of_order():
            sides.joiner.open_offer(inviter.offer())

    def joins(sides: Sides) -> None:
        with out_of_order():
            sides.joiner.join()

    return tried(
        Sides.fresh,
        {
            "offer": lambda s: offer(s, s.inviter),
            "another invite's offer": lambda s: offer(s, an_inviter("other")),
            "join": joins,
            "reveal as it was promised": opened(Joiner.open_reveal, "reveal"),
            "a welcome as reveal": opened(Joiner.open_reveal, "welcome"),
            "welcome": opened(Joiner.open_welcome, "welcome"),
            "a reveal as welcome": opened(Joiner.open_welcome, "reveal"),
        },
        lambda sides: sides.joiner.stage.name.lower(),
    )


class Mailbox:
    """An invite as the relay keeps it, with a clock that is set."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.invites = Invites(MemoryStore(), clock=lambda: self.now)
        self.loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Does it; what is refused changes nothing."""
        try:
            return self.loop.run_until_complete(work)
        except RelayError:
            return None

    def opens(self) -> None:
        self.run(self.invites.open("ab" * 16, InviteCreation("cd" * 16, "ef" * 32)))

    def closes(self, reason: CloseReason) -> None:
        self.run(self.invites.close("ab" * 16, "cd" * 16, reason))

    def waits(self, seconds: int) -> None:
        self.now += seconds

    def state(self) -> str:
        found = self.run(self.invites.find("ab" * 16, "cd" * 16))
        return "none" if found is None else found.state(self.now).value


def mailboxes() -> set[Edge]:
    made: list[Mailbox] = []

    def fresh() -> Mailbox:
        made.append(Mailbox())
        return made[-1]

    try:
        return tried(
            fresh,
            {
                "opened by a member": Mailbox.opens,
                "ten minutes": lambda m: m.waits(INVITE_SECONDS),
                "nine minutes": lambda m: m.waits(INVITE_SECONDS - 60),
                **{
                    f"closed as {reason.value}": lambda m, why=reason: m.closes(why)  # type: ignore[misc]
                    for reason in CloseReason
                },
            },
            Mailbox.state,
        )
    finally:
        for mailbox in made:
            mailbox.loop.close()


MACHINES: dict[str, Callable[[], set[Edge]]] = {
    "a vault's epochs": reigns,
    "a device": devices,
    "a root": roots,
    "revoking a device": leaving,
    "an entry beyond the cutoffs": held,
    "a device that asks for the lead": asking,
    "a Core that is asked": giving,
    "a snapshot at its Core": snapshots,
    "restoring from a snapshot": restoring,
    "what was forgotten": forgets,
    "a request at its target, of what runs once": target_once,
    "a request at its target, of what may run again": target_again,
    "a request at its asker": asking_another,
    "an invite at the relay": mailboxes,
    "the inviter's messages": inviters_messages,
    "the newcomer's messages": newcomers_messages,
}
BY_SOURCE = "the inviting device"


@pytest.mark.slow
@pytest.mark.parametrize("title", MACHINES)
def test_a_machine_does_what_its_drawing_says_and_nothing_else(title: str) -> None:
    assert MACHINES[title]() == drawn_machines()[title]


def test_no_machine_is_drawn_that_nothing_compares_with_the_code() -> None:
    assert set(drawn_machines()) == {*MACHINES, BY_SOURCE}


def test_the_inviting_device_takes_its_steps_in_the_drawn_order() -> None:
    """It waits for a relay and a person, so its steps are read from its source; tests/node/safekeeping/pairing drives them."""
    source = Path(inviting.__file__).read_text(encoding="utf-8")
    taken = [
        node.value.attr.lower()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Attribute)
        and ast.unparse(node.targets[0]) == "self.step"
    ]
    edges = {before: after for before, _, after in drawn_machines()[BY_SOURCE]}
    chain = ["open"]
    while chain[-1] in edges:
        chain.append(edges[chain[-1]])
    assert chain == [step.value for step in inviting.InviteStep]
    assert sorted(taken, key=chain.index) == taken == chain


@pytest.mark.parametrize("line", ["a - b", "a --> b", "a --x-->", "a --x--> b\na --x--> b"])
def test_a_line_that_is_no_edge_or_is_drawn_twice_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"no edge|drawn twice"):
        drawn_machines(f"```\nmachine: a\n{line}\n```\n")
