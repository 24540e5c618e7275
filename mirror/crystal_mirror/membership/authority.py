"""Signers of the device log, and the sealing of its entries.

Two can administer a vault: the Core, and a device that has the root in force.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from crystal_crypto.entry import Channel, Frame, Header, Kind, seal
from crystal_crypto.hierarchy import GenerationKey, Root
from crystal_crypto.identity import SigningKey
from crystal_mirror.devicelog.log import NO_INCARNATION, ROOT_SENDER, DeviceLog
from crystal_mirror.devicelog.records import Details, Record, encode_details, encode_record
from crystal_mirror.errors import NotAllowed
from crystal_mirror.membership.member import Member


@dataclass(frozen=True, slots=True)
class Authority:
    """A sender of log entries with its key: a device, or ``ROOT_SENDER`` with the root's admin key."""

    sender: bytes
    signer: SigningKey = field(repr=False)

    @classmethod
    def of_root(cls, root: Root) -> "Authority":
        return cls(ROOT_SENDER, root.admin)

    @classmethod
    def of_device(cls, member: Member) -> "Authority":
        return cls(member.device_id, member.identity.signing)


def authority(member: Member, root: Root | None = None) -> Authority:
    """The signer for this member now: itself if it is the Core, else the root in force (``root`` if given, or its own).

    Raises:
        NotAllowed: it is not the Core and has no root in force.
    """
    log = member.log
    if member.is_core:
        return Authority.of_device(member)
    held = root if root is not None else member.root
    if held is not None and in_force(log, held):
        return Authority.of_root(held)
    raise NotAllowed("only the Core, or a device that holds the vault's root, can do this")


def in_force(log: DeviceLog, root: Root) -> bool:
    """Whether this root is the one in force by the log."""
    return log.root is not None and log.root.admin == root.admin.public.to_bytes()


def seal_record(
    log: DeviceLog,
    record: Record,
    *,
    by: Authority,
    key: GenerationKey,
    salt: bytes,
    details: Details | None = None,
    older: Sequence[GenerationKey] = (),
) -> bytes:
    """Seals ``record`` for the log's next slot.

    ``key`` is the generation in force after the record. ``older``, the keys before it, the newest first, go into the body
    of a record that begins a generation. Pure: the log is not changed.
    """
    header = Header(
        kind=Kind.LOG,
        channel=Channel.DEVLOG,
        vault=log.vault,
        sender=by.sender,
        incarnation=NO_INCARNATION,
        epoch=log.lead.epoch if log.lead else 0,
        generation=key.number,
        log_head=log.head,
        sequence=log.next_slot,
        previous=log.head,
    )
    frames = [Frame(encode_details(details or Details("", "", 0)))]
    if older:
        frames.append(Frame(b"".join(each.secret for each in older), compress=False))
    return seal(header, frames, key=key, signer=by.signer, public=encode_record(record), salt=salt)
