"""Founding a vault and joining one by its root: the first entries of the device log.

Founding writes three entries: ``root`` (the keys that stand for the root, and generation 1 sealed to the recovery key),
``add`` for this device, and ``lead`` for epoch 1. Joining by the root writes one ``add``, signed by the root. Both look at
what the log holds and add what is missing, so they can be repeated after a crash at any point. A name that an active
device has gets a number.
"""

from msgspec.structs import replace

from crystal_crypto.bundle import seal_bundle
from crystal_crypto.hierarchy import GenerationKey, Root, VaultSecret
from crystal_crypto.identity import DeviceIdentity, ExchangePublic
from crystal_mirror.devicelog.damage import check_shown
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.devicelog.log import FIRST_GENERATION, ROOT_SENDER, DeviceLog
from crystal_mirror.devicelog.records import AddRecord, Details, LeadRecord, RootRecord
from crystal_mirror.devicelog.sync import append, read_log
from crystal_mirror.errors import LogDamaged, Revoked, WrongVault
from crystal_mirror.membership.authority import Authority, in_force, seal_record
from crystal_mirror.membership.cursors import shown_head
from crystal_mirror.membership.member import META_CLAIM, SALT_BYTES, load_log
from crystal_mirror.membership.names import free_name, names_in
from crystal_mirror.ports import Journal, Random
from crystal_mirror.requests import Flow, GetMany
from crystal_mirror.store_keys import StoreKeys

CLAIM_BYTES = 16


def found(
    identity: DeviceIdentity, root: Root, journal: Journal, random: Random, details: Details
) -> Flow[None]:
    """Founds the vault of ``root``, with this device as its first one and its Core.

    Raises:
        LogForked: the relay shows another device log than this device has verified.
    """
    log = load_log(journal, root.vault)
    keys = StoreKeys(root.vault)
    fresh = (
        GenerationKey(FIRST_GENERATION, random(32)),
        VaultSecret(random(32)),
    )

    def build_root(log: DeviceLog) -> bytes | None:
        if log.root is not None:
            return None
        key, secret = fresh
        record = RootRecord(
            admin=root.admin.public.to_bytes(),
            recovery=root.recovery.public.to_bytes(),
            holder=identity.id,
            generation=key.number,
            bundle=seal_bundle(
                root.recovery.public,
                generation=key,
                secret=secret,
                vault=log.vault,
                recipient_id=ROOT_SENDER,
                log_head=log.head,
            ),
        )
        return seal_record(
            log, record, by=Authority.of_root(root), key=key, salt=random(SALT_BYTES), details=details
        )

    yield from append(log, journal, keys, build_root)
    yield from _add(log, journal, keys, identity, root, random, details)
    with journal.transaction() as transaction:
        claim = transaction.meta_get(META_CLAIM)
        if claim is None:
            claim = random(CLAIM_BYTES)
            transaction.meta_set(META_CLAIM, claim)

    def build_lead(log: DeviceLog) -> bytes | None:
        if log.lead is not None:
            return None
        return seal_record(
            log,
            LeadRecord(epoch=1, device=identity.id, claim=claim),
            by=Authority.of_root(root),
            key=root_keys(root, log)[0],
            salt=random(SALT_BYTES),
        )

    yield from append(log, journal, keys, build_lead)


def join(
    identity: DeviceIdentity,
    root: Root,
    journal: Journal,
    random: Random,
    details: Details,
    vault: bytes | None = None,
) -> Flow[None]:
    """Adds this device to a vault by the signature of its root. ``vault`` None: the vault that this root founded.

    Raises:
        WrongVault: the relay has no device log for that vault, or the root was replaced.
        LogDamaged: the log cannot be read to its end; nothing was written.
    """
    vault = vault if vault is not None else root.vault
    log = load_log(journal, vault)
    keys = StoreKeys(vault)
    yield from read_whole(log, journal, keys)
    _check_in_force(log, root)
    yield from _add(log, journal, keys, identity, root, random, details)


def read_whole(log: DeviceLog, journal: Journal, keys: StoreKeys) -> Flow[None]:
    """Reads the device log, and checks, before a newcomer counts on it, that it is the one that its members have: neither an
    entry nor a cursor of a member names one that is not shown.

    Raises:
        WrongVault: the relay has no device log for that vault.
        LogDamaged: the log cannot be read to its end.
        LogForked: the relay shows another log than is kept here.
    """
    yield from read_log(log, journal, keys)
    if log.root is None:
        if log.next_slot:
            raise LogDamaged(
                "the relay's device log cannot be read past slot 0: what stands there is damaged"
            )
        raise WrongVault(f"the relay has no device log for the vault {log.vault.hex()}")
    check_shown(log, journal)
    ahead = yield from _ahead(log, keys)
    if ahead is not None:
        yield from read_log(log, journal, keys)  # a device may have been added meanwhile
        ahead = yield from _ahead(log, keys)
    if ahead is not None:  # §9.3-16
        raise LogDamaged(
            f"the relay's device log cannot be read to its end: device {ahead.hex()[:8]} has read more of it than is shown "
            f"after slot {log.slot_of_head(log.head)}"
        )


def _ahead(log: DeviceLog, keys: StoreKeys) -> Flow[bytes | None]:
    """A member whose cursor names an entry of the device log that is not shown here."""
    active = log.active()
    cursors = yield GetMany(tuple(keys.cursor(info.device) for info in active))
    for info, data in zip(active, cursors, strict=True):
        head = None if data is None else shown_head(log, info, data)
        if head is not None and not log.knows_head(head):
            return info.device
    return None


def root_keys(root: Root, log: DeviceLog) -> tuple[GenerationKey, VaultSecret]:
    """The vault's keys in force, as sealed to the root's recovery key.

    Raises:
        WrongVault: the log has no root entry.
        WrongKey: the sealed keys are not for this root.
    """
    if log.root is None:
        raise WrongVault("the device log has no root entry")
    ring = KeyRing.of_root(root, log)
    return ring.current(), ring.secret


def _check_in_force(log: DeviceLog, root: Root) -> None:
    if not in_force(log, root):
        raise WrongVault(
            "the vault's root was replaced since this code was made",
            hint="Use the newest code or recovery kit; the old one has no power any more.",
        )


def _add(
    log: DeviceLog,
    journal: Journal,
    keys: StoreKeys,
    identity: DeviceIdentity,
    root: Root,
    random: Random,
    details: Details,
) -> Flow[bool]:
    def build(log: DeviceLog) -> bytes | None:
        known = log.member(identity.id)
        if known is not None and known.revoked is not None:
            raise Revoked("this device was revoked, and its identity is never taken in again")
        if known is not None:
            return None
        _check_in_force(log, root)
        ring = KeyRing.of_root(root, log)
        key, secret = ring.current(), ring.secret
        public: ExchangePublic = identity.exchange.public
        record = AddRecord(
            device=identity.id,
            signing=identity.signing.public.to_bytes(),
            exchange=public.to_bytes(),
            grant=False,
            holds_root=True,
            generation=key.number,
            bundle=seal_bundle(
                public,
                generation=key,
                secret=secret,
                vault=log.vault,
                recipient_id=identity.id,
                log_head=log.head,
            ),
        )
        return seal_record(
            log,
            record,
            by=Authority.of_root(root),
            key=key,
            salt=random(SALT_BYTES),
            details=replace(details, name=free_name(details.name, names_in(log, ring.key))),
        )

    return (yield from append(log, journal, keys, build))
