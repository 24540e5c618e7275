"""A vault as people have it: a Core that keeps the root, and devices that the Core added, on real databases."""

from crystal_core.replica import Replica
from crystal_crypto.bundle import seal_bundle
from crystal_crypto.hierarchy import GenerationKey, Root
from crystal_crypto.identity import DeviceIdentity, ExchangePublic
from crystal_mirror.devicelog.log import ROOT_SENDER, DeviceLog
from crystal_mirror.devicelog.records import GenerationRecord
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.membership.administration import NewDevice, add_device
from crystal_mirror.membership.administration import revoke as revoke_flow
from crystal_mirror.membership.authority import authority, seal_record
from crystal_mirror.membership.founding import found, join
from crystal_mirror.membership.member import Member, load_keys, load_log
from crystal_mirror.round import sync_round
from crystal_mirror.store_keys import StoreKeys
from crystal_node.device.journal import SqliteJournal
from tests.mirror.support import DETAILS, Objects, new_device, new_root, seeded

MODEL = "test/1"


class Household:
    """``core`` founded it and keeps the root. ``add`` brings in others, which have no root."""

    laptop: Member
    lost: Member

    def __init__(self) -> None:
        self.store = Objects()
        self.root: Root = new_root()
        identity, journal, random = new_device("core"), SqliteJournal.open(":memory:"), seeded("core/run")
        self.store.run(found(identity, self.root, journal, random, DETAILS))
        self.core = self.open(identity, journal, self.root)

    def open(self, identity: DeviceIdentity, journal: SqliteJournal, root: Root | None = None) -> Member:
        secret = load_keys(identity, load_log(journal, self.root.vault))[1]
        replica = Replica.open(":memory:", secret)
        return Member.open(identity, self.root.vault, journal, replica, seeded(identity.id.hex()), root)

    def add(
        self, name: str, *, by: Member | None = None, grant: bool = False, called: str | None = None
    ) -> Member:
        identity = new_device(name)
        wanted = name if called is None else called
        flow = add_device(
            by or self.core, newcomer(identity), name=wanted, system="Linux", now_ms=1, grant=grant
        )
        self.store.run(flow)
        journal = SqliteJournal.open(":memory:")
        self.store.run(read_log(DeviceLog(self.root.vault), journal, StoreKeys(self.root.vault)))
        return self.open(identity, journal)

    def by_kit(self, name: str) -> Member:
        """A device that came in by the root itself, and keeps it."""
        identity, journal = new_device(name), SqliteJournal.open(":memory:")
        self.store.run(join(identity, self.root, journal, seeded(name + "/join"), DETAILS, self.core.vault))
        return self.open(identity, journal, self.root)

    def revoke(self, device: Member, *, by: Member | None = None) -> None:
        self.sync(by or self.core)
        self.store.run(revoke_flow(by or self.core, device.device_id, now_ms=2))

    def sync(self, *members: Member) -> None:
        for member in members:
            self.store.run(sync_round(member, MODEL))

    def read(self, *members: Member) -> None:
        """They read the device log and nothing else."""
        for member in members:
            self.store.run(read_log(member.log, member.journal, member.keys))


def generation_without(maker: Member, left_out: Member) -> bytes:
    """A valid entry by who may administer that begins a generation, in which the keys for one device are junk."""
    log, before = maker.log, maker.generation_key
    key = GenerationKey(before.number + 1, maker.random(32))
    assert log.root is not None

    def sealed(recipient: bytes, exchange: bytes) -> bytes:
        return seal_bundle(
            ExchangePublic.from_bytes(exchange),
            generation=key,
            secret=maker.secret,
            vault=log.vault,
            recipient_id=recipient,
            log_head=log.head,
        )

    bundles = tuple(
        (info.device, bytes(114) if info.device == left_out.device_id else sealed(info.device, info.exchange))
        for info in sorted(log.active(), key=lambda info: info.device)
    )
    record = GenerationRecord(key.number, sealed(ROOT_SENDER, log.root.recovery), bundles)
    return seal_record(log, record, by=authority(maker), key=key, salt=maker.salt(), older=(before,))


def another_process(member: Member) -> Member:
    """The same device, opened a second time: it has read the log as far as the journal has it now."""
    return Member.open(
        member.identity, member.vault, member.journal, member.replica, seeded("another process"), member.root
    )


def newcomer(identity: DeviceIdentity) -> NewDevice:
    return NewDevice(identity.id, identity.signing.public, identity.exchange.public)


def has(member: Member, text: str) -> bool:
    """Whether the text is in the replicated memory, that of this device alone apart."""
    assert isinstance(member.replica, Replica)
    counted = member.replica.database.row(
        "SELECT count(*) FROM chunks WHERE text = ? AND provisional = 0", (text,)
    )
    assert counted is not None
    return bool(counted[0])


def same(*members: Member) -> bool:
    digests = {member.replica.digest().hex() for member in members}
    return len(digests) == 1 and all(m.replica.recompute_digest() == m.replica.digest() for m in members)
