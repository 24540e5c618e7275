"""The manifest of a snapshot: the list of its parts, as the content of one blob.

MessagePack array: version, the position of the snapshot (epoch, slot, hash before it), the digest of the whole state, the
model that made the vectors (empty if there are none), for each part its SHA-256, length and turn or name, and each epoch that a
seal ended with the seal's slot, from which a device with another history sees where the two part. An ``Announced`` in the
mirror names it, and it is checked against that field by field.
"""

from typing import Annotated

import msgspec

from crystal_crypto.errors import UNDECODABLE, Malformed
from crystal_mirror.entries.batches import Announced, Bytes32, Number
from crystal_mirror.operations import Named
from crystal_mirror.ports import SNAPSHOT_PART_BYTES_MAX
from crystal_mirror.snapshots.blobs import BlobRef

MANIFEST_VERSION = 1
EPOCHS_MAX = 65_536
PARTS_MAX = 100_000
"""Parts of one snapshot: at 1 MiB each a hundred gigabytes."""

_Part = tuple[
    Bytes32,
    Annotated[int, msgspec.Meta(ge=1, le=SNAPSHOT_PART_BYTES_MAX)],
    Named,
]


class UnreadableSnapshot(Malformed):
    """This program cannot read the newest snapshot's manifest."""

    hint = "Update the devices to one version of Crystal, then run `crystal snapshot` on the Core: it makes another one"


class _Manifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: Annotated[int, msgspec.Meta(ge=MANIFEST_VERSION, le=MANIFEST_VERSION)]
    epoch: Number
    sequence: Number
    previous: Bytes32
    digest: Bytes32
    model: Annotated[str, msgspec.Meta(max_length=200)]  # §12.1-2
    parts: Annotated[tuple[_Part, ...], msgspec.Meta(max_length=PARTS_MAX)]  # §12.1-2
    ends: Annotated[tuple[tuple[Number, Number], ...], msgspec.Meta(max_length=EPOCHS_MAX)]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Manifest)


class Manifest(msgspec.Struct, frozen=True):
    """A parsed manifest: the model's identity (None: no vectors) and the parts in order."""

    model: bytes | None
    parts: tuple[BlobRef, ...]
    ends: tuple[tuple[int, int], ...] = ()

    @property
    def length(self) -> int:
        """Bytes of all parts together, before sealing."""
        return sum(part.length for part in self.parts)


def encode_manifest(
    *, epoch: int, sequence: int, previous: bytes, digest: bytes, manifest: Manifest
) -> bytes:
    return _encoder.encode(
        _Manifest(
            MANIFEST_VERSION,
            epoch,
            sequence,
            previous,
            digest,
            manifest.model.decode() if manifest.model else "",
            tuple((part.content, part.length, part.named) for part in manifest.parts),
            manifest.ends,
        )
    )


def decode_manifest(data: bytes, announced: Announced) -> Manifest:
    """Parses a manifest and compares it with its announcement.

    Raises:
        UnreadableSnapshot: not a manifest of this version, or another snapshot's.
    """
    try:
        parsed = _decoder.decode(data)  # §12.1-2
    except UNDECODABLE as error:
        raise UnreadableSnapshot(f"not a manifest of this version: {error}") from error
    stated = (parsed.epoch, parsed.sequence, parsed.previous, parsed.digest)
    if stated != (announced.epoch, announced.sequence, announced.previous, announced.digest):  # §12.1-4
        raise UnreadableSnapshot("the manifest is of another snapshot than was announced")
    parts = tuple(BlobRef(*part) for part in parsed.parts)
    return Manifest(parsed.model.encode() or None, parts, parsed.ends)
