"""The machines of snapshots, restoring and forgetting, as they turn out when everything is tried in every state."""

from hashlib import sha256

from crystal_core.replica import Replica
from crystal_mirror.entries.control_state import newest_snapshot, read_base
from crystal_mirror.membership.cursors import About
from crystal_mirror.operations import Capture, Forget, Piece, Remember
from crystal_mirror.replication.claim import claim
from crystal_mirror.requests import GetBlob
from crystal_mirror.retention.forgets import DAY_MS, pending_forgets
from crystal_mirror.retention.gc import snapshot_due
from crystal_mirror.round import sync_round
from crystal_mirror.snapshots.creation import is_ready, make_snapshot
from crystal_mirror.snapshots.restore import restore_pending, resume_restore, start_from_snapshot
from tests.mirror.household import MODEL, Household
from tests.support.drawings import Edge, tried

NOW = 1_800_000_000_000
_TEXT = "fact number 1"


class House:
    """A Core with some memories, and a laptop that may lead."""

    def __init__(self) -> None:
        self.home = Household()
        for number in range(3):
            self.home.core.accept(Remember(f"fact number {number}", "fact", "agent", 1))
        self.home.sync(self.home.core)
        self.laptop = self.home.add("laptop", grant=True)
        self.day = 0.0

    # A snapshot at its Core.

    def makes(self) -> None:
        self.home.store.run(make_snapshot(self.home.core))

    def is_killed_while_it_makes_one(self) -> None:
        flow = make_snapshot(self.home.core)
        self.home.store.answer(next(flow))
        flow.close()

    def leads_no_more_and_again(self) -> None:
        self.home.sync(self.laptop)
        self.home.store.run(claim(self.laptop, None))
        self.home.sync(self.laptop, self.home.core)
        self.home.store.run(claim(self.home.core, self.home.root))
        self.home.sync(self.home.core, self.laptop)

    def snapshot(self) -> str:
        if is_ready(self.home.core):
            return "ready"
        return "announced" if newest_snapshot(self.home.core.replica) else "none"

    # What was forgotten.

    def forgets(self) -> None:
        target = self.home.core.secret.forget_hash(sha256(_TEXT.encode()).digest())
        self.home.core.accept(Forget((target,)))
        self.round()

    def comes_again(self) -> None:
        self.laptop.accept(Capture("agent", "s", "", "", "", (Piece(_TEXT, "user", 1, "m", 0),)))
        self.home.sync(self.laptop)
        self.round()

    def passes_a_week(self) -> None:
        for _ in range(29):
            self.day += 0.25
            self.round()
            if snapshot_due(self.home.core, self.now) is not None:
                self.makes()

    @property
    def now(self) -> int:
        return NOW + int(self.day * DAY_MS)

    def round(self) -> None:
        for member in (self.home.core, self.laptop, self.home.core):
            self.home.store.run(sync_round(member, MODEL, about=About(now_ms=self.now)))

    def pending(self) -> str:
        return "pending" if pending_forgets(self.home.core) else "none"


class Newcomer:
    """A laptop that is new to a vault whose log below the snapshot is gone."""

    def __init__(self) -> None:
        house = House()
        house.makes()
        house.home.sync(house.home.core)
        self.home, self.laptop = house.home, house.laptop
        for key in [key for key in self.home.store if key.endswith("/mirror/0000000001/0000000000000000")]:
            del self.home.store[key]

    def is_killed_behind_a_part(self) -> None:
        pending = restore_pending(self.laptop)
        flow = resume_restore(self.laptop) if pending else start_from_snapshot(self.laptop)
        # Of the manifest, which a restore that begins reads twice, of one part, and of the next.
        last = 2 if pending else 4
        reply, parts = None, 0
        try:
            while True:
                request = flow.send(reply)
                parts += isinstance(request, GetBlob)
                if restore_pending(self.laptop) and parts == last:
                    break
                reply = self.home.store.answer(request)
        except StopIteration:
            return
        flow.close()

    def goes_on(self) -> None:
        if restore_pending(self.laptop):
            self.home.store.run(resume_restore(self.laptop))
        else:
            self.home.store.run(start_from_snapshot(self.laptop))

    def lacks_a_part(self) -> None:
        store = dict(self.home.store)
        for key in [key for key in store if "/blob/" in key]:
            del self.home.store[key]
        if not restore_pending(self.laptop):
            self.goes_on()
        self.home.store.update(store)

    def comes_to_another_digest(self) -> None:
        if not restore_pending(self.laptop):
            return
        assert isinstance(self.laptop.replica, Replica)
        self.laptop.replica.database.run("UPDATE digests SET count = count + 1 WHERE name = 'chunks'")
        self.goes_on()

    def restoring(self) -> str:
        if restore_pending(self.laptop):
            return "loading"
        return "restored" if read_base(self.laptop.replica) else "none"


def snapshots() -> set[Edge]:
    return tried(
        House,
        {
            "made and read back": House.makes,
            "killed on the way": House.is_killed_while_it_makes_one,
            "a round": lambda h: h.home.sync(h.home.core),
            "the lead goes and comes back": House.leads_no_more_and_again,
        },
        House.snapshot,
    )


def restoring() -> set[Edge]:
    return tried(
        Newcomer,
        {
            "killed after a part": Newcomer.is_killed_behind_a_part,
            "to its end": Newcomer.goes_on,
            "a part is not there": Newcomer.lacks_a_part,
            "another digest": Newcomer.comes_to_another_digest,
        },
        Newcomer.restoring,
    )


def forgets() -> set[Edge]:
    def house() -> House:
        fresh = House()
        target = fresh.home.core.secret.forget_hash(sha256(_TEXT.encode()).digest())
        fresh.round()
        fresh.home.core.accept(Forget((target,)))
        fresh.round()
        fresh.passes_a_week()
        return fresh

    return tried(
        house,
        {
            "a forget": House.forgets,
            "a forgotten text comes again": House.comes_again,
            "a round": House.round,
            "seven days": House.passes_a_week,
        },
        House.pending,
    )
