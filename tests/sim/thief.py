"""Somebody with a device's keys, or a root, who writes to the relay whatever these keys can sign; and what honest devices hold.

A thief does not run the product: it seals entries by hand, with any header, and the relay stores them where it wants, over
other objects too. It knows what the keys that it has can open, and sees the whole relay.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

from crystal_crypto.entry import Channel, Frame, Header, Kind, parse, seal
from crystal_crypto.hierarchy import GenerationKey
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.records import Details, Record
from crystal_mirror.entries.batches import Batch, encode_batch, seal_mirror
from crystal_mirror.entries.offers import seal_offer
from crystal_mirror.membership.authority import Authority, seal_record
from crystal_mirror.membership.cursors import read_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import Remember, encode_operation
from crystal_mirror.ports import Stream
from crystal_mirror.store_keys import StoreKeys
from crystal_mirror.types import Origin, Position
from tests.sim.device import Home
from tests.sim.store import SimStore
from tests.sim.world import World

PLANTED = "planted by a thief"


class Thief:
    """The holder of a device's private keys. Everything that it makes has its signature and the newest key that it can open."""

    def __init__(self, world: World, identity: DeviceIdentity) -> None:
        self.world = world
        self.identity = identity
        self.keys = StoreKeys(world.vault)
        self._count = 0

    @property
    def store(self) -> SimStore:
        return self.world.store

    def log(self) -> DeviceLog:
        """The device log, as whoever sees the whole relay reads it."""
        log = DeviceLog(self.world.vault)
        for key in self.store.keys("devlog"):
            log.extend(self.store.objects[key])
        return log

    def key(self) -> GenerationKey:
        return KeyRing.of_device(self.identity, self.log()).newest_held()

    def salt(self) -> bytes:
        self._count += 1
        return sha256(f"salt {self._count}".encode()).digest()[:24]

    def plant(self, text: str = PLANTED) -> bytes:
        """An operation that nobody may take from a thief."""
        self._count += 1
        operation = encode_operation(Remember(text, "fact", "thief", self._count))
        self.world.checks.histories.forbidden.add(sha256(operation).digest())
        return operation

    def entry(self, record: Record, by: Authority | None = None, *, log: DeviceLog | None = None) -> bytes:
        """A log entry for the next slot. The key of a generation that the thief has not is made up."""
        log = log or self.log()
        generation = getattr(record, "generation", log.generation)
        held = KeyRing.of_device(self.identity, log).key(generation) if log.member(self.identity.id) else None
        return seal_record(
            log,
            record,
            by=by or Authority(self.identity.id, self.identity.signing),
            key=held or GenerationKey(generation, bytes(32)),
            salt=self.salt(),
            details=Details(PLANTED, "", 0),
            older=(GenerationKey(1, bytes(32)),),
        )

    def append(self, record: Record, by: Authority | None = None) -> int:
        """Puts a log entry where honest devices read next. Returns the slot."""
        log = self.log()
        self.store.objects[self.keys.log(log.next_slot)] = self.entry(record, by, log=log)
        return log.next_slot

    def offer(
        self,
        place: Origin,
        *,
        named: Origin | None = None,
        previous: bytes | None = None,
        log_head: bytes | None = None,
    ) -> bytes:
        """Puts an entry at a place of a stream, over what is there. ``named``: the name that its operation claims."""
        if previous is None and place.sequence:
            key = self.keys.conversation(*place._replace(sequence=place.sequence - 1))
            previous = parse(self.store.objects[key]).hash if key in self.store.objects else None
        previous = previous or bytes(32)
        log = self.log()
        sealed = seal_offer(
            self.plant(),
            origin=named,
            stream=Stream(place.incarnation, place.sequence, previous),
            device=place.device,
            vault=self.world.vault,
            epoch=1,
            log_head=log.head if log_head is None else log_head,
            key=self.key(),
            signer=self.identity.signing,
            salt=self.salt(),
        )
        self.store.objects[self.keys.conversation(*place)] = sealed
        return sealed

    def batch(self, position: Position, sender: bytes | None = None, *, kind: Kind = Kind.BATCH) -> None:
        """Puts a batch with a planted operation, or a seal, in a mirror slot."""
        name = Origin(self.identity.id, b"planted!", 0)
        batch = Batch(((name, self.plant()),), (), ((bytes(16),),), "", bytes(32))
        sealed = seal_mirror(
            kind,
            encode_batch(batch) if kind is Kind.BATCH else [],
            position=position,
            vault=self.world.vault,
            sender=sender or self.identity.id,
            incarnation=bytes(8),
            log_head=self.log().head,
            key=self.key(),
            signer=self.identity.signing,
            salt=self.salt(),
            public=b"" if kind is Kind.BATCH else (position.epoch + 1).to_bytes(8, "big"),
        )
        self.store.objects[self.keys.mirror(position.epoch, position.sequence)] = sealed

    def cursor(self, device: bytes, body: bytes) -> None:
        """Puts a cursor in a device's place."""
        key = self.key()
        header = Header(
            kind=Kind.CURSOR,
            channel=Channel.CURSOR,
            vault=self.world.vault,
            sender=device,
            incarnation=bytes(8),
            epoch=1,
            generation=key.number,
            log_head=self.log().head,
            sequence=2**40,
            previous=bytes(32),
        )
        sealed = seal(header, [Frame(body)], key=key, signer=self.identity.signing, salt=self.salt())
        self.store.objects[self.keys.cursor(device)] = sealed

    def reads(self, key: str) -> bool:
        """Whether it can open an object of the relay."""
        ring = KeyRing.of_device(self.identity, self.log())
        entry = parse(self.store.objects[key])
        held = (ring.key(number) for number in range(1, self.log().generation + 1))
        return any(key is not None and _opens(entry, key.secret) for key in held)


def _opens(entry: object, secret: bytes) -> bool:
    from crystal_crypto.entry import Entry
    from crystal_crypto.errors import CryptoError

    assert isinstance(entry, Entry)
    try:
        entry.open(GenerationKey(entry.header.generation, secret))
    except CryptoError:
        return False
    return True


def member_of(home: Home) -> Member:
    member = home.open()
    assert member is not None, f"{home.name} is a member"
    return member


@dataclass(frozen=True)
class Picture:
    """What an attack must not change on a device: its log, who leads, its keys, its rows, and what peers said."""

    head: bytes
    lead: object
    generation: int
    root: object
    members: tuple[object, ...]
    digest: bytes
    cursors: frozenset[object]


def picture(world: World, home: Home) -> Picture:
    """Reads the cursors of all peers and takes down what the device believes."""
    assert world.run(home, read_cursors), home.error
    cursors = frozenset(replace(cursor, count=0, sequence=0, pending=0) for cursor in home.result)
    member = home.open()
    assert member is not None
    log = member.log
    return Picture(
        log.head,
        log.lead,
        log.generation,
        log.root,
        tuple((info.device, info.grant, info.revoked is None, info.named.hash) for info in log.members()),
        member.replica.digest().to_bytes(),
        cursors,
    )


def unmoved(world: World, attack: Callable[[], object], *, rounds: int = 2) -> set[str]:
    """Nothing that an attack does changes any honest device, and all go on working. Returns what they noticed."""
    for _ in range(2):
        for home in world.homes:
            assert world.run_round(home), home.error
    before = {home.name: picture(world, home) for home in world.homes}
    attack()
    raised: set[str] = set()
    for _ in range(rounds):
        for home in world.homes:
            home.die()
            world.run_round(home)
            member = home.open()
            assert member is not None
            raised |= member.notices.current().keys()
    assert {home.name: picture(world, home) for home in world.homes} == before
    return raised
