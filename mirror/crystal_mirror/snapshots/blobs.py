"""Blobs on the relay: parts of snapshots and files, sealed in the generation in force and named by their content.

A blob is put create-only, and read back before anything relies on it. Its name is a keyed hash in the generation in force, so
equal content is stored once in each generation, and a device that is out by then cannot tell by guessing what a blob holds.
What refers to a blob says its name, or in generation 1 its turn. A name that was condemned, or under which the relay holds
something else, is given up for the next turn's.

Parts of files are compressed here. Parts of snapshots hold many conversations, each text compressed by itself: compressed
together, their size would reveal whether one conversation repeats another. Packs are ciphertext.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from crystal_crypto.blob import blob_bytes, open_blob, parse_blob_header, seal_blob
from crystal_crypto.errors import CryptoError, WrongKey
from crystal_crypto.limits import BLOB_BYTES_MAX, BLOB_TURN_MAX
from crystal_mirror.errors import ProtocolError
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import FilePart, blob_name
from crystal_mirror.requests import Flow, GetBlob, GetBlobs, Has, PutBlob, RetryBudget

HAS_AT_ONCE = 64


class BlobDamaged(ProtocolError):
    """The relay lacks a blob, or holds other bytes under its name."""

    exit_code = 7
    hint = "`crystal verify --deep` names what the relay lacks; `crystal repair` on a device that has it puts it back."


@dataclass(frozen=True, slots=True)
class BlobRef:
    """What is needed to fetch a blob and to verify its content."""

    content: bytes
    """SHA-256 of the content."""
    length: int
    named: int | bytes = 0
    """Its turn, or its name (``operations.Named``)."""

    @classmethod
    def of(cls, part: FilePart) -> "BlobRef":
        return cls(part.content, part.length, part.named)


def name_of(member: Member, ref: BlobRef) -> bytes:
    return blob_name(member.secret, ref.content, ref.named)


def blob_key(member: Member, ref: BlobRef) -> str:
    return member.keys.blob(name_of(member, ref))


def put_blob(member: Member, content: bytes, first_turn: int = 0, *, compress: bool = False) -> Flow[BlobRef]:
    """Stores the content, in the generation in force, unless it is there; does not read it back. Raises KeysWithheld."""
    digest = sha256(content).digest()
    while True:
        generation = member.log.generation
        turn = usable_turn(member, digest, first_turn)
        ref = BlobRef(digest, len(content), member.named(digest, turn))
        there = yield Has((blob_key(member, ref),))
        if there[0]:
            return ref
        if member.log.generation == generation:  # §14-10
            yield from put_under(member, ref, content, compress=compress)
            return ref


def put_under(member: Member, ref: BlobRef, content: bytes, *, compress: bool = False) -> Flow[None]:
    """Stores under its name what the relay lacks. Raises KeysWithheld."""
    yield PutBlob(*sealed_blob(member, ref, content, compress=compress))


def sealed_blob(member: Member, ref: BlobRef, content: bytes, *, compress: bool) -> tuple[str, bytes]:
    """The key and the bytes of a blob, in the generation in force.

    Raises KeysWithheld; and ContentChanged if the content is not the one that ``ref`` names.
    """
    name = name_of(member, ref)
    return member.keys.blob(name), _sealed(member, ref, name, content, compress=compress)


def put_verified(
    member: Member, content: bytes, *, first: int = 0, compress: bool = False
) -> Flow[tuple[BlobRef, bytes]]:
    """Stores the content in the generation in force and reads it back. Goes on to another turn if the relay holds something
    else. ``first``: the turn to begin with. Returns the reference and what was read back.

    Raises:
        RelayMisbehaves: nothing comes back as it was put.
    """
    digest = sha256(content).digest()
    turn = first
    retries = RetryBudget("a blob")
    while True:
        turn = usable_turn(member, digest, turn)
        ref = yield from put_blob(member, content, turn, compress=compress)
        try:
            return ref, (yield from get_blob(member, ref))
        except BlobDamaged:
            # The relay holds something else under this name; the next turn's name may be free.
            retries.spend()
        turn += 1


def get_blob(member: Member, ref: BlobRef) -> Flow[bytes]:
    """The content, whole and authentic.

    Raises:
        BlobDamaged: the relay does not have it, or not as it was stored.
        WrongKey: the key of its generation has not reached this device.
    """
    return (yield from get_with_generation(member, ref))[0]


def get_blobs(
    member: Member, refs: Sequence[BlobRef], ahead: Sequence[BlobRef] = ()
) -> Flow[dict[BlobRef, bytes | BlobDamaged | WrongKey]]:
    """The contents of several blobs, or why one cannot be had, as ``get_blob`` says it. ``ahead``: what is wanted next."""
    refs = tuple(dict.fromkeys(refs))
    found = yield _asked(member, refs, _asked(member, ahead) if ahead else None)
    contents: dict[BlobRef, bytes | BlobDamaged | WrongKey] = {}
    for ref, data in zip(refs, found, strict=True):
        try:
            contents[ref] = _opened_or_named(member, ref, data)
        except (BlobDamaged, WrongKey) as trouble:
            contents[ref] = trouble
    return contents


def _asked(member: Member, refs: Sequence[BlobRef], ahead: GetBlobs | None = None) -> GetBlobs:
    keys = tuple(blob_key(member, ref) for ref in refs)
    return GetBlobs(keys, tuple(blob_bytes(ref.length) for ref in refs), ahead)


def get_with_generation(member: Member, ref: BlobRef) -> Flow[tuple[bytes, int]]:
    """The content, and the generation in which the relay's blob is sealed. Raises as ``get_blob`` does."""
    data: bytes | None = yield GetBlob(blob_key(member, ref))
    content = _opened_or_named(member, ref, data)
    assert data is not None, "it was opened"
    return content, parse_blob_header(data).generation


def _opened_or_named(member: Member, ref: BlobRef, data: bytes | None) -> bytes:
    """Opens what the relay sent, if it sent anything. Raises as ``get_blob`` does."""
    if data is None:
        raise BlobDamaged(f"the relay lacks the blob {_short(member, ref)}")
    if len(data) > BLOB_BYTES_MAX:
        raise BlobDamaged(f"the relay's blob {_short(member, ref)} is too large for one")
    return opened(member, ref, data)


def opened(member: Member, ref: BlobRef, data: bytes) -> bytes:
    """Opens the sealed bytes of a blob. Raises as ``get_blob`` does."""
    try:
        generation = parse_blob_header(data).generation
    except CryptoError as error:
        raise BlobDamaged(f"the relay's blob {_short(member, ref)} is damaged: {error}") from error
    key = member.key_for(generation)
    if key is None and not 1 <= generation <= member.log.generation:
        raise BlobDamaged(
            f"the relay's blob {_short(member, ref)} is damaged: the vault has no generation {generation}"
        )
    if key is None:
        raise WrongKey(f"a blob needs the key of generation {generation}, which has not arrived")
    try:
        content = b"".join(
            open_blob(
                [data], content_hash=ref.content, name=name_of(member, ref), vault=member.vault, key=key
            )
        )
    except CryptoError as error:
        raise BlobDamaged(f"the relay's blob {_short(member, ref)} is damaged: {error}") from error
    if len(content) != ref.length:
        raise BlobDamaged(f"the relay's blob {_short(member, ref)} has another length")
    return content


def lacking(member: Member, refs: Sequence[BlobRef]) -> Flow[list[BlobRef]]:
    """The blobs that the relay does not have. Moves no content."""
    missing: list[BlobRef] = []
    for start in range(0, len(refs), HAS_AT_ONCE):
        some = refs[start : start + HAS_AT_ONCE]
        there = yield Has(tuple(blob_key(member, ref) for ref in some))
        missing += [ref for ref, found in zip(some, there, strict=True) if not found]
    return missing


def usable_turn(member: Member, content: bytes, first: int = 0) -> int:
    """The first turn from ``first`` on whose name, in the generation in force, is not condemned. Raises KeysWithheld."""
    for turn in range(first, BLOB_TURN_MAX + 1):
        name = blob_name(member.secret, content, member.named(content, turn))
        if not member.replica.is_condemned(name):  # §11.14-3, §14-1
            return turn
    raise BlobDamaged("all names of a blob were condemned")


def _sealed(member: Member, ref: BlobRef, name: bytes, content: bytes, *, compress: bool) -> bytes:
    pieces: Iterator[bytes] = seal_blob(
        [content],
        length=len(content),
        content_hash=ref.content,
        vault=member.vault,
        key=member.generation_key,
        name=name,
        salt=member.salt(),
        compress=compress,
    )
    return b"".join(pieces)


def _short(member: Member, ref: BlobRef) -> str:
    return name_of(member, ref).hex()[:12]
