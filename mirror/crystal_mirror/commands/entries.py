"""Commands as entries: their places, their sealing, and the checks before one is opened.

An entry of a stream of commands is at ``commands/<sender>.<incarnation>/<sequence>`` and names the one before. A claim is
at ``commands/<target>.0000000000000000/<name>``; its name follows from the asker and the request's id, so that all copies
of a device come to the same one, and the relay lets one of them create it. A claim's header has the whole hash as
``previous``. The body's one frame is a letter to the recipient, which the header names.
"""

from dataclasses import dataclass
from hashlib import sha256

from crystal_crypto.entry import Channel, Entry, Frame, Header, Kind, parse, seal
from crystal_crypto.errors import CryptoError, Malformed
from crystal_crypto.identity import ExchangePublic
from crystal_crypto.letter import open_letter, seal_letter
from crystal_mirror.commands.messages import Message, decode_message, encode_message
from crystal_mirror.devicelog.log import MemberInfo
from crystal_mirror.membership.member import Member
from crystal_mirror.types import DEVICE_ID_BYTES, INCARNATION_BYTES

CLAIMS = bytes(INCARNATION_BYTES)
"""The incarnation of a device's claims."""
CLAIM_NAME_BYTES = 16
_CLAIM = b"crystal/v2/command-claim\x00"


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """Where an entry of the channel is: in a stream, or (``claim`` not empty) as a claim of that name."""

    device: bytes
    incarnation: bytes
    sequence: int
    claim: bytes = b""


def claim_hash(asker: bytes, request: bytes) -> bytes:
    return sha256(_CLAIM + asker + request).digest()  # §16.2-2


def claim_key(member: Member, target: bytes, hashed: bytes) -> str:
    """The store key of a claim by its hash; ``target`` is the device that runs the request."""
    return member.keys.command_prefix(target, CLAIMS) + hashed[:CLAIM_NAME_BYTES].hex()


def parse_place(member: Member, key: str) -> CommandPlace | None:
    """The place of a key; None for a key that no device writes, since a relay may list junk."""
    found = member.keys.parse_command(key)
    if found is not None:
        return CommandPlace(*found) if found[1] != CLAIMS else None
    prefix = member.keys.commands_prefix
    stream, _, name = key[len(prefix) :].partition("/")
    device, _, _ = stream.partition(".")
    try:
        place = CommandPlace(bytes.fromhex(device), CLAIMS, 0, bytes.fromhex(name))
    except ValueError:
        return None
    whole = len(place.device) == DEVICE_ID_BYTES and len(place.claim) == CLAIM_NAME_BYTES
    return place if whole and claim_key(member, place.device, place.claim) == key else None


def key_of(member: Member, place: CommandPlace) -> str:
    if place.claim:
        return claim_key(member, place.device, place.claim)
    return member.keys.command(place.device, place.incarnation, place.sequence)


def seal_message(
    member: Member, data: bytes, recipient: MemberInfo, *, incarnation: bytes, sequence: int, previous: bytes
) -> bytes:
    """The sealed entry. Raises KeysWithheld."""
    letter = seal_letter(
        data,
        ExchangePublic.from_bytes(recipient.exchange),
        vault=member.vault,
        sender=member.device_id,
        recipient_id=recipient.device,
        log_head=member.log.head,
        incarnation=incarnation,
        sequence=sequence,
    )
    header = Header(
        kind=Kind.COMMAND,
        channel=Channel.COMMANDS,
        vault=member.vault,
        sender=member.device_id,
        incarnation=incarnation,
        recipient=recipient.device,
        epoch=member.replica.position().epoch,
        generation=member.generation_key.number,
        log_head=member.log.head,
        sequence=sequence,
        previous=previous,
    )
    return seal(
        header,
        [Frame(letter, compress=False)],
        key=member.generation_key,
        signer=member.identity.signing,
        salt=member.salt(),
    )


def seal_claim(member: Member, message: Message, asker: MemberInfo, request: bytes) -> bytes:
    """The claim of a request that ``asker`` made. Raises KeysWithheld."""
    return seal_message(
        member,
        encode_message(message),
        asker,
        incarnation=CLAIMS,
        sequence=0,
        previous=claim_hash(asker.device, request),
    )


def checked_entry(member: Member, info: MemberInfo, place: CommandPlace, data: bytes) -> Entry:
    """The entry in these bytes, if the device signed it for exactly this place.

    Raises:
        CryptoError: it is not an entry, or belongs elsewhere.
    """
    entry = parse(data)
    header = entry.header
    fits = (
        header.kind is Kind.COMMAND  # §16.2-1
        and header.channel is Channel.COMMANDS
        and header.vault == member.vault
        and header.sender == place.device
        and header.incarnation == place.incarnation
        and header.sequence == place.sequence
        and (not place.claim or header.previous[:CLAIM_NAME_BYTES] == place.claim)  # §16.2-2
    )
    if not fits:
        raise Malformed("it is a copy from another place")
    entry.verify(info.signing)
    return entry


def signed_by_me(member: Member, place: CommandPlace, data: bytes) -> bool:
    """Whether this device's own key, here or in another copy of the device, signed these bytes for that place."""
    info = member.log.member(member.device_id)
    try:
        if info is None:
            return False
        checked_entry(member, info, place, data)
    except CryptoError:
        return False
    return True


def open_message(member: Member, entry: Entry) -> Message:
    """The message of a checked entry to this device. The key of its generation must be here.

    Raises:
        CryptoError: it does not open, or is no message of this version.
    """
    header = entry.header
    key = member.key_for(header.generation)
    assert key is not None, "without the key, an entry is left for later"
    frames = entry.open(key)
    if len(frames) != 1:
        raise Malformed(f"a command has one frame, not {len(frames)}")  # §16.2-3, §8-1
    content = open_letter(
        frames[0],
        member.identity.exchange,
        vault=member.vault,
        sender=header.sender,
        recipient_id=member.device_id,
        log_head=header.log_head,
        incarnation=header.incarnation,
        sequence=header.sequence,
    )
    return decode_message(content)
