"""A vault whose Core is to be moved: `core` leads, `laptop` and `desk` may lead by a grant, `tablet` may not."""

from enum import Enum
from typing import Any

from crystal_core.replica import Replica
from crystal_mirror.handover.core import call_off, freeze, offer
from crystal_mirror.handover.successor import ask, follow_up, take, withdraw
from crystal_mirror.handover.terms import holding_of, offer_of
from crystal_mirror.membership.cursors import About
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Flow, PutNew, Request
from crystal_mirror.round import RoundReport, sync_round
from crystal_node.device.journal import SqliteJournal
from tests.mirror.household import MODEL, Household
from tests.mirror.support import seeded

START_MS = 1_760_000_000_000


class CoreStage(Enum):
    """How far a Core is in handing over, as drawn in `crystal_mirror.handover.core`."""

    CORE = "core"
    OFFERING = "offering"
    HOLDING = "holding"
    NODE = "node"


def core_stage(member: Member) -> CoreStage:
    if not member.is_core:
        return CoreStage.NODE
    if holding_of(member) is not None:
        return CoreStage.HOLDING
    return CoreStage.OFFERING if offer_of(member) is not None else CoreStage.CORE


class Moving(Household):
    """Each device's clock is `now`; a round looks at the cursors, as one does that was woken by a cursor."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START_MS
        self.laptop, self.desk = self.add("laptop", grant=True), self.add("desk", grant=True)
        self.tablet = self.add("tablet")
        self.settle()

    @property
    def devices(self) -> list[Member]:
        return [self.core, self.laptop, self.desk, self.tablet]

    @property
    def about(self) -> About:
        return About(self.now)

    def run(self, flow: Flow[Any]) -> Any:
        return self.store.run(flow)

    def round(self, member: Member, *, heed: bool = True) -> RoundReport:
        return self.store.run(sync_round(member, MODEL, about=self.about, heed_cursors=heed))

    def settle(self) -> None:
        for _ in range(2):
            for member in self.devices:
                self.round(member)

    def ask(self, member: Member, **more: Any) -> None:
        self.run(ask(member, more.get("root"), self.about))

    def look(self, member: Member) -> Any:
        return self.run(follow_up(member, self.about))

    def take(self, member: Member, **more: Any) -> Any:
        return self.run(take(member, more.get("root"), self.about))

    def withdraw(self, member: Member) -> None:
        self.run(withdraw(member, self.about))

    def offer(self, to: Member, *, ready: bool = True) -> None:
        self.run(offer(self.core, to.device_id, self.about, ready=ready))

    def call_off(self) -> None:
        self.run(call_off(self.core, self.about))

    def freeze(self) -> int:
        epoch: int = self.run(freeze(self.core, self.now))
        return epoch

    def leader(self, seen_by: Member) -> str | None:
        lead = seen_by.log.lead
        names = ("core", "laptop", "desk", "tablet")
        found = (
            name
            for name, each in zip(names, self.devices, strict=True)
            if lead and each.device_id == lead.device
        )
        return next(found, None)

    def slots(self) -> int:
        """The mirror's slots on the relay."""
        return sum(key.startswith(self.core.keys.mirror_prefix) for key in self.store)

    def digests(self) -> set[bytes]:
        return {member.replica.digest().to_bytes() for member in self.devices}

    def restarted(self, member: Member) -> Member:
        """The same device after its process was killed: what it had in memory is gone."""
        return Member.open(
            member.identity, member.vault, member.journal, member.replica, seeded("restarted"), member.root
        )

    def clone(self, member: Member) -> Member:
        """Another machine with a copy of the device's disk as it is now."""
        assert isinstance(member.journal, SqliteJournal)
        assert isinstance(member.replica, Replica)
        journal = SqliteJournal.open(":memory:")
        journal.connection.deserialize("main", member.journal.connection.serialize("main"))
        replica = member.replica.clone()
        return Member.open(member.identity, member.vault, journal, replica, seeded("clone"), member.root)


def killed_at_write(home: Moving, flow: Flow[Any], prefix: str) -> None:
    """Runs the flow up to its first write under the prefix, which lands; its maker hears of it no more."""
    reply: Any = None
    while True:
        request: Request = flow.send(reply)
        reply = home.store.answer(request)
        if isinstance(request, PutNew) and request.key.startswith(prefix):
            flow.close()
            return
