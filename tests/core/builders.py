"""Small things that the tests of core are made of: operations, origins, vectors that follow from the text."""

import struct
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from crystal_core.database import Database
from crystal_core.replica import Replica
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.operations import Capture, Forget, Operation, Piece, Remember
from crystal_mirror.types import Origin

SECRET = VaultSecret(bytes(range(32)))
DEVICE = b"device-of-tests!"
OTHER_DEVICE = b"another-device.."
INCARNATION = b"lifetime"
DIMENSIONS = 16
NOW = 1_800_000_000_000
DAY = 86_400_000


def origin(sequence: int, device: bytes = DEVICE) -> Origin:
    return Origin(device, INCARNATION, sequence)


def content_hash(text: str) -> bytes:
    return sha256(text.encode()).digest()


def target(text: str) -> bytes:
    return SECRET.forget_hash(content_hash(text))


def capture(
    *texts: str,
    agent: str = "agent",
    session: str = "session",
    message: str = "message",
    created_at: int = NOW,
    project: str = "projects/crystal",
) -> Capture:
    pieces = tuple(Piece(text, "user", created_at, message, part) for part, text in enumerate(texts))
    return Capture(agent, session, project, "example.org/crystal", "claude-code", pieces)


def remember(text: str, category: str = "fact", agent: str = "agent", created_at: int = NOW) -> Remember:
    return Remember(text, category, agent, created_at)


def forget(*texts: str) -> Forget:
    return Forget(tuple(target(text) for text in texts))


def vector(text: str, window: int = 0) -> bytes:
    """A vector that only this text's window has: finite float16 numbers, little-endian."""
    seed = sha256(f"{window}:{text}".encode()).digest()
    numbers = [(seed[i] - 127.5) / 128 for i in range(DIMENSIONS)]
    return struct.pack(f"<{DIMENSIONS}e", *numbers)


def windows(text: str) -> list[bytes]:
    """One to three windows; none for some texts, as when nothing could be embedded."""
    return [vector(text, window) for window in range(content_hash(text)[0] % 4)]


def one_window(text: str) -> list[bytes]:
    return [vector(text)]


def no_vectors(_: str) -> list[bytes]:
    return []


Vectors = Callable[[str], Sequence[bytes]]


def new_replica(path: Path | str = ":memory:") -> Replica:
    return Replica.open(path, SECRET)


def apply(
    replica: Replica, *operations: Operation, vectors: Vectors = one_window, device: bytes = DEVICE
) -> None:
    """Apply operations under the next free origins of the device, in one transaction."""
    with replica.transaction() as transaction:
        for operation in operations:
            place = origin(transaction.ack(device, INCARNATION) + 1, device)
            transaction.apply(place, operation, vectors)
            transaction.mark_done(place)


def texts(database: Database) -> set[str]:
    """The texts of the replicated state."""
    return {row[0] for row in database.rows("SELECT text FROM chunks WHERE provisional = 0")}


def keyword_rowids(database: Database, word: str) -> list[int]:
    """What the full-text index itself holds for a word."""
    return [
        row[0]
        for row in database.rows("SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ?", (f'"{word}"',))
    ]
