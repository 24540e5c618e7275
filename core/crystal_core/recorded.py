"""Which pieces of a capture the memory has already: at the same place, replicated or pending.

For whoever reads a transcript again: what stands here need not be offered another time. Applying it again would change nothing,
but it would travel and be kept.
"""

from hashlib import sha256

from crystal_core.database import Database
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.operations import Capture

_STANDS = """
SELECT 1 FROM chunks c WHERE c.forget_hash = ?1 AND (
    EXISTS (SELECT 1 FROM occurrences WHERE chunk = c.rowid AND session = ?2 AND message = ?3 AND part = ?4 AND agent = ?5)
    OR EXISTS (SELECT 1 FROM provisional_places WHERE chunk = c.rowid AND session = ?2 AND message = ?3 AND part = ?4
               AND agent = ?5))
"""


def recorded(database: Database, secret: VaultSecret, capture: Capture) -> list[bool]:
    """For each piece of the capture whether it stands here."""
    hashes = secret.forget_hashes([sha256(piece.text.encode()).digest() for piece in capture.pieces])
    return [
        database.row(_STANDS, (forget_hash, capture.session, piece.message, piece.part, capture.agent))
        is not None
        for forget_hash, piece in zip(hashes, capture.pieces, strict=True)
    ]
