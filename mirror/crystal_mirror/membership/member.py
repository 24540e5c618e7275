"""Member: one device's membership of one vault, and what it can do without a network.

It binds the device's keys, its journal and its replica together. Flows (``round.py``, ``replication/claim.py``) take a
member and talk to the store; the member itself accepts operations at any time, offline too.

Life of an operation on its maker::

    accept --> PENDING --put--> STORED --(the mirror log that others read has it)--> durable: row removed
                  ^                |
                  +---relay lost---+
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from crystal_crypto.entry import parse
from crystal_crypto.errors import CryptoError, WrongKey
from crystal_crypto.hierarchy import GenerationKey, Root, VaultSecret
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.entries.offers import seal_offer
from crystal_mirror.errors import Revoked
from crystal_mirror.notices import NoticeBoard
from crystal_mirror.operations import Operation, decode_operation, encode_operation
from crystal_mirror.ports import Journal, JournalTransaction, OutboxRow, OutboxState, Random, Replica, Stream
from crystal_mirror.store_keys import StoreKeys
from crystal_mirror.types import INCARNATION_BYTES, ZERO_HASH, Origin

SALT_BYTES = 24
META_CLAIM = "claim"

Extra = Callable[[JournalTransaction], None]


def load_log(journal: Journal, vault: bytes) -> DeviceLog:
    """The device log as this device has verified it, judged again from its kept bytes."""
    log = DeviceLog(vault)
    for _, data, _ in journal.log_entries():
        log.extend(data)
    return log


def load_keys(identity: DeviceIdentity, log: DeviceLog) -> tuple[GenerationKey, VaultSecret]:
    """The newest key that the log has for this device, and the vault's secret.

    Raises:
        NotAMember: the log does not name this device.
        WrongKey: the sealed keys do not open: they are not for this device.
    """
    ring = KeyRing.of_device(identity, log)
    return ring.newest_held(), ring.secret


@dataclass
class Member:
    """One device's membership. Make it with ``Member.open`` after founding or joining the vault."""

    identity: DeviceIdentity
    vault: bytes
    journal: Journal
    replica: Replica
    random: Random
    log: DeviceLog
    ring: KeyRing
    root: Root | None = None
    """The root, if this device keeps it. The log tells whether it is still in force (``authority.py``)."""
    keys: StoreKeys = field(init=False)
    notices: NoticeBoard = field(init=False)
    rounds: int = field(init=False, default=0)
    full_check: bool = field(init=False, default=True)
    """Whether the round under way compares with the relay also what is seldom wrong there (``round.py``)."""
    unchanged: bool = field(init=False, default=False)
    """Whether, in the round under way, the relay says that nothing was written since this device found nothing to do
    (``unchanged.py``)."""
    names_compared: bool = field(init=False, default=False)
    """Whether this process has compared the names of pending operations with what the relay holds."""
    listed_at: int = field(init=False, default=0)
    """When this process last listed the mirror's slots (``repair/audit.py``), in milliseconds; 0 before it did."""
    doubted_head: bytes = field(init=False, default=b"")
    """The log's head when all void slots were last judged."""

    def __post_init__(self) -> None:
        self.keys = StoreKeys(self.vault)
        self.notices = NoticeBoard(self.journal)

    @classmethod
    def open(
        cls,
        identity: DeviceIdentity,
        vault: bytes,
        journal: Journal,
        replica: Replica,
        random: Random,
        root: Root | None = None,
    ) -> "Member":
        """Opens a membership from what the device holds, and repairs what a crash left between its two databases.

        Raises:
            NotAMember: the device never joined, or its journal is missing.
            WrongKey: journal and identity do not belong together.
        """
        log = load_log(journal, vault)
        ring = KeyRing.of_device(identity, log)
        member = cls(identity, vault, journal, replica, random, log, ring, root)
        member.mend()
        return member

    @property
    def device_id(self) -> bytes:
        return self.identity.id

    @property
    def is_core(self) -> bool:
        """Whether this installation is the Core: the log names the device, and the claim is the one that it drew."""
        lead = self.log.lead
        return (
            lead is not None
            and lead.device == self.device_id
            and self.journal.meta_get(META_CLAIM) == lead.claim  # §9.4-3
        )

    @property
    def secret(self) -> VaultSecret:
        return self.ring.secret

    @property
    def generation_key(self) -> GenerationKey:
        """The key in force, with which everything new is sealed. Raises KeysWithheld."""
        return self.ring.current()

    def key_for(self, generation: int) -> GenerationKey | None:
        """The key of a generation, or None if this device does not have it (yet)."""
        return self.ring.key(generation)

    def named(self, content: bytes, turn: int) -> int | bytes:
        """What refers to a new blob says which one it is: its turn in generation 1, before which nobody was put out, and in
        later ones its name in the generation in force. ``content`` is the SHA-256 of what it holds. Raises KeysWithheld."""
        key = self.generation_key
        return turn if key.number == 1 else key.blob_name(self.vault, content, turn)  # §4.2-5

    def cut_seed(self) -> tuple[int, int]:
        """The seed of the places at which files are cut now, and the generation that it is of."""
        key = self.ring.newest_held()
        return self.secret.cut_seed if key.number == 1 else key.cut_seed(self.vault), key.number  # §4.2-6

    def check_active(self) -> None:
        """Raises Revoked if this device is revoked in the log as read here."""
        if not self.log.is_active(self.device_id):  # §9.8-5
            raise Revoked("this device was revoked: its vault takes nothing from it any more")

    def salt(self) -> bytes:
        return self.random(SALT_BYTES)

    def accept(self, operation: Operation, extra: Extra | None = None) -> Origin:
        """Accepts one operation; see ``accept_many``."""
        return self.accept_many([operation], extra)[0]

    def accept_many(self, operations: Sequence[Operation], extra: Extra | None = None) -> list[Origin]:
        """Accepts operations: once this returns they are on disk, sealed, and never lost.

        ``extra`` runs in the same transaction of the journal, such as for capture offsets. Afterwards the operations can be
        found here, marked provisional; a crash in between is repaired when the member is opened next.

        Raises:
            TooLarge, Malformed: an operation is out of its limits; none of them was accepted.
            Revoked: this device is out; none of them was accepted.
        """
        self.check_active()
        encoded = [encode_operation(operation) for operation in operations]
        with self.journal.transaction() as transaction:
            origins = [self.seal_row(transaction, data, None) for data in encoded]
            if extra:
                extra(transaction)
        for origin, operation, data in zip(origins, operations, encoded, strict=True):
            self.replica.index_provisional(origin, operation, data)
        return origins

    def seal_row(self, transaction: JournalTransaction, operation: bytes, origin: Origin | None) -> Origin:
        """Seals an operation for the next place of this device's stream and adds it to the outbox.

        With ``origin`` None the place is its name. Returns its name.
        """
        # §10.4-1, §10.4-2
        stream = transaction.stream() or Stream(self.random(INCARNATION_BYTES), 0, ZERO_HASH)
        sealed, entry_hash = self._seal(operation, origin, stream)
        place = Origin(self.device_id, stream.incarnation, stream.sequence)
        name = origin or place
        transaction.add_row(
            OutboxRow(stream.incarnation, stream.sequence, name, operation, sealed, OutboxState.PENDING)
        )
        transaction.set_stream(Stream(stream.incarnation, stream.sequence + 1, entry_hash))  # §10.4-1
        return name

    def _seal(self, operation: bytes, origin: Origin | None, stream: Stream) -> tuple[bytes, bytes]:
        sealed = seal_offer(
            operation,
            origin=origin,
            stream=stream,
            device=self.device_id,
            vault=self.vault,
            epoch=self.log.lead.epoch if self.log.lead else 0,
            log_head=self.log.head,
            # If the newest keys are withheld it is accepted all the same; ``push`` holds it until it can be sealed again.
            key=self.ring.newest_held(),  # §9.7-4
            signer=self.identity.signing,
            salt=self.salt(),
        )
        return sealed, parse(sealed).hash

    def mend(self) -> None:
        """Makes the provisional rows follow the outbox: a crash may have come between the two databases' commits. If the
        journal was lost, they are all that is left of what waited in it: that is offered again, under its old names."""
        names = {name.origin: name for name in self.journal.names()}
        indexed = self.replica.provisional_origins()
        left: list[Origin] = []
        for origin in sorted(indexed - names.keys()):
            if self.replica.done(origin):
                self.replica.drop_provisional(origin)
            else:
                left.append(origin)
        if left:
            self._offer_again(left)
        for origin, name in names.items():
            if origin in indexed or self.replica.done(origin):
                continue
            row = self.journal.row(name.incarnation, name.sequence)
            if row is not None:  # None: another process of this device saw it become durable meanwhile
                self._index(row)

    def _offer_again(self, origins: list[Origin]) -> None:
        """Puts operations into the outbox that only provisional rows tell of."""
        with self.journal.transaction() as transaction:
            # Another process of this device may have accepted them since the names were read, or seen them become durable.
            known = {name.origin for name in transaction.names()}
            for origin in origins:
                operation = self.replica.provisional_operation(origin)
                if operation is None or origin in known or self.replica.done(origin):
                    continue
                stream = transaction.stream()
                if stream is not None and origin.incarnation == stream.incarnation:
                    # The journal was put back to before it gave this name, and must not give it again.
                    transaction.set_stream(Stream(self.random(INCARNATION_BYTES), 0, ZERO_HASH))
                self.seal_row(transaction, encode_operation(operation), origin)

    def rename_provisional(self, before: Origin, after: Origin) -> None:
        """Renames the provisional rows of an operation whose name in the outbox has changed."""
        self.replica.drop_provisional(before)
        for name in self.journal.names():
            if name.origin == after and (row := self.journal.row(name.incarnation, name.sequence)):
                self._index(row)

    def _index(self, row: OutboxRow) -> None:
        try:
            operation = decode_operation(row.operation)
        except CryptoError as error:
            raise WrongKey(f"an accepted operation cannot be read back: {error}") from error
        self.replica.index_provisional(row.origin, operation)
