"""Packs: runs of the mirror's slots in one blob each, so that a device that was away for a week reads a few large objects
instead of thousands of small ones.

A pack holds the sealed bytes of its slots as they are, void ones included. A reader judges, chains and applies each as if
it had fetched the slot, and fetches what a pack lacks slot by slot, so a pack needs no trust. The Core makes packs of what
it has published and lists all that are still in use in a control entry; its cursor tells where the newest list is.

Content of the blob: a MessagePack array of the slots' bytes, in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from crystal_crypto.entry import parse
from crystal_crypto.errors import UNDECODABLE, CryptoError
from crystal_mirror.entries.batches import PACKS_MAX, Pack, opened_batch
from crystal_mirror.entries.control_state import Place, packs_of, published_floor
from crystal_mirror.history.slots import SlotKind, judge_slot
from crystal_mirror.membership.cursors import read_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import blob_name
from crystal_mirror.requests import Flow, Get
from crystal_mirror.snapshots.blobs import BlobDamaged, BlobRef, get_blob, put_verified
from crystal_mirror.types import EntryState, KeptEntry, Position

PACK_SLOTS_MIN = 64
"""Fewer slots than this are not worth a pack: such entries are large by themselves."""
PACK_SLOTS_MAX = 512
PACK_BYTES = 3 * 1024 * 1024
"""Approximate bytes of entries in one pack; a reader holds it in memory."""
PACKS_AT_ONCE = 8
"""Packs made in one pass."""
META_LOOKED = "packs.looked"
READ_FROM = 48
"""Slots in a row that a reader fetches one by one before it looks for packs."""
_PAGE = 256

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[bytes])
_place_decoder = msgspec.msgpack.Decoder(tuple[int, int])


def make_packs(member: Member) -> Flow[tuple[Pack, ...] | None]:
    """Packs what is published and not packed yet. Returns the new list for a control entry; None if there is nothing new."""
    packs = list(packs_of(member.replica))
    made = 0
    epoch, sequence = _first_unpacked(member, packs)
    while made < PACKS_AT_ONCE and len(packs) < PACKS_MAX:
        run = _run(member, epoch, sequence)
        if run is None:
            break
        if len(run) >= PACK_SLOTS_MIN:
            ref, _ = yield from put_verified(member, packed([kept.data for kept in run]))
            packs.append(Pack(run[0].epoch, run[0].sequence, len(run), ref.content, ref.length, ref.named))
            made += 1
        epoch, sequence = run[-1].epoch, run[-1].sequence + 1
        if not made:
            with member.replica.transaction() as transaction:
                transaction.meta_set(META_LOOKED, _encoder.encode((epoch, sequence)))
    return tuple(packs) if made else None


def packed(slots: Sequence[bytes]) -> bytes:
    """The content of a pack's blob."""
    return _encoder.encode(list(slots))


def unpacked(content: bytes) -> list[bytes]:
    """Raises msgspec.MsgspecError."""
    return _decoder.decode(content)


def dead_packs(member: Member) -> list[Pack]:
    """The packs whose slots are all below the floor."""
    floor = published_floor(member.replica)
    # §12.3-4
    return [pack for pack in packs_of(member.replica) if (pack.epoch, pack.first + pack.count) <= floor]


def pack_name(member: Member, pack: Pack) -> bytes:
    return blob_name(member.secret, pack.content, pack.named)


@dataclass
class PackReader:
    """Gives a reader slots from packs once there turn out to be many to read."""

    slots_read: int = 0
    _looked: bool = False
    _packs: Sequence[Pack] = ()
    _held: dict[Place, bytes] = field(default_factory=dict[Place, bytes])

    def slots(self, member: Member, position: Position) -> Flow[list[bytes]]:
        """The bytes of slots from ``position`` on, as far as packs have them. An empty list means nothing."""
        if self.slots_read < READ_FROM:
            return []
        if not self._looked:
            self._looked = True
            self._packs = yield from _find_packs(member, position)
        place = (position.epoch, position.sequence)
        if place not in self._held:
            self._held.clear()
            yield from self._fetch(member, place)
        found: list[bytes] = []
        while (data := self._held.get(place)) is not None:
            found.append(data)
            place = (place[0], place[1] + 1)
        return found

    def give_up(self) -> None:
        """Makes the reader fetch slots one by one from here on."""
        self._packs = ()
        self._held.clear()

    def _fetch(self, member: Member, place: Place) -> Flow[None]:
        for pack in self._packs:
            if pack.epoch == place[0] and pack.first <= place[1] < pack.first + pack.count:
                try:
                    content = yield from get_blob(member, BlobRef(pack.content, pack.length, pack.named))
                    slots = unpacked(content)
                except (BlobDamaged, CryptoError, *UNDECODABLE):
                    return  # the slots themselves are still there
                for number, data in enumerate(slots[: pack.count]):
                    self._held[pack.epoch, pack.first + number] = data
                return


def _find_packs(member: Member, position: Position) -> Flow[Sequence[Pack]]:
    """The newest list of packs named by a device's cursor, if an entry by its epoch's Core states it."""
    told = {cursor.packs for cursor in (yield from read_cursors(member)) if cursor.packs is not None}
    for place in sorted(told, reverse=True):
        if place <= (position.epoch, position.sequence):
            return ()
        data: bytes | None = yield Get(member.keys.mirror(*place))
        packs = _stated(member, place, data) if data is not None else None
        if packs is not None:
            return packs
    return ()


def _stated(member: Member, place: Place, data: bytes) -> Sequence[Pack] | None:
    try:
        entry = parse(data)
        slot = judge_slot(data, Position(*place, entry.header.previous), member.log)
        key = member.key_for(entry.header.generation)
        if slot.kind is not SlotKind.BATCH or key is None:
            return None
        return opened_batch(entry, key).packs
    except CryptoError:
        return None


def _first_unpacked(member: Member, packs: Sequence[Pack]) -> Place:
    oldest = member.replica.oldest_kept() or (0, 0)
    kept = member.replica.meta_get(META_LOOKED)
    looked = _place_decoder.decode(kept) if kept else (0, 0)
    ends = [(pack.epoch, pack.first + pack.count) for pack in packs]
    return max(oldest, looked, *ends) if ends else max(oldest, looked)


def _run(member: Member, epoch: int, sequence: int) -> list[KeptEntry] | None:
    """The next entries that fill a pack; None if there are not enough yet. A run ends with its epoch."""
    run: list[KeptEntry] = []
    size = 0
    position = member.replica.position()
    while epoch <= position.epoch:
        page = member.replica.entries(epoch, sequence, _PAGE)
        for kept in page:
            if kept.state is EntryState.UNSENT:
                return None
            run.append(kept)
            size += len(kept.data)
            if size >= PACK_BYTES or len(run) >= PACK_SLOTS_MAX:
                return run
            sequence = kept.sequence + 1
        if not page:
            if epoch == position.epoch:
                return None
            if run:
                return run
            epoch, sequence = epoch + 1, 0
    return None
