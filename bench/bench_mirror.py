"""The mirror on the wire: what one chunk costs on the relay, beside what its content compresses to.

The text is the reference documentation that ships with Python (`pydoc_data.topics`): real English prose. Vectors are random
directions, which is what they look like to a compressor. The baseline is the least that could be sent: each session's text
as one zstd frame of level 3, and the vectors as they are.
"""

import random
import struct
from collections.abc import Iterator

import zstandard

from bench.harness import Row, ratio_at_most, value_at_most
from crystal_crypto.entry import Kind
from crystal_crypto.hierarchy import GenerationKey
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.entries.batches import Batch, encode_batch, seal_mirror
from crystal_mirror.operations import Capture, Piece, encode_operation
from crystal_mirror.types import START, Origin

CHUNK_CHARS = 1000
CHUNKS_PER_SESSION = 64
DIMENSIONS = 384
PROTOTYPE_BYTES = 12_438
"""What the published prototype puts on its relay for one such chunk, as measured on it."""


def _texts() -> Iterator[str]:
    from pydoc_data.topics import topics

    whole = "\n".join(topics[name] for name in sorted(topics))
    for start in range(0, len(whole) - CHUNK_CHARS, CHUNK_CHARS):
        yield whole[start : start + CHUNK_CHARS]


def _session(texts: list[str], number: int, generator: random.Random) -> bytes:
    pieces = tuple(
        Piece(
            text=text,
            role=("user", "assistant")[index % 2],
            created_at=1_760_000_000_000 + number * 3_600_000 + index * generator.randint(1_000, 90_000),
            message=str(_uuid(generator)),
            part=0,
        )
        for index, text in enumerate(texts)
    )
    capture = Capture(
        "cc-mini", str(_uuid(generator)), "src/crystal", "host/org/crystal", "claude-code", pieces
    )
    return encode_operation(capture)


def _uuid(generator: random.Random) -> object:
    import uuid

    return uuid.UUID(int=generator.getrandbits(128), version=4)


def run(quick: bool) -> list[Row]:
    generator = random.Random(7)
    texts = list(_texts())[: CHUNKS_PER_SESSION * (2 if quick else 8)]
    device = DeviceIdentity.generate(generator.randbytes)
    key = GenerationKey(1, generator.randbytes(32))
    compressor = zstandard.ZstdCompressor(level=3)
    sent = least = chunks = 0
    for number in range(0, len(texts) // CHUNKS_PER_SESSION, 2):
        sessions = [
            texts[n * CHUNKS_PER_SESSION : (n + 1) * CHUNKS_PER_SESSION] for n in (number, number + 1)
        ]
        operations = [_session(session, number, generator) for session in sessions]
        vectors = tuple(
            (struct.pack(f"<{DIMENSIONS}e", *(generator.gauss(0, 0.05) for _ in range(DIMENSIONS))),)
            for session in sessions
            for _ in session
        )
        batch = Batch(
            operations=tuple((Origin(device.id, bytes(8), n), data) for n, data in enumerate(operations)),
            also_done=(),
            vectors=vectors,
            model="all-MiniLM-L6-v2",
            digest=generator.randbytes(32),
        )
        sealed = seal_mirror(
            Kind.BATCH,
            encode_batch(batch),
            position=START,
            vault=bytes(16),
            sender=device.id,
            incarnation=bytes(8),
            log_head=bytes(32),
            key=key,
            signer=device.signing,
            salt=generator.randbytes(24),
        )
        sent += len(sealed)
        least += sum(len(compressor.compress("\n".join(session).encode())) for session in sessions)
        least += sum(len(windows[0]) for windows in vectors)
        chunks += len(vectors)
    return [
        Row(
            name="bytes on the relay for a mirrored chunk of 1,000 characters",
            value=sent / chunks,
            unit="bytes",
            baseline="its text at zstd level 3 and its vector",
            baseline_value=least / chunks,
            target=ratio_at_most(1.05),
        ),
        Row(
            name="the same, beside the published prototype",
            value=sent / chunks,
            unit="bytes",
            baseline="prototype, 384 dimensions",
            baseline_value=float(PROTOTYPE_BYTES),
            target=value_at_most(PROTOTYPE_BYTES / 8),
        ),
    ]
