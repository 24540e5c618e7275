"""A made-up embedder: the same vectors for the same text, cheap, and known to the oracle."""

import struct
from hashlib import sha256

MODEL = "sim/1"
DIMENSIONS = 8


OTHER_MODEL = "sim/2"


def embed(text: str, model: str = MODEL) -> list[bytes]:
    """One window for most texts, two for long ones; each `DIMENSIONS` float16, little-endian. Every model makes others."""
    other = "" if model == MODEL else model
    return [_vector(f"{other}{part}/{text}") for part in range(1 + (len(text) > 40))]


def _vector(text: str) -> bytes:
    digest = sha256(text.encode()).digest()
    return struct.pack(f"<{DIMENSIONS}e", *((byte - 127.5) / 256 for byte in digest[:DIMENSIONS]))
