"""A device log by itself, said entry by entry with real keys, by anybody: what honest code would never seal, too."""

from dataclasses import replace

from crystal_crypto.bundle import seal_bundle
from crystal_crypto.entry import Channel, Frame, Header, Kind, seal
from crystal_crypto.hierarchy import GenerationKey, Root, VaultSecret
from crystal_crypto.identity import DeviceIdentity, ExchangePublic, SigningKey
from crystal_mirror.devicelog.log import NO_INCARNATION, ROOT_SENDER, DeviceLog, Verdict
from crystal_mirror.devicelog.records import (
    AddRecord,
    Details,
    GenerationRecord,
    GrantRecord,
    LeadRecord,
    NameRecord,
    Record,
    RevokeRecord,
    RootRecord,
    encode_details,
    encode_record,
)
from tests.mirror.support import new_device, new_root, seeded

Signer = DeviceIdentity | Root


class Logbook:
    """A log with its root, and the keys of all its generations. ``founded`` has a Core that leads and a laptop and a phone."""

    def __init__(self, name: str = "root") -> None:
        self.root = new_root(name)
        self.log = DeviceLog(self.root.vault)
        self.draw = seeded(name + "/logbook")
        self.secret = VaultSecret(self.draw(32))
        self.keys = {1: GenerationKey(1, self.draw(32))}

    @classmethod
    def founded(cls) -> "Logbook":
        book = cls()
        book.core, book.laptop, book.phone = (new_device(name) for name in ("core", "laptop", "phone"))
        book.must(book.root_record(book.root))
        for device in (book.core, book.laptop, book.phone):
            book.must(book.add(device))
        book.must(LeadRecord(1, book.core.id, bytes(16)))
        return book

    core: DeviceIdentity
    laptop: DeviceIdentity
    phone: DeviceIdentity

    def key(self, number: int) -> GenerationKey:
        return self.keys.setdefault(number, GenerationKey(number, self.draw(32)))

    def bundle(self, exchange: ExchangePublic, recipient: bytes, number: int) -> bytes:
        return seal_bundle(
            exchange,
            generation=self.key(number),
            secret=self.secret,
            vault=self.log.vault,
            recipient_id=recipient,
            log_head=self.log.head,
        )

    def root_record(self, root: Root, holder: bytes = bytes(16)) -> RootRecord:
        number = max(self.log.generation, 1)
        return RootRecord(
            root.admin.public.to_bytes(),
            root.recovery.public.to_bytes(),
            holder,
            number,
            self.bundle(root.recovery.public, ROOT_SENDER, number),
        )

    def add(self, device: DeviceIdentity, *, grant: bool = False, holds_root: bool = False) -> AddRecord:
        return AddRecord(
            device.id,
            device.signing.public.to_bytes(),
            device.exchange.public.to_bytes(),
            grant,
            holds_root,
            self.log.generation,
            self.bundle(device.exchange.public, device.id, self.log.generation),
        )

    def revoke(self, device: bytes, cutoffs: tuple[tuple[bytes, int], ...] = ()) -> RevokeRecord:
        return RevokeRecord(device, cutoffs, self.log.generation + 1, self._recovery(), self._bundles(device))

    def generation(self) -> GenerationRecord:
        return GenerationRecord(self.log.generation + 1, self._recovery(), self._bundles(b""))

    def _recovery(self) -> bytes:
        assert self.log.root is not None
        recovery = ExchangePublic.from_bytes(self.log.root.recovery)
        return self.bundle(recovery, ROOT_SENDER, self.log.generation + 1)

    def _bundles(self, besides: bytes) -> tuple[tuple[bytes, bytes], ...]:
        number = self.log.generation + 1
        return tuple(
            (info.device, self.bundle(ExchangePublic.from_bytes(info.exchange), info.device, number))
            for info in sorted(self.log.active(), key=lambda info: info.device)
            if info.device != besides
        )

    def seal(
        self,
        record: Record | bytes,
        by: Signer | None = None,
        *,
        signed: SigningKey | None = None,
        frames: list[bytes] | None = None,
        key: GenerationKey | None = None,
        **header: object,
    ) -> bytes:
        """The record for the next slot, by the root unless said otherwise. ``signed`` is another signature than the sender's,
        ``frames`` another body, ``header`` other fields of the header."""
        begins = isinstance(record, RevokeRecord | GenerationRecord) or self.log.root is None
        key = key or self.key(self.log.generation + begins)
        signer = by or self.root
        fields = Header(
            kind=Kind.LOG,
            channel=Channel.DEVLOG,
            vault=self.log.vault,
            sender=signer.id if isinstance(signer, DeviceIdentity) else ROOT_SENDER,
            incarnation=NO_INCARNATION,
            epoch=0,
            generation=key.number,
            log_head=self.log.head,
            sequence=self.log.next_slot,
            previous=self.log.head,
        )
        if frames is None:
            frames = [encode_details(Details("", "", 0))]
            if begins and self.log.root is not None:
                frames.append(self.key(self.log.generation).secret)
        return seal(
            replace(fields, **header),  # type: ignore[arg-type]
            [Frame(data) for data in frames],
            key=key,
            signer=signed or (signer.signing if isinstance(signer, DeviceIdentity) else signer.admin),
            public=record if isinstance(record, bytes) else encode_record(record),
            salt=self.draw(24),
        )

    def says(self, record: Record, by: Signer | None = None) -> Verdict:
        return self.log.extend(self.seal(record, by))

    def must(self, record: Record, by: Signer | None = None) -> None:
        assert self.says(record, by) is Verdict.VALID

    def grant(self, device: DeviceIdentity) -> None:
        self.must(GrantRecord(device.id))

    def rename(self, device: DeviceIdentity) -> None:
        self.must(NameRecord(device.id))

    def rotate(self, name: str = "another root") -> Root:
        """Puts another root in force. Returns the one before."""
        before, after = self.root, new_root(name)
        self.must(self.root_record(after))
        self.root = after
        return before
