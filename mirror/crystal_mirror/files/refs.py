"""Which blobs the replicated tree needs."""

from collections.abc import Iterator

from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.ports import ReplicaView


def referenced(view: ReplicaView, secret: VaultSecret) -> Iterator[bytes]:
    """The names of all parts of the files that are not gone; one that several files share comes several times."""
    for row in view.files():
        if not row.gone:
            for part in row.parts:
                yield secret.blob_name(part.content, part.turn)
