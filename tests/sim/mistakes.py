"""Old mistakes, to be put back on purpose: each undoes one rule of the real code, and the simulator has to notice.

Most were faults of the prototype, the rest are those that a protocol of this kind invites. A mistake is a context manager that
patches one function or a few; inside, everything else is the real code. Names that a module has imported are patched there.
"""

# pyright: reportPrivateUsage=false
# Mistakes are made in the middle of things.

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from crystal_core.state import acks
from crystal_crypto.entry import Entry, Kind, parse
from crystal_crypto.errors import CryptoError
from crystal_crypto.identity import VerifyKey
from crystal_mirror import round as sync
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.entries.batches import Batch
from crystal_mirror.history.slots import VOID, Slot, SlotKind
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import Capture, Operation
from crystal_mirror.ports import OutboxState, ReplicaTransaction
from crystal_mirror.replication import claim, collect, publish, pull, rebuild
from crystal_mirror.requests import Flow, GetMany, List, Listing, PutNew, Request
from crystal_mirror.types import EntryState, Origin, Position
from tests.sim.kept_mistakes import KEPT_MISTAKES
from tests.sim.store import SimStore

Mistake = Callable[[], AbstractContextManager[Any]]
Applied = Sequence[tuple[Origin, Operation]]


@contextmanager
def first_reader_deletes() -> Generator[None]:
    """A mirror entry is gone from the relay once somebody has fetched it."""
    honest = SimStore.perform

    def perform(self: SimStore, device: str, request: Request) -> Any:
        reply = honest(self, device, request)
        if isinstance(request, GetMany):
            for key in request.keys:
                if "/mirror/" in key:
                    self.objects.pop(key, None)
        return reply

    def never(member: Member) -> Flow[int]:
        yield from ()
        return 0

    with patch.object(SimStore, "perform", perform), patch.object(sync, "restore_mirror", never):
        yield


def lists_end_after_a_page() -> AbstractContextManager[Any]:
    """A listing's first page is taken for all of it, and a gap before what it shows is jumped over."""

    def list_inbox(member: Member, *_rest: object) -> Flow[tuple[list[Origin], bool, str]]:
        page: Listing = yield List(member.keys.conversations_prefix, "", 1000)
        places = [place for key in page.keys if (place := member.keys.parse_stream(key))]
        highest: dict[tuple[bytes, bytes], int] = {}
        for place in places:
            highest[place[:2]] = max(place[2], highest.get(place[:2], -1))
        last = [Origin(*stream, sequence) for stream, sequence in sorted(highest.items())]
        return [place for place in last if not member.replica.done(place)], False, ""

    return patch.object(collect, "_list_inbox", list_inbox)


def what_cannot_be_opened_is_skipped() -> AbstractContextManager[Any]:
    """An offer that does not verify counts as taken."""
    honest = collect._open

    def skip(member: Member, place: Origin, data: bytes, inbox: collect.Inbox) -> Flow[Any]:
        offer = yield from honest(member, place, data, inbox)
        if offer is None:
            with member.replica.transaction() as transaction:
                transaction.mark_done(place)
        return offer

    return patch.object(collect, "_open", skip)


def the_history_is_not_bound() -> AbstractContextManager[Any]:
    """A mirror entry is taken in any slot and after any other, if only the Core has signed it."""

    def judge(data: bytes, _position: Position, log: DeviceLog) -> Slot:
        try:
            entry = parse(data)
        except CryptoError:
            return VOID
        lead = log.lead_of(entry.header.epoch)
        if entry.header.kind is not Kind.BATCH or lead is None or lead.device != entry.header.sender:
            return VOID
        return Slot(SlotKind.BATCH, entry)

    return patch.object(pull, "judge_slot", judge)


@contextmanager
def replays_are_applied_again() -> Generator[None]:
    """What is done is not looked at: an operation that is offered again is applied again."""

    def undone(_database: object, _origin: Origin) -> bool:
        return False

    with patch.object(acks, "done", undone):
        yield


def senders_are_not_checked() -> AbstractContextManager[Any]:
    """Signatures verify, whoever signed."""

    def verify(_self: Entry, _key: VerifyKey) -> None:
        return None

    return patch.object(Entry, "verify", verify)


def two_cores_split_the_traffic() -> AbstractContextManager[Any]:
    """A device goes on as Core after another one has taken the lead."""

    def is_core(self: Member) -> bool:
        return any(
            (lead := self.log.lead_of(epoch)) is not None and lead.device == self.device_id
            for epoch in range(1, self.replica.position().epoch + 1)
        )

    return patch.object(Member, "is_core", property(is_core))


def a_seal_ends_nothing() -> AbstractContextManager[Any]:
    """Entries behind a seal are read on as if it were not there."""
    honest = Slot.after

    def after(self: Slot, position: Position) -> Position:
        if self.kind is SlotKind.SEAL and self.entry is not None:
            return Position(position.epoch, position.sequence + 1, self.entry.hash)
        return honest(self, position)

    return patch.object(Slot, "after", after)


def forgets_and_memories_do_not_travel() -> AbstractContextManager[Any]:
    """Only captures leave the device; the rest counts as durable at once."""
    honest = Member.accept_many

    def accept_many(self: Member, operations: Sequence[Operation], extra: Any = None) -> list[Origin]:
        origins = honest(self, operations, extra)
        with self.journal.transaction() as transaction:
            for origin, operation in zip(origins, operations, strict=True):
                if not isinstance(operation, Capture):
                    transaction.remove_row(origin.incarnation, origin.sequence)
        return origins

    return patch.object(Member, "accept_many", accept_many)


def a_lost_reply_doubles() -> AbstractContextManager[Any]:
    """A place that is taken, be it by the same bytes, is taken for another's: the operation is offered anew."""

    def push(member: Member) -> Flow[int]:
        while (row := member.journal.first_row(OutboxState.PENDING)) is not None:
            created = yield PutNew(
                member.keys.conversation(member.device_id, row.incarnation, row.sequence), row.sealed
            )
            with member.journal.transaction() as transaction:
                if created:
                    transaction.set_row_state(row.incarnation, row.sequence, OutboxState.STORED)
                else:
                    transaction.remove_row(row.incarnation, row.sequence)
                    member.seal_row(transaction, row.operation, None)
        return 0

    return patch.object(sync, "push", push)


@contextmanager
def the_cursor_commits_apart() -> Generator[None]:
    """The position is moved in a transaction of its own, before the rows."""
    honest = pull.take_slot

    def take_slot(member: Member, slot: Slot, data: bytes, position: Position) -> pull.SlotResult:
        if slot.kind is SlotKind.BATCH:
            with member.replica.transaction() as transaction:
                transaction.set_position(slot.after(position))
            with member.replica.transaction() as transaction:
                transaction.set_position(position)
        return honest(member, slot, data, position)

    with patch.object(pull, "take_slot", take_slot):
        yield


def the_outbox_is_purged_when_stored() -> AbstractContextManager[Any]:
    """What the relay has is let go of; that it may lose it again is forgotten."""

    def settle(member: Member) -> int:
        row = member.journal.first_row(OutboxState.STORED)
        if row is None:
            return 0
        with member.journal.transaction() as transaction:
            transaction.remove_row(row.incarnation, row.sequence)
        return 1

    return patch.object(sync, "settle", settle)


def vectors_are_made_anew_by_every_device() -> AbstractContextManager[Any]:
    """A reader does not take the Core's vectors, and does not compare the digest."""

    def other(_text: str) -> list[bytes]:
        return [bytes(16)]

    def apply(
        _member: Member, transaction: ReplicaTransaction, _batch: Batch, operations: Applied, *_rest: object
    ) -> None:
        for origin, operation in operations:
            transaction.apply(origin, operation, other)
            transaction.mark_done(origin)

    return patch.object(pull, "_apply", apply)


def a_void_slot_jams() -> AbstractContextManager[Any]:
    """Junk in a slot stops every reader there."""
    honest = pull.take_slot

    def take_slot(member: Member, slot: Slot, data: bytes, position: Position) -> pull.SlotResult:
        if slot.kind is SlotKind.VOID:
            return pull.SlotResult(pull.PullOutcome.HELD)
        return honest(member, slot, data, position)

    return patch.object(pull, "take_slot", take_slot)


def nothing_is_offered_again() -> AbstractContextManager[Any]:
    """Going over to another history drops what only the own branch had."""

    def forgotten(_member: Member, _orphans: object) -> None:
        return None

    return patch.object(rebuild, "reoffer", forgotten)


def the_lead_is_taken_without_a_seal() -> AbstractContextManager[Any]:
    """A claimant starts its epoch without closing the one before."""

    def finish(member: Member) -> Flow[None]:
        yield from claim._follow(member)
        lead = member.log.lead
        assert lead is not None
        position = member.replica.position()
        with member.replica.transaction() as transaction:
            transaction.set_position(Position(lead.epoch, 0, position.previous))

    return patch.multiple(claim, finish_claim=finish)


def stored_without_looking() -> AbstractContextManager[Any]:
    """A mirror slot that is taken is taken for the own entry."""

    def publish_blindly(member: Member) -> Flow[publish.Published]:
        for entry in member.replica.kept(EntryState.UNSENT):
            yield PutNew(member.keys.mirror(entry.epoch, entry.sequence), entry.data)
            with member.replica.transaction() as transaction:
                transaction.set_entry_state(entry.epoch, entry.sequence, EntryState.SENT)
        return publish.Published.DONE

    return patch.object(sync, "publish", publish_blindly)


def two_pollers_at_once() -> AbstractContextManager[Any]:
    """A batch is committed whatever another process of this device did meanwhile."""
    honest = collect._commit

    def commit(member: Member, _position: Position, *rest: Any) -> None:
        honest(member, member.replica.position(), *rest)

    return patch.object(collect, "_commit", commit)


MISTAKES: dict[str, Mistake] = {
    mistake.__name__.replace("_", " "): mistake
    for mistake in (
        first_reader_deletes,
        lists_end_after_a_page,
        what_cannot_be_opened_is_skipped,
        the_history_is_not_bound,
        replays_are_applied_again,
        senders_are_not_checked,
        two_cores_split_the_traffic,
        a_seal_ends_nothing,
        forgets_and_memories_do_not_travel,
        a_lost_reply_doubles,
        the_cursor_commits_apart,
        the_outbox_is_purged_when_stored,
        vectors_are_made_anew_by_every_device,
        a_void_slot_jams,
        nothing_is_offered_again,
        the_lead_is_taken_without_a_seal,
        stored_without_looking,
        two_pollers_at_once,
        *KEPT_MISTAKES,
    )
}


@dataclass(frozen=True)
class CrashesIn:
    """A mistake that only a crash between two commits can show: every other crash point of the script is tried: each
    commit has one on either side."""

    script: str
    first: int = 1
    """Where it was seen last: tried before all others."""


FOUND_BY: dict[str, str | int | CrashesIn] = {
    "what cannot be opened is skipped": 33,
    "senders are not checked": 12,
    "two cores split the traffic": "handover",
    "a seal ends nothing": "handover",
    "a lost reply doubles": 4,
    "the cursor commits apart": CrashesIn("handover", 165),
    "a void slot jams": 12,
    "nothing is offered again": 20,
    "the lead is taken without a seal": "handover",
    "stored without looking": "restored",
    **dict.fromkeys((mistake.__name__.replace("_", " ") for mistake in KEPT_MISTAKES), "keeping"),
}
"""The run that is tried first for a mistake: a script's name or a seed. Only to save time: the others follow."""
