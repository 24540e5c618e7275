"""Collecting: the Core takes what the devices offer, in each stream's order, and makes one batch of it.

Exactly once: an offer counts only at the next place of its stream, and an operation only if its name is not done. Rows,
acks and the sealed batch commit in one transaction, which is abandoned if another process changed the replica meanwhile.

An offer that cannot be taken (damaged, unsigned, unreadable, out of its chain) holds its stream there and is named in the
notices. Its maker, whose outbox still has it, notices as well and offers it again in a new incarnation.
"""

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from crystal_crypto.entry import Entry, parse
from crystal_crypto.errors import CryptoError, TooLarge
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.entries.batches import Batch
from crystal_mirror.entries.control_state import META_MODEL, note_forget
from crystal_mirror.entries.offers import Offer, open_offer, stands_at
from crystal_mirror.errors import TransactionStale
from crystal_mirror.history.control_entries import keep_batch
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.operations import Capture, Forget, Replace
from crystal_mirror.requests import Embed, Flow, GetMany, List, Listing
from crystal_mirror.streams.outbox import note_own
from crystal_mirror.types import ACTION_ROLES, ZERO_HASH, EntryState, Origin, Position

OFFERS_MAX = 256
"""Offers in one batch."""
OFFERS_PER_STREAM_MAX = 64
"""Offers of one stream in one batch, so that a long backfill on one device does not hold up the others."""
OPERATION_BYTES_BATCH_MAX = 512 * 1024
VECTOR_BYTES_BATCH_MAX = 512 * 1024
TEXTS_BATCH_MAX = 128
"""Texts that are embedded before their batch is committed, about a second of work. A batch with more is a backlog: committed
without vectors, found by its words, and embedded once the Core has caught up, so that new messages do not wait long."""
NEW_STREAMS_MAX = 64
"""Streams of one device, without any entry taken in, that one look reads: a thief of its token can make many."""
LIST_PAGE = 1000
FETCH_AT_ONCE = 16


@dataclass
class Inbox:
    """What one look at the streams found, in order, and the last hash of each stream read."""

    offers: list[Offer] = field(default_factory=list[Offer])
    tails: dict[tuple[bytes, bytes], tuple[int, bytes]] = field(
        default_factory=dict[tuple[bytes, bytes], tuple[int, bytes]]
    )
    bytes: int = 0
    size: int = 0
    """Bytes of the opened operations."""
    more: bool = False


@dataclass(frozen=True, slots=True)
class Collected:
    operations: int
    bytes: int
    more: bool


def collect(member: Member, model: str) -> Flow[Collected]:
    """Takes one batch of offers, applies it and leaves it sealed for ``publish``. ``model`` "": nothing is embedded.

    Raises:
        TransactionStale: another process of this device did the same; repeat the round.
    """
    position = member.replica.position()
    inbox = yield from _read_inbox(member)
    fresh, also_done, cut = _select(member, inbox)
    if not fresh and not also_done:
        return Collected(0, inbox.bytes, False)
    texts = member.replica.unembedded([offer.operation for offer in fresh])
    if cut:
        also_done = _before(also_done, fresh, inbox)
    vectors: dict[str, Sequence[bytes]] = dict.fromkeys((*_actions(fresh), *texts), ())
    if 0 < len(texts) <= TEXTS_BATCH_MAX and _same_model(member, model):
        windows: list[list[bytes]] | None = yield Embed(tuple(texts))
        if windows is not None:
            vectors.update(zip(texts, windows, strict=True))
    while True:
        try:
            _commit(member, position, fresh, also_done, vectors, inbox, model)
            break
        except TooLarge:
            if len(fresh) < 2:
                vectors = _thin(vectors)
            fresh, cut = fresh[: max(1, len(fresh) // 2)], True
            also_done = _before(also_done, fresh, inbox)
    return Collected(len(fresh), inbox.bytes, cut or inbox.more)


def _actions(offers: Sequence[Offer]) -> list[str]:
    """The texts of tool calls, which get no vectors: they are many, and found by their words."""
    return [
        piece.text
        for offer in offers
        if isinstance(offer.operation, Capture)
        for piece in offer.operation.pieces
        if piece.role in ACTION_ROLES
    ]


def _read_inbox(member: Member) -> Flow[Inbox]:
    inbox = Inbox(more=True)
    held: set[tuple[bytes, bytes]] = set()
    new: Counter[bytes] = Counter()
    after = ""
    # Junk in some streams must not hide what comes after it in the listing.
    while inbox.more and not inbox.offers:
        places, inbox.more, after = yield from _list_inbox(member, held, new, after)
        yield from _fetch(member, places, inbox, held)
    return inbox


def _fetch(
    member: Member, places: Sequence[Origin], inbox: Inbox, held: set[tuple[bytes, bytes]]
) -> Flow[None]:
    for start in range(0, len(places), FETCH_AT_ONCE):
        group = places[start : start + FETCH_AT_ONCE]
        found = yield GetMany(tuple(member.keys.conversation(*place) for place in group))
        for place, data in zip(group, found, strict=True):
            stream = (place.device, place.incarnation)
            if stream in held:
                continue
            if max(inbox.bytes, inbox.size) >= OPERATION_BYTES_BATCH_MAX:
                inbox.more = True
                return  # what a batch cannot take is not opened in vain
            offer = None if data is None else (yield from _open(member, place, data, inbox))
            if offer is None:
                held.add(stream)
                continue
            inbox.offers.append(offer)
            inbox.bytes += len(data or b"")
            inbox.size += len(offer.data)


def _list_inbox(
    member: Member, held: Container[tuple[bytes, bytes]], new: Counter[bytes], after: str
) -> Flow[tuple[list[Origin], bool, str]]:
    """The places of the next offers of each stream, contiguous per stream, after the key ``after``, without the streams in
    ``held``; whether there is more; and the last key looked at. ``new`` counts each device's new streams."""
    prefix = member.keys.conversations_prefix
    places: list[Origin] = []
    following: dict[tuple[bytes, bytes], int] = {}
    more = False
    while True:
        page: Listing = yield List(prefix, after, LIST_PAGE)
        jump = ""
        keys = page.after(after)
        for key in keys:
            before, after = after, key
            if key <= jump:
                continue
            place = member.keys.parse_stream(key)
            info = member.log.member(place[0]) if place is not None else None
            if place is None or info is None:
                continue
            device, incarnation, sequence = place
            ack = member.replica.ack(device, incarnation)
            first = (device, incarnation) not in following
            expected = following.setdefault((device, incarnation), ack + 1)
            if (device, incarnation) in held:
                jump = member.keys.beyond_stream(device, incarnation)
            elif ack < 0 and first and new[device] >= NEW_STREAMS_MAX:
                jump, more = member.keys.beyond_stream(device, incarnation), True
            elif sequence <= ack:
                jump = member.keys.conversation(device, incarnation, ack)
            elif info.revoked is not None and not info.revoked.counts(incarnation, sequence):  # §9.9-1
                if member.replica.done(Origin(*place)):
                    continue
                member.notices.put(
                    Notice.HELD_REVOKED, f"entries of the revoked device {device.hex()[:8]} are held"
                )
                jump = member.keys.beyond_stream(device, incarnation)
            elif sequence > expected:  # §10.4-6
                member.notices.put(
                    Notice.STREAM_LOST, f"a stream of {device.hex()[:8]} lacks its entry {expected}"
                )
                jump = member.keys.beyond_stream(device, incarnation)
            elif sequence - ack > OFFERS_PER_STREAM_MAX:
                jump, more = member.keys.beyond_stream(device, incarnation), True
            elif len(places) >= OFFERS_MAX:
                return places, True, before
            else:
                new[device] += ack < 0 and first
                places.append(Origin(device, incarnation, sequence))
                following[device, incarnation] = sequence + 1
            if page.more and jump > keys[-1]:
                # Skipping within the page costs nothing; a listing is the most expensive request.
                after = jump
                break
        else:
            if not page.more or not keys:
                return places, more, after


def _open(member: Member, place: Origin, data: bytes, inbox: Inbox) -> Flow[Offer | None]:
    """Checks and opens one offer; None holds its stream."""
    where = f"entry {place.sequence} of device {place.device.hex()[:8]}"
    info = member.log.member(place.device)
    assert info is not None, "only members' streams are read"
    try:
        entry = parse(data)
        if not stands_at(
            entry,
            vault=member.vault,
            device=place.device,
            incarnation=place.incarnation,
            sequence=place.sequence,
        ):
            member.notices.put(Notice.STREAM_TAMPERED, f"{where} is a copy from another place")  # §10.4-6
            return None
        entry.verify(info.signing)
    except CryptoError as error:
        member.notices.put(Notice.STREAM_TAMPERED, f"{where} does not verify: {error}")
        return None
    if not (yield from _head_known(member, entry)):  # §10.4-6
        member.notices.put(Notice.PEER_AHEAD, f"{where} names a device log that the relay does not show here")
        return None
    if not _follows(member, place, entry, inbox):  # §10.4-6
        member.notices.put(Notice.STREAM_TAMPERED, f"{where} does not follow the entry before it")
        return None
    key = member.key_for(entry.header.generation)
    try:
        if key is None:
            member.notices.put(Notice.STREAM_UNREADABLE, f"{where} needs a key that has not arrived")
            return None
        offer = open_offer(entry, key)
    except CryptoError as error:
        member.notices.put(Notice.STREAM_UNREADABLE, f"{where} cannot be opened: {error}")  # §1.2-3
        return None
    inbox.tails[place.device, place.incarnation] = (place.sequence, entry.hash)
    return offer


def _head_known(member: Member, entry: Entry) -> Flow[bool]:
    if member.log.knows_head(entry.header.log_head):
        return True
    yield from read_log(member.log, member.journal, member.keys, member.notices)
    return member.log.knows_head(entry.header.log_head)


def _tail_name(device: bytes, incarnation: bytes) -> str:
    return f"tail.{device.hex()}.{incarnation.hex()}"


def _follows(member: Member, place: Origin, entry: Entry, inbox: Inbox) -> bool:
    """Whether the entry names the stream's previous one; also True if that one's operation came another way, so its hash is
    unknown."""
    tail = inbox.tails.get((place.device, place.incarnation))
    if tail is None:
        kept = member.replica.meta_get(_tail_name(place.device, place.incarnation))
        tail = (int.from_bytes(kept[:8], "big"), kept[8:]) if kept else None
    if place.sequence == 0:
        return entry.header.previous == ZERO_HASH  # §10.3-3
    if tail is None or tail[0] != place.sequence - 1:
        return True
    return tail[1] == entry.header.previous  # §10.3-3, §10.4-6


def _select(member: Member, inbox: Inbox) -> tuple[list[Offer], list[Origin], bool]:
    """Splits the offers into those whose operation is new and the places of those that were done before."""
    fresh: list[Offer] = []
    also_done: list[Origin] = []
    names: set[Origin] = set()
    size = 0
    for index, offer in enumerate(inbox.offers):
        if offer.origin in names or member.replica.done(offer.origin):
            also_done.append(offer.carrier)
            continue
        if fresh and size + len(offer.data) > OPERATION_BYTES_BATCH_MAX:
            inbox.offers = inbox.offers[:index]
            return fresh, also_done, True
        names.add(offer.origin)
        fresh.append(offer)
        size += len(offer.data)
        if offer.carrier != offer.origin:
            also_done.append(offer.carrier)
    return fresh, also_done, False


def _before(also_done: list[Origin], fresh: list[Offer], inbox: Inbox) -> list[Origin]:
    """The places that may be called done when only ``fresh`` of the inbox is taken: those before its end."""
    last = inbox.offers.index(fresh[-1])
    inbox.offers = inbox.offers[: last + 1]
    allowed = {offer.carrier for offer in inbox.offers}
    return [place for place in also_done if place in allowed]


def _same_model(member: Member, model: str) -> bool:
    """Whether new vectors fit the vault's. If not, new text is found by its words until everything was embedded again.

    "" is the model of a Core that embeds nothing.
    """
    if not model:
        return False
    kept = member.replica.meta_get(META_MODEL)
    if kept is None or kept == model.encode():
        return True
    member.notices.put(
        Notice.MODEL_DIFFERS, f"the vault's vectors were made by {kept.decode()}, this Core has {model}"
    )
    return False


def _thin(vectors: dict[str, Sequence[bytes]]) -> dict[str, Sequence[bytes]]:
    """Drops every second window of the texts with the most, so that one operation's vectors fit an entry."""
    most = max(len(windows) for windows in vectors.values())
    return {
        text: windows[::2] if len(windows) * 2 > most > 1 else windows for text, windows in vectors.items()
    }


def _commit(
    member: Member,
    position: Position,
    fresh: Sequence[Offer],
    also_done: Sequence[Origin],
    vectors: dict[str, Sequence[bytes]],
    inbox: Inbox,
    model: str,
) -> None:
    stored: list[tuple[bytes, ...]] = []

    def take(text: str) -> Sequence[bytes]:
        if text not in vectors:
            raise TransactionStale("the memory changed while a batch was prepared")
        windows = tuple(vectors[text])
        stored.append(windows)
        return windows

    taken = {offer.carrier: offer for offer in inbox.offers}
    with member.replica.transaction() as transaction:
        if transaction.position() != position or transaction.kept(EntryState.UNSENT):
            raise TransactionStale("another process changed the mirror")
        for offer in fresh:
            transaction.apply(offer.origin, offer.operation, take)
            transaction.mark_done(offer.origin)
        if sum(len(vector) for windows in stored for vector in windows) > VECTOR_BYTES_BATCH_MAX:
            raise TooLarge("the vectors of a batch are over its limit")
        for place in also_done:
            transaction.mark_done(place)
        for device, incarnation in {(place.device, place.incarnation) for place in taken}:
            done = transaction.ack(device, incarnation)
            tail = inbox.tails.get((device, incarnation))
            if tail is not None and tail[0] == done:
                transaction.meta_set(_tail_name(device, incarnation), tail[0].to_bytes(8, "big") + tail[1])
        if any(stored):
            transaction.meta_set(META_MODEL, model.encode())
        batch = Batch(
            operations=tuple((offer.origin, offer.data) for offer in fresh),
            also_done=tuple(also_done),
            vectors=tuple(stored),
            model=model if any(stored) else "",
            digest=transaction.digest().to_bytes(),
        )
        keep_batch(member, transaction, batch, position)
        note_own(member, transaction, batch)
        if transaction.left_out or any(isinstance(offer.operation, Forget | Replace) for offer in fresh):
            note_forget(transaction, (position.epoch, position.sequence))
