"""What the envelope costs: bytes that a device puts on a real relay, over what it had to say, compressed as it does it.

Counted is what the runner sent: header, signature, MAC, tags, the frames' own heads, and the padding that hides lengths.
What is said is, for an entry, its operations at the zstd level that entries of its kind use, and its vectors, which do not
shrink; for a snapshot its parts, whose texts are compressed within them; for a file's part its bytes, at zstd level 3 where
they shrink. Sizes are drawn so that each doubling is as likely as the next: padding is at its worst just behind a power of
two, and nobody may choose.

The rows beside them say what a reader might have expected: the text alone, without who said it when.
"""

import asyncio
import base64
import os
import random
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from bench.harness import Row, ratio_at_most
from bench.memories import SECRET, captures, filled, random_passages, sentences
from bench.relay_load import UNLIMITED
from crystal_crypto.blob import seal_blob
from crystal_crypto.compression import compress
from crystal_crypto.entry import Kind
from crystal_crypto.hierarchy import GenerationKey
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.entries.batches import Batch, encode_batch, seal_mirror
from crystal_mirror.entries.offers import seal_offer
from crystal_mirror.operations import Capture, Piece, encode_operation
from crystal_mirror.ports import Stream
from crystal_mirror.requests import Flow, PutBlob, PutNew, Request
from crystal_mirror.snapshots.blobs import BlobRef
from crystal_mirror.snapshots.manifest import Manifest, encode_manifest
from crystal_mirror.store_keys import StoreKeys
from crystal_mirror.types import START, ZERO_HASH, Origin
from crystal_node.device.runner import Runner
from tests.support.relay_process import running_relay
from tests.support.relay_server import Member, enrolled

KIB = 1024
BATCH_BYTES_MIN = 64 * KIB
ENTRY_BYTES_MAX = 900 * KIB
OPERATION_TEXT_BYTES_MAX = 220 * KIB
"""An operation has at most 256 KiB."""
PART_BYTES_MIN, PART_BYTES_MAX = 256 * KIB, 4 * 1024 * KIB
"""Of a file's part."""
DIMENSIONS = 384
TARGET = 1.05


@dataclass
class Sent:
    """Of one kind of object."""

    ratios: list[float] = field(default_factory=list[float])
    """Of those of 64 KiB and more."""
    count: int = 0
    bytes: int = 0
    said: int = 0
    text: int = 0
    """What a reader might have expected."""

    def note(self, size: int, said: int, text: int = 0) -> None:
        if said >= BATCH_BYTES_MIN:
            self.ratios.append(size / said)
        self.count += 1
        self.bytes += size
        self.said += said
        self.text += text

    def rows(self, name: str, baseline: str, text: str = "") -> Iterator[Row]:
        """``text``: what the second row compares with, none if it is empty."""
        count = self.count
        yield Row(
            name=name,
            value=self.bytes / count,
            unit="bytes",
            baseline=baseline,
            baseline_value=self.said / count,
            target=ratio_at_most(TARGET),
            note=f"{count} objects; the worst {max(self.ratios):.3f}",
        )
        if text:
            yield Row(
                name=f"{name}, beside {text}",
                value=self.bytes / count,
                unit="bytes",
                baseline=text,
                baseline_value=self.text / count,
            )


class Maker:
    """A device that seals, and puts what it sealed."""

    def __init__(self, runner: Runner, member: Member) -> None:
        self.random = random.Random(11)
        self.runner = runner
        self.device = DeviceIdentity.generate(self.random.randbytes)
        self.key = GenerationKey(1, self.random.randbytes(32))
        self.vault = bytes.fromhex(member.vault)
        self.keys = StoreKeys(self.vault)
        self.member = bytes.fromhex(member.device)
        self.sentences = sentences()
        self.code = b"".join(path.read_bytes() for path in sorted(Path(random.__file__).parent.glob("*.py")))
        self.sequence = 0

    def size(self, least: int, most: int) -> int:
        return int(least * (most / least) ** self.random.random())

    async def put(self, request: Request) -> int:
        """Returns what the runner counted."""
        before = self.runner.traffic.bytes_up

        def flow() -> Flow[bool]:
            created: bool = yield request
            return created

        assert await self.runner.run(flow()), "names are new"
        return self.runner.traffic.bytes_up - before

    def capture(self, texts: list[str]) -> bytes:
        pieces = tuple(
            Piece(text, ("user", "assistant")[n % 2], 1_760_000_000_000 + n * 40_000, self._uuid(), 0)
            for n, text in enumerate(texts)
        )
        return encode_operation(
            Capture("cc-mini", self._uuid(), "src/crystal", "host/org/crystal", "claude-code", pieces)
        )

    def texts(self, plain_bytes: int, *, ids: float = 0.0) -> list[str]:
        """Passages of a thousand characters or more. ``ids``: the share of what does not shrink (hashes, encoded images)."""
        found: list[str] = []
        size = 0
        while size < plain_bytes:
            words = self.random.choices(self.sentences, k=11)
            if self.random.random() < ids:
                words = [base64.b64encode(self.random.randbytes(750)).decode()]
            found.append(" ".join(words))
            size += len(found[-1])
        return found

    def source(self, size: int) -> bytes:
        """So many bytes of source code."""
        start = self.random.randrange(len(self.code) - size)
        return self.code[start : start + size]

    async def conversation(self, sent: Sent) -> None:
        texts = self.texts(self.size(BATCH_BYTES_MIN, OPERATION_TEXT_BYTES_MAX), ids=self.random.random())
        operation = self.capture(texts)
        said = len(compress(operation) or operation)
        if not BATCH_BYTES_MIN <= said <= ENTRY_BYTES_MAX:
            return
        self.sequence += 1
        sealed = seal_offer(
            operation,
            origin=None,
            stream=Stream(bytes(8), self.sequence, ZERO_HASH),
            device=self.device.id,
            vault=self.vault,
            epoch=1,
            log_head=bytes(32),
            key=self.key,
            signer=self.device.signing,
            salt=self.random.randbytes(24),
        )
        place = self.keys.conversation(self.member, bytes(8), self.sequence)
        sent.note(await self.put(PutNew(place, sealed)), said, _packed(texts))

    async def mirror(self, sent: Sent) -> None:
        sessions = [self.texts(self.random.randint(8, 64) * KIB) for _ in range(self.random.randint(2, 8))]
        operations = [self.capture(texts) for texts in sessions]
        vectors = tuple((self._vector(),) for texts in sessions for _ in texts)
        vector_bytes = sum(len(windows[0]) for windows in vectors)
        said = sum(len(compress(data, thorough=True) or data) for data in operations) + vector_bytes
        if not BATCH_BYTES_MIN <= said <= ENTRY_BYTES_MAX:
            return
        batch = Batch(
            operations=tuple(
                (Origin(self.device.id, bytes(8), n), data) for n, data in enumerate(operations)
            ),
            also_done=(),
            vectors=vectors,
            model="all-MiniLM-L6-v2",
            digest=self.random.randbytes(32),
        )
        sealed = seal_mirror(
            Kind.BATCH,
            encode_batch(batch),
            position=START,
            vault=self.vault,
            sender=self.device.id,
            incarnation=bytes(8),
            log_head=bytes(32),
            key=self.key,
            signer=self.device.signing,
            salt=self.random.randbytes(24),
        )
        self.sequence += 1
        size = await self.put(PutNew(self.keys.mirror(1, self.sequence), sealed))
        sent.note(size, said, sum(map(_packed, sessions)) + vector_bytes)

    async def blob(self, content: bytes, *, compress: bool = False) -> int:
        digest = sha256(content).digest()
        sealed = seal_blob(
            [content],
            length=len(content),
            content_hash=digest,
            vault=self.vault,
            key=self.key,
            name=SECRET.blob_name(digest),
            salt=self.random.randbytes(24),
            compress=compress,
        )
        return await self.put(PutBlob(self.keys.blob(SECRET.blob_name(digest)), b"".join(sealed)))

    async def snapshot(self, folder: Path, passages: int, sent: Sent) -> None:
        """One of a memory of so many passages: all its parts, and the manifest."""
        memory = random_passages(passages)
        replica = filled(folder / "crystal.db", memory, "bench/1")
        refs: list[BlobRef] = []
        with replica.export() as export:
            for part in export.parts():
                sent.note(await self.blob(part), len(part))
                refs.append(BlobRef(sha256(part).digest(), len(part)))
            position = export.position()
            manifest = encode_manifest(
                epoch=position.epoch,
                sequence=position.sequence,
                previous=position.previous,
                digest=export.digest().to_bytes(),
                manifest=Manifest(None, tuple(refs)),
            )
        sent.bytes += await self.blob(manifest)
        sessions: dict[str, list[str]] = {}
        for operation in captures(memory.texts):
            sessions.setdefault(operation.session, []).extend(piece.text for piece in operation.pieces)
        sent.text = sum(map(_packed, sessions.values())) + memory.vectors.size * 2
        replica.close()

    def _vector(self) -> bytes:
        return struct.pack(f"<{DIMENSIONS}e", *(self.random.gauss(0, 0.05) for _ in range(DIMENSIONS)))

    def _uuid(self) -> str:
        import uuid

        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))


def run(quick: bool) -> list[Row]:
    """Rows for the result table."""
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as directory:
        folder = Path(directory)
        with running_relay(folder / "relay", options=UNLIMITED) as relay:
            return asyncio.run(_run(folder, relay.url, relay.enroll_token, quick))


async def _run(folder: Path, url: str, enroll_token: str, quick: bool) -> list[Row]:
    member = await enrolled(url, enroll_token=enroll_token)
    client = member.store(url)
    maker = Maker(Runner(client, None), member)
    conversations, mirror, parts, files, prose = (Sent() for _ in range(5))
    for _ in range(20 if quick else 200):
        await maker.conversation(conversations)
        await maker.mirror(mirror)
    for _ in range(6 if quick else 60):
        size = maker.size(PART_BYTES_MIN, PART_BYTES_MAX)
        content = os.urandom(size)
        files.note(await maker.blob(content, compress=True), size)
        text = maker.source(size)
        prose.note(await maker.blob(text, compress=True), len(compress(text, probing=False) or text))
    await maker.snapshot(folder, 4_000 if quick else 30_000, parts)
    await client.aclose()
    plain = "its text at zstd level 3, and its vectors"
    return [
        *conversations.rows(
            "bytes on the relay for an entry of a conversation, 64 KiB and more",
            "its operation at zstd level 3",
            "its text at zstd level 3",
        ),
        *mirror.rows(
            "bytes on the relay for a mirror entry, 64 KiB and more",
            "its operations at zstd level 6, and its vectors",
            plain,
        ),
        *parts.rows(
            "bytes on the relay for a snapshot's part, and its share of the manifest", "the part", plain
        ),
        *files.rows("bytes on the relay for a file's part, of what does not shrink", "the part"),
        *prose.rows("bytes on the relay for a text file's part", "the part at zstd level 3"),
    ]


def _packed(texts: list[str]) -> int:
    text = "\n".join(texts).encode()
    return len(compress(text) or text)
