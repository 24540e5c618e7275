"""The files that a benchmark moves between two devices, and the figures of a move."""

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MIB = 1024 * 1024


@dataclass
class Figures:
    """Of one step. ``processor``: processor time in seconds."""

    seconds: float
    processor: float
    wire: int
    """Bytes between both devices and the relay, or between the two devices."""
    peak: int
    """Most bytes that the largest process had resident."""


@dataclass(frozen=True)
class RandomBytes:
    """Content of ``size`` bytes that is made while it is written, and never in memory as a whole."""

    size: int
    seed: int


class Moving(Protocol):
    """Something that makes the folder there the same as the one here."""

    here: Path
    there: Path

    def measured(self, files: Mapping[str, bytes | RandomBytes]) -> Figures: ...


def written(path: Path, content: bytes | RandomBytes) -> tuple[int, bytes]:
    """Writes the content. Returns its size and SHA-256."""
    if isinstance(content, bytes):
        path.write_bytes(content)
        return len(content), hashlib.sha256(content).digest()
    rng, digest = random.Random(content.seed), hashlib.sha256()
    with path.open("wb") as file:
        for start in range(0, content.size, MIB):
            piece = rng.randbytes(min(MIB, content.size - start))
            digest.update(piece)
            file.write(piece)
    return content.size, digest.digest()


def has(path: Path, size: int, digest: bytes) -> bool:
    """Whether the file has this size and SHA-256."""
    try:
        if path.stat().st_size != size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest() == digest
    except OSError:
        return False
