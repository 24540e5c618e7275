"""The outbox: puts this device's operations on the relay, and removes them when they are durable.

An operation leaves the outbox only when the mirror log that others read carries it (or says that its origin was done), and
what the log carries under that name is what this device made. Until then its sealed bytes are resent identically, put back
if the relay lost them, and sealed again in a new incarnation if the relay holds something else in their place.

When a stream cannot go on (its next place is taken by other bytes, or the Core has seen more of it than this device
remembers), the device starts a new incarnation. Operations keep their names, except those whose name was given to something
else with this device's key: by a clone, or by this device before it was restored from a backup. These get new names, which
all copies of the device derive in the same way.
"""

from collections.abc import Container, Set
from hashlib import sha256

import msgspec

from crystal_crypto.entry import Entry, Kind, parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.entries.batches import Batch, opened_batch
from crystal_mirror.entries.control_state import is_remade, read_base
from crystal_mirror.entries.offers import Offer, PackedOrigin, open_offer, stands_at
from crystal_mirror.membership.cutoffs import listed_places
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.operations import (
    ChangeFiles,
    DropFile,
    Forget,
    LinkProjects,
    PutFile,
    Replace,
    decode_operation,
)
from crystal_mirror.ports import (
    JournalTransaction,
    OutboxRow,
    OutboxState,
    ReplicaTransaction,
    ReplicaView,
    Stream,
)
from crystal_mirror.requests import Flow, Get, GetMany, PutNew, RetryBudget
from crystal_mirror.types import INCARNATION_BYTES, ZERO_HASH, EntryState, Origin

META_OWN = "own.durable"
SUPPRESSED_TABLE = "suppressed"
"""The table of forgotten texts in the state digest."""
_PAGE = 64
_ANOTHER_COPY = "another copy of this device has written to the relay"

_Own = list[tuple[PackedOrigin, bytes]]
_own_decoder = msgspec.msgpack.Decoder(_Own)
_own_encoder = msgspec.msgpack.Encoder()


def push(member: Member) -> Flow[int]:
    """Puts pending operations on the relay, in order. Returns how many bytes were stored.

    May begin a new incarnation; what is pending is then sealed again and put by the same call.
    """
    pushed = 0
    retries = RetryBudget("an entry of this device")
    if member.full_check or not member.names_compared:
        # The first round may have ended before this point: the relay was away.
        yield from _give_names_up(member)
        member.names_compared = True
    yield from _check_first_stored(member)
    while True:
        row = member.journal.first_row(OutboxState.PENDING)
        if row is None or not _keys_are_here(member):  # §9.7-6
            return pushed
        sealed = parse(row.sealed).header
        if sealed.generation < member.log.generation or sealed.sender != member.device_id:  # §9.7-3
            # Nothing is sent that a device known to be revoked could read. Checked for each row, since another process of
            # this device that has not read the log yet may still add to the outbox. The row may also have been sealed by
            # the device that this home was before. The old places are not put again, so this is the last chance to find
            # what another copy wrote there.
            used_up = yield from _used_up(member, row)
            if used_up:
                member.notices.put(Notice.RESTORED, _ANOTHER_COPY)
            _begin_new_stream(member, used_up)
            continue
        key = member.keys.conversation(member.device_id, row.incarnation, row.sequence)
        created = yield PutNew(key, row.sealed)
        if not created:
            there = yield Get(key)
            if there != row.sealed:
                retries.spend()
            if there is None:
                continue
            if there != row.sealed:
                yield from _give_way(member, row, there)
                continue
        else:
            pushed += len(row.sealed)
        with member.journal.transaction() as transaction:
            transaction.set_row_state(row.incarnation, row.sequence, OutboxState.STORED)


def _keys_are_here(member: Member) -> bool:
    """Whether this device can seal in the generation in force; raises a notice if not."""
    if member.key_for(member.log.generation) is not None:
        return True
    member.notices.put(
        Notice.KEYS_WITHHELD,
        f"the keys of generation {member.log.generation} were not sealed to this device; what it records waits here",
    )
    return False


def _check_first_stored(member: Member) -> Flow[None]:
    """Checks that the relay still holds the first stored operation that the Core has yet to order; else it is put back."""
    row = member.journal.first_row(OutboxState.STORED)
    if row is None:
        return
    there = yield Get(member.keys.conversation(member.device_id, row.incarnation, row.sequence))
    if there == row.sealed:
        return
    if there is None:
        member.notices.put(
            Notice.STREAM_LOST, f"the relay lost entry {row.sequence} of this device; it is put back"
        )
        with member.journal.transaction() as transaction:
            transaction.set_all_states(OutboxState.STORED, OutboxState.PENDING)  # §11.13-1
        return
    yield from _give_way(member, row, there)


def _give_way(member: Member, row: OutboxRow, there: bytes) -> Flow[None]:
    """Starts a new incarnation because the place of ``row`` holds other bytes.

    If this device's own key signed them, another copy of it wrote on from here, and the names that it gave are used up:
    those of operations whose own place holds other such bytes.
    """
    used_up: set[Origin] = set()
    if _signed_by_me(member, row.incarnation, row.sequence, there):
        member.notices.put(Notice.RESTORED, _ANOTHER_COPY)
        used_up = yield from _used_up(member, row)
    else:
        member.notices.put(
            Notice.STREAM_TAMPERED, f"the relay holds foreign bytes as entry {row.sequence} of this device"
        )
    _begin_new_stream(member, used_up)


def _begin_new_stream(member: Member, used_up: Container[Origin]) -> None:
    with member.journal.transaction() as transaction:
        renamed = restart_stream(member, transaction, used_up)
    for before, after in renamed.items():
        member.rename_provisional(before, after)


def _used_up(member: Member, row: OutboxRow) -> Flow[set[Origin]]:
    """The names of this stream, from ``row`` on, whose places hold what another copy of this device made."""
    names = [
        name
        for name in member.journal.names()
        if name.origin == Origin(member.device_id, row.incarnation, name.sequence)
        and (name.incarnation, name.sequence >= row.sequence) == (row.incarnation, True)
    ]
    used_up: set[Origin] = set()
    for start in range(0, len(names), _PAGE):
        some = names[start : start + _PAGE]
        found = yield GetMany(tuple(member.keys.conversation(*name.origin) for name in some))
        for name, data in zip(some, found, strict=True):
            mine = member.journal.row(name.incarnation, name.sequence)
            if data is None or mine is None or data == mine.sealed:
                continue
            if _signed_by_me(member, name.incarnation, name.sequence, data):  # §10.4-3
                used_up.add(name.origin)
    return used_up


def _give_names_up(member: Member) -> Flow[None]:
    """Finds names that are used up: before it was restored from a backup, this device had given them to other operations,
    sealed these again in another stream, and left the places that the names tell of empty.

    ``settle`` finds what the Core has taken in of that stream; this finds what only the relay has.
    """
    stream = member.journal.stream()
    waiting = {
        name.origin: name.digest
        for name in member.journal.names()
        if name.state is OutboxState.PENDING  # what is stored, the Core may take under its name
    }
    if stream is None or not waiting:
        return
    places = [
        place
        for place in (yield from listed_places(member, member.device_id))
        if place.incarnation != stream.incarnation
        and place.sequence > member.replica.ack(place.device, place.incarnation)
    ]
    used_up: set[Origin] = set()
    overtaken = False
    for start in range(0, len(places), _PAGE):
        some = places[start : start + _PAGE]
        found = yield GetMany(tuple(member.keys.conversation(*place) for place in some))
        for place, data in zip(some, found, strict=True):
            offer = _mine(member, place, data) if data is not None else None
            if offer is None:
                continue
            digest = sha256(offer.data).digest()
            if waiting.get(offer.origin, digest) != digest:  # §10.4-3
                used_up.add(offer.origin)
            overtaken |= offer.origin.incarnation == stream.incarnation and (
                offer.origin.sequence >= stream.sequence
            )
    if used_up:
        used_up -= yield from _there_already(member, used_up)
    if not used_up and not overtaken:
        return
    member.notices.put(Notice.RESTORED, _ANOTHER_COPY)
    _begin_new_stream(member, used_up)


def _there_already(member: Member, names: set[Origin]) -> Flow[set[Origin]]:
    """Those whose row the relay holds, though this device has not heard of it."""
    rows = [
        (name, row)
        for name in member.journal.names()
        if name.origin in names and (row := member.journal.row(name.incarnation, name.sequence))
    ]
    found = yield GetMany(
        tuple(member.keys.conversation(member.device_id, row.incarnation, row.sequence) for _, row in rows)
    )
    return {name.origin for (name, row), data in zip(rows, found, strict=True) if data == row.sealed}


def _mine(member: Member, place: Origin, data: bytes) -> Offer | None:
    """The offer that this device's key signed for that place; None if there is none that opens."""
    if not _signed_by_me(member, place.incarnation, place.sequence, data):
        return None
    entry = parse(data)
    key = member.key_for(entry.header.generation)
    try:
        return open_offer(entry, key) if key is not None else None
    except CryptoError:
        return None


def _signed_by_me(member: Member, incarnation: bytes, sequence: int, data: bytes) -> bool:
    try:
        entry: Entry = parse(data)
        entry.verify(member.identity.signing.public)
    except CryptoError:
        return False
    return stands_at(
        entry, vault=member.vault, device=member.device_id, incarnation=incarnation, sequence=sequence
    )


def restart_stream(
    member: Member, transaction: JournalTransaction, rename: Container[Origin] = ()
) -> dict[Origin, Origin]:
    """Begins a new incarnation and seals everything in the outbox again in it. Returns the old names of the operations in
    ``rename`` with their new names; all others keep theirs."""
    names = transaction.names()
    transaction.set_stream(Stream(member.random(INCARNATION_BYTES), 0, ZERO_HASH))  # §10.4-2
    renamed: dict[Origin, Origin] = {}
    for name in names:
        row = transaction.row(name.incarnation, name.sequence)
        assert row is not None, "nothing else writes in this transaction"
        transaction.remove_row(row.incarnation, row.sequence)
        origin = row.origin
        if origin in rename:
            origin = renamed[row.origin] = other_name(member, row.origin, name.digest)
        member.seal_row(transaction, row.operation, origin)
    return renamed


def other_name(member: Member, origin: Origin, digest: bytes) -> Origin:
    """The new name of an operation (by the hash of its bytes) whose own name was used up.

    Derived, not drawn: copies of a device that find out independently give it the same one. By a key of the device's own: the
    relay is asked for what stands under that name.
    """
    named = origin.device + origin.incarnation + origin.sequence.to_bytes(8, "big") + digest
    return Origin(origin.device, member.identity.other_incarnation(named), 0)  # §10.4-4


def note_own(member: Member, transaction: ReplicaTransaction, batch: Batch) -> None:
    """Records, with the rows of a batch, which of this device's operations it carries, so that ``settle`` need not search
    the log."""
    mine = {o: sha256(data).digest() for o, data in batch.operations if o.device == member.device_id}
    if mine:
        _keep_own(transaction, _own(transaction) | mine)


def _own(view: ReplicaView) -> dict[Origin, bytes]:
    """What ``note_own`` recorded and is not settled yet, as hashes."""
    kept = view.meta_get(META_OWN)
    return {Origin(*named): digest for named, digest in _own_decoder.decode(kept)} if kept else {}


def _keep_own(transaction: ReplicaTransaction, own: dict[Origin, bytes]) -> None:
    transaction.meta_set(META_OWN, _own_encoder.encode([*own.items()]) if own else None)


def settle_carried(member: Member) -> int:
    """As ``settle``, of the operations that ``note_own`` recorded and that have the name of their own place: nearly all. Takes
    time for these alone, and not for the whole outbox. The others, and what ``settle`` checks of the stream, are left to it.
    """
    own = _own(member.replica)
    if not own or member.replica.kept(EntryState.UNSENT):
        return 0
    settled: list[Origin] = []
    left: dict[Origin, bytes] = {}
    with member.journal.transaction() as transaction:
        if is_remade(member.replica):  # §12.2-7
            return 0
        for origin, digest in own.items():
            row = transaction.name(origin.incarnation, origin.sequence)
            if (
                row is not None
                and (row.origin, row.digest) == (origin, digest)
                and member.replica.done(origin)
            ):  # §10.4-5
                transaction.remove_row(row.incarnation, row.sequence)
                settled.append(origin)
            else:
                left[origin] = digest
    return _settled(member, settled, left)


def settle(member: Member) -> int:
    """Removes durable operations from the outbox. Returns how many.

    A row stays while its place in the stream is open, even if its operation came into the log another way: without the
    entry the stream would have a gap that could never be closed. If the log carries other bytes under an operation's name,
    the operation is offered again under another name.

    Must be called only when everything in the replica is on the relay: it does nothing while mirror entries are unsent.
    """
    if member.replica.kept(EntryState.UNSENT):
        return 0
    carried = _own(member.replica)
    done = {row.origin for row in member.journal.names() if member.replica.done(row.origin)}
    if done - carried.keys():
        carried = _carried(member, done)
    shown = _shown(member, done - carried.keys())
    settled: list[Origin] = []
    clashes: set[Origin] = set()
    renamed: dict[Origin, Origin] = {}
    with member.journal.transaction() as transaction:
        if is_remade(member.replica):  # §12.2-7
            return 0
        stream = transaction.stream()
        for row in transaction.names():
            if row.origin not in done or not member.replica.done(row.origin):
                continue  # another process of this device may have wiped the rows meanwhile
            if carried.get(row.origin) != row.digest and not (
                row.origin not in carried and row.origin in shown
            ):
                clashes.add(row.origin)  # §10.4-3
            elif member.replica.done(Origin(member.device_id, row.incarnation, row.sequence)):  # §10.4-5
                transaction.remove_row(row.incarnation, row.sequence)
                settled.append(row.origin)
        if clashes or not _goes_on(member, transaction, stream):
            renamed = restart_stream(member, transaction, clashes)
    for before, after in renamed.items():
        member.rename_provisional(before, after)
    return _settled(member, settled, {})


def _settled(member: Member, settled: list[Origin], left: dict[Origin, bytes]) -> int:
    """Notes in the replica what has left the outbox. ``left``: what ``note_own`` recorded and is not settled yet."""
    for origin in settled:
        member.replica.drop_provisional(origin)
    if member.replica.meta_get(META_OWN) is not None:
        with member.replica.transaction() as replica:
            _keep_own(replica, left)
    return len(settled)


def _shown(member: Member, origins: Set[Origin]) -> set[Origin]:
    """Those whose effect the state shows."""
    if not origins:
        return set()
    names = [name for name in member.journal.names() if name.origin in origins]
    rows = [member.journal.row(name.incarnation, name.sequence) for name in names]
    return {row.origin for row in rows if row is not None and has_effect(member, row)}


def _goes_on(member: Member, transaction: JournalTransaction, stream: Stream | None) -> bool:
    """Whether the stream fits what the log says is done of it.

    It does not if more is done than was ever made here (another copy wrote it), or if places are open that have left the
    outbox (the log was done with them, and was replaced by one that is not): that gap could never be closed.
    """
    if stream is None:
        return True
    ack = member.replica.ack(member.device_id, stream.incarnation)
    waiting = [name.sequence for name in transaction.names() if name.incarnation == stream.incarnation]
    return min(waiting, default=stream.sequence) <= ack + 1 <= stream.sequence  # §10.4-2


def _carried(member: Member, origins: Container[Origin]) -> dict[Origin, bytes]:
    """What the kept log carries under these names, as hashes. Opens the whole log, for what ``note_own`` did not see."""
    found: dict[Origin, bytes] = {}
    for epoch in range(1, member.replica.position().epoch + 1):
        first = 0
        while page := member.replica.entries(epoch, first, _PAGE):
            first = page[-1].sequence + 1
            for kept in page:
                entry = parse(kept.data) if kept.state is EntryState.SENT else None
                key = member.key_for(entry.header.generation) if entry else None
                if entry is None or key is None or entry.header.kind is not Kind.BATCH:
                    continue
                for origin, data in opened_batch(entry, key).operations:
                    if origin in origins:
                        found[origin] = sha256(data).digest()
    return found


def has_effect(member: Member, row: OutboxRow) -> bool:
    """Whether the state already shows what an operation, whose name is done, would do.

    Needed where the log was read from a snapshot on and does not hold the entry that carried the operation; without a
    snapshot under the state the result is False, since the log is kept from its beginning. The operation is applied and
    rolled back: if that adds nothing, it has its effect; a link of projects, if that changes nothing. If it would bring back a
    forgotten text it counts as done, because tombstones win. A file's operation always counts as done: files are compared
    with the tree in every round. A forget or a replace never does: that it adds nothing does not show that it was done.
    """
    if read_base(member.replica) is None:
        return False
    operation = decode_operation(row.operation)
    if isinstance(operation, Forget | Replace):
        return False
    if isinstance(operation, PutFile | DropFile | ChangeFiles):
        return True
    before = after = dict[str, int]()
    same = False
    try:
        with member.replica.transaction() as transaction:
            before, digest = _counts(transaction), transaction.digest()
            transaction.apply(row.origin, operation, lambda _text: ())
            after, same = _counts(transaction), transaction.digest() == digest
            raise _TriedOut
    except _TriedOut:
        pass
    if isinstance(operation, LinkProjects):
        return same
    if after.get(SUPPRESSED_TABLE, 0) < before.get(SUPPRESSED_TABLE, 0):
        return True
    return not any(count > before.get(name, 0) for name, count in after.items())


def _counts(view: ReplicaView) -> dict[str, int]:
    return {table.name: table.count for table in view.digest().tables}


class _TriedOut(Exception):
    """Rolls a trial back."""
