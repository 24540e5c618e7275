"""Mirror entries: batches of operations with their vectors, and the seal that ends an epoch.

Body of a batch: frame 0 the head (MessagePack), frame 1 the vectors (raw: they do not compress), then one frame for each
operation, verbatim as its maker encoded it, so that no zstd frame holds the texts of two sessions.

Control entries travel in the head: an announced snapshot, the floor below which the log is not kept, names of condemned
blobs, and vectors that replace others after a change of model.

The head also states what the entry does to the acks: every operation's origin is done, and so is everything in
``also_done`` (the places of offers whose operation was done before). It states the digest after it, and which model made
the vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from crystal_crypto.entry import Channel, Entry, Frame, Header, Kind, seal
from crystal_crypto.errors import UNDECODABLE, Malformed
from crystal_crypto.hierarchy import GenerationKey
from crystal_crypto.identity import SigningKey
from crystal_mirror.entries.offers import PackedOrigin
from crystal_mirror.operations import Named, Operation, decode_operation
from crystal_mirror.types import Origin, Position

OPERATIONS_MAX = 1024
"""Operations in one batch."""
WINDOWS_MAX = 65_535
VECTOR_BYTES_MAX = 8192
"""One vector: 4,096 dimensions of float16."""

PACKS_MAX = 1024
"""Packs in one list."""
CONDEMNED_MAX = 4096
"""Names condemned by one batch."""

Bytes32 = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Announced(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):  # §12.1-1
    """A snapshot: the state before slot ``sequence`` of ``epoch``, whose last entry has the hash ``previous``; its digest;
    and the manifest that lists its parts, by the SHA-256 of its content, its length in bytes and its turn or name."""

    epoch: Number
    sequence: Number
    previous: Bytes32
    digest: Bytes32
    manifest: Bytes32
    length: Number
    named: Named

    @property
    def position(self) -> Position:
        """The place in the mirror from which a device that restored the snapshot reads on."""
        return Position(self.epoch, self.sequence, self.previous)


class Pack(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A run of ``count`` slots of ``epoch`` from ``first`` on, all in one blob: by the SHA-256 of its content, its length in
    bytes and its turn or name (``snapshots/packs.py``)."""

    epoch: Number
    first: Number
    count: Number
    content: Bytes32
    length: Number
    named: Named


class _BatchHead(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    origins: Annotated[tuple[PackedOrigin, ...], msgspec.Meta(max_length=OPERATIONS_MAX)]  # §11.2-2
    also_done: Annotated[tuple[PackedOrigin, ...], msgspec.Meta(max_length=OPERATIONS_MAX)]
    windows: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=0, le=WINDOWS_MAX)], ...], msgspec.Meta(max_length=WINDOWS_MAX)
    ]
    vector_bytes: Annotated[int, msgspec.Meta(ge=0, le=VECTOR_BYTES_MAX)]  # §11.2-2
    model: Annotated[str, msgspec.Meta(max_length=200)]  # §11.2-2
    digest: Bytes32
    announced: Announced | None
    floor: tuple[Number, Number] | None
    condemned: Annotated[tuple[Bytes32, ...], msgspec.Meta(max_length=CONDEMNED_MAX)]
    embedded_anew: Annotated[tuple[Bytes32, ...], msgspec.Meta(max_length=OPERATIONS_MAX)]
    drops_vectors: bool
    packs: Annotated[tuple[Pack, ...], msgspec.Meta(max_length=PACKS_MAX)] | None


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[_BatchHead] = msgspec.msgpack.Decoder(_BatchHead)


@dataclass(frozen=True, slots=True)
class Batch:
    """An opened mirror entry.

    ``vectors`` holds the float16 vectors of the windows of each chunk that is new to the replicated state, in order of
    first appearance, then those of the chunks ``embedded_anew`` (by content hash). With ``drops_vectors`` the model has
    changed and all existing vectors are dropped first. A batch is applied in this order: ``drops_vectors``, operations,
    ``embedded_anew``, ``condemned``; ``digest`` is that of the result.
    """

    operations: tuple[tuple[Origin, bytes], ...]
    also_done: tuple[Origin, ...]
    vectors: tuple[tuple[bytes, ...], ...]
    model: str
    digest: bytes
    announced: Announced | None = None
    floor: tuple[int, int] | None = None
    condemned: tuple[bytes, ...] = ()
    embedded_anew: tuple[bytes, ...] = ()
    drops_vectors: bool = False
    packs: tuple[Pack, ...] | None = None
    """All packs in use; None leaves the list as before."""

    def decoded(self) -> list[tuple[Origin, Operation]]:
        return [(origin, decode_operation(data)) for origin, data in self.operations]


def encode_batch(batch: Batch) -> list[Frame]:
    """Encodes a batch as frames of an entry's body.

    Raises:
        ValueError: vectors of unequal size.
    """
    flat = [vector for windows in batch.vectors for vector in windows]
    size = len(flat[0]) if flat else 0
    if any(len(vector) != size for vector in flat):
        raise ValueError("vectors of one batch have one size")
    head = _BatchHead(
        origins=tuple(_pack(origin) for origin, _ in batch.operations),
        also_done=tuple(_pack(origin) for origin in batch.also_done),
        windows=tuple(len(windows) for windows in batch.vectors),
        vector_bytes=size,
        model=batch.model,
        digest=batch.digest,
        announced=batch.announced,
        floor=batch.floor,
        condemned=batch.condemned,
        embedded_anew=batch.embedded_anew,
        drops_vectors=batch.drops_vectors,
        packs=batch.packs,
    )
    return [
        Frame(_encoder.encode(head)),
        Frame(b"".join(flat), compress=False),
        *(Frame(data, thorough=True) for _, data in batch.operations),
    ]


def decode_batch(frames: Sequence[bytes]) -> Batch:
    """Parses the frames of an authentic entry.

    Raises:
        Malformed: not a batch of this version.
    """
    if len(frames) < 2:
        raise Malformed("a batch has a head and vectors")
    try:
        head = _decoder.decode(frames[0])  # §11.2-1
    except UNDECODABLE as error:
        raise Malformed(f"not a batch of this version: {error}") from error
    if len(head.origins) != len(frames) - 2:  # §11.2-3
        raise Malformed(f"a batch names {len(head.origins)} operations and holds {len(frames) - 2}")
    blob = frames[1]
    if sum(head.windows) * head.vector_bytes != len(blob):  # §11.2-3
        raise Malformed("a batch's vectors do not have the size that it states")
    vectors: list[tuple[bytes, ...]] = []
    at = 0
    for count in head.windows:
        end = at + count * head.vector_bytes
        vectors.append(tuple(blob[i : i + head.vector_bytes] for i in range(at, end, head.vector_bytes or 1)))
        at = end
    return Batch(
        operations=tuple(
            (Origin(*origin), data) for origin, data in zip(head.origins, frames[2:], strict=True)
        ),
        also_done=tuple(Origin(*origin) for origin in head.also_done),
        vectors=tuple(vectors),
        model=head.model,
        digest=head.digest,
        announced=head.announced,
        floor=head.floor,
        condemned=head.condemned,
        embedded_anew=head.embedded_anew,
        drops_vectors=head.drops_vectors,
        packs=head.packs,
    )


def seal_mirror(
    kind: Kind,
    frames: Sequence[Frame],
    *,
    position: Position,
    vault: bytes,
    sender: bytes,
    incarnation: bytes,
    log_head: bytes,
    key: GenerationKey,
    signer: SigningKey,
    salt: bytes,
    public: bytes = b"",
) -> bytes:
    """Seals a mirror slot: a batch, or the seal that ends ``position.epoch`` there."""
    assert kind in (Kind.BATCH, Kind.SEAL), "mirror slots hold batches and seals"  # §11.1-1
    header = Header(
        kind=kind,
        channel=Channel.MIRROR,
        vault=vault,
        sender=sender,
        incarnation=incarnation,
        epoch=position.epoch,
        generation=key.number,
        log_head=log_head,
        sequence=position.sequence,
        previous=position.previous,
    )
    return seal(header, frames, key=key, signer=signer, public=public, salt=salt)


def opened_batch(entry: Entry, key: GenerationKey) -> Batch:
    """Opens a mirror entry. Raises WrongKey, Malformed, TooLarge."""
    return decode_batch(entry.open(key))


def _pack(origin: Origin) -> PackedOrigin:
    return (origin.device, origin.incarnation, origin.sequence)
