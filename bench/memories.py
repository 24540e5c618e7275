"""A memory to measure on: English passages of a thousand characters, with vectors that lie as the built-in model's lie.

The sentences come from the documentation that ships with Python, its docstrings included. A passage is made of two of
them, of whose vectors (by the built-in model) its own is a weighted mean, and of others that fill it up. So its words
repeat as they do in prose, and its neighbours are as close as those of real texts. Everything follows from the seed.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.replica import Replica
from crystal_core.state.mirror_log import MODEL
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.operations import Capture, Piece
from crystal_mirror.types import Origin

PASSAGE_CHARS = 1000
PIECES_PER_CAPTURE = 8
BATCH = 500
"""Passages in one transaction: about what one mirror entry of 1 MiB holds."""
SECRET = VaultSecret(bytes(32))
DEVICE = b"benchmark-device"
INCARNATION = b"lifetime"
AGENTS = 5
DAY = 86_400_000
NOW = 1_800_000_000_000
YEARS = 2


@dataclass(frozen=True)
class Passages:
    """Texts, and their vectors (unit length, float32 that came from float16), row by row."""

    texts: list[str]
    vectors: NDArray[np.float32]


def sentences() -> list[str]:
    """Distinct sentences of 40 to 300 characters, shuffled."""
    from pydoc_data.topics import topics

    library = Path(random.__file__).parent
    sources = [path.read_text(encoding="utf-8", errors="ignore") for path in sorted(library.glob("*.py"))]
    docstrings = [text for source in sources for text in re.findall(r'"""(.*?)"""', source, re.DOTALL)]
    found: set[str] = set()
    for text in [*topics.values(), *docstrings]:
        for sentence in re.split(r"(?<=[.:])\s+|\n\n", text):
            plain = re.sub(r"\s+", " ", sentence).strip()
            if 40 <= len(plain) <= 300:
                found.add(plain)
    ordered = sorted(found)
    random.Random(1).shuffle(ordered)
    return ordered


def embedded(embedder: BuiltinEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
    halves = b"".join(windows[0] for windows in embedder.embed_windows(texts))
    return np.frombuffer(halves, "<f2").reshape(len(texts), -1).astype(np.float32)


def passages(
    count: int,
    subjects: Sequence[str],
    vectors: NDArray[np.float32],
    seed: int = 1,
    *,
    first: int = 0,
    spread: float = 0.0,
) -> Passages:
    """`count` passages, numbered from `first` on. `spread` is the length of what a vector has of its own."""
    rng = np.random.default_rng(seed)
    one, other = rng.integers(0, len(subjects), (2, count))
    weights = rng.uniform(0.5, 0.9, (count, 1)).astype(np.float32)
    mixed = vectors[one] * weights + vectors[other] * (1 - weights)
    if spread:
        own = rng.standard_normal(mixed.shape, dtype=np.float32)
        mixed += own * np.float32(spread / np.sqrt(mixed.shape[1]))
    mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    generator = random.Random(seed)
    texts: list[str] = []
    for number in range(count):
        parts = [f"Note {first + number}.", subjects[int(one[number])], subjects[int(other[number])]]
        length = sum(len(part) + 1 for part in parts)
        while length < PASSAGE_CHARS:
            parts.append(generator.choice(subjects))
            length += len(parts[-1]) + 1
        texts.append(" ".join(parts)[:PASSAGE_CHARS])
    return Passages(texts, mixed.astype("<f2").astype(np.float32))


def random_passages(count: int, dimensions: int = 384, seed: int = 1) -> Passages:
    """The same texts with vectors in random directions: where only the amount of work counts."""
    rng = np.random.default_rng(seed)
    pool = rng.standard_normal((2000, dimensions)).astype(np.float32)
    pool /= np.linalg.norm(pool, axis=1, keepdims=True)
    return passages(count, sentences()[:2000], pool, seed)


def captures(texts: Sequence[str], first: int = 0) -> list[Capture]:
    """The passages as messages of sessions, `PIECES_PER_CAPTURE` in an operation, spread over two years."""
    found: list[Capture] = []
    for start in range(0, len(texts), PIECES_PER_CAPTURE):
        session = (first + start) // 200
        pieces = tuple(
            Piece(
                text,
                ("user", "assistant")[index % 2],
                NOW - (first + start + index) * 7919 * 60_000 % (YEARS * 365 * DAY),
                f"{first + start + index:036d}",
                0,
            )
            for index, text in enumerate(texts[start : start + PIECES_PER_CAPTURE], start=0)
        )
        agent = f"agent-{session % AGENTS}"
        found.append(
            Capture(agent, f"{session:036d}", "src/crystal", "host/org/crystal", "claude-code", pieces)
        )
    return found


def fill(
    replica: Replica, memory: Passages, identity: str, *, with_vectors: bool = True, first: int = 0
) -> None:
    """Apply all passages, `BATCH` in a transaction, as a device applies mirror entries; `first` of them were applied before."""
    halves = memory.vectors.astype("<f2") if with_vectors else None
    operations = captures(memory.texts, first)
    place = 0
    sequence = replica.ack(DEVICE, INCARNATION) + 1

    def vectors(_: str) -> list[bytes]:
        nonlocal place
        place += 1
        return [] if halves is None else [halves[place - 1].tobytes()]

    per_batch = BATCH // PIECES_PER_CAPTURE
    for start in range(0, len(operations), per_batch):
        with replica.transaction() as transaction:
            for operation in operations[start : start + per_batch]:
                origin = Origin(DEVICE, INCARNATION, sequence)
                transaction.apply(origin, operation, vectors)
                transaction.mark_done(origin)
                sequence += 1
            transaction.meta_set(MODEL, identity.encode())


def filled(path: Path, memory: Passages, identity: str) -> Replica:
    replica = Replica.open(path, SECRET)
    fill(replica, memory, identity)
    return replica
