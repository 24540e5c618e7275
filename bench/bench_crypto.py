"""Sealing and opening: entries against HMAC-SHA256 and zstd, and blobs.

An entry of incompressible data cannot be faster than one pass of HMAC-SHA256 over it, an entry of text not faster than zstd
level 3: these are the baselines. *Opening* is everything a reader does: parsing, the signature, the MAC, decryption,
decompression. The data is the most that one entry holds, just under 1 MiB as sealed. Ratios suppose that a second
processor is idle; where none is, the body is hashed on one and they are about a quarter lower.
"""

import hashlib
import hmac
import os
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import zstandard

from bench.harness import Row, Target, interleaved, ratio_at_least
from crystal_crypto.blob import BLOB_CONTENT_BYTES_MAX, Piece, open_blob, seal_blob
from crystal_crypto.entry import Channel, Frame, Header, Kind, content_bytes_max, parse, seal
from crystal_crypto.hierarchy import GenerationKey, VaultSecret
from crystal_crypto.identity import SigningKey

_MIB = 1024 * 1024
_TEXT_STEP_BYTES = 128 * 1024
_LEVEL = 3
_HEADER = Header(
    kind=Kind.OFFER,
    channel=Channel.CONVERSATIONS,
    vault=bytes(16),
    sender=bytes(16),
    incarnation=bytes(8),
    epoch=1,
    generation=1,
    log_head=bytes(32),
    sequence=0,
    previous=bytes(32),
)


def run(quick: bool) -> list[Row]:
    key, signer = GenerationKey.generate(1), SigningKey.generate()
    repeat = 15 if quick else 150
    return [
        *_incompressible(key, signer, repeat),
        *_text(key, signer, repeat // 3),
        *_small(key, signer, repeat * 4),
        *_blob(key, repeat // 5),
    ]


def _seal(frame: Frame, key: GenerationKey, signer: SigningKey) -> bytes:
    return seal(_HEADER, [frame], key=key, signer=signer, salt=os.urandom(24))


def _open(data: bytes, key: GenerationKey, signer: SigningKey) -> list[bytes]:
    entry = parse(data)
    entry.verify(signer.public)
    return entry.open(key)


def _incompressible(key: GenerationKey, signer: SigningKey, repeat: int) -> list[Row]:
    data = os.urandom(content_bytes_max() - 10)
    sealed, mac_key = _seal(Frame(data), key, signer), os.urandom(32)
    works = {
        "hmac": lambda: hmac.digest(mac_key, data, "sha256"),
        "seal": lambda: _seal(Frame(data), key, signer),
        "open": lambda: _open(sealed, key, signer),
    }
    rates = _rates(works, len(data), repeat)
    return [
        _row("sealing random bytes", rates["seal"], "HMAC-SHA256", rates["hmac"], ratio_at_least(0.8)),
        _row("opening random bytes", rates["open"], "HMAC-SHA256", rates["hmac"], ratio_at_least(0.8)),
    ]


def _text(key: GenerationKey, signer: SigningKey, repeat: int) -> list[Row]:
    text = _some_text()
    sealed = _seal(Frame(text), key, signer)
    compressor, decompressor = zstandard.ZstdCompressor(level=_LEVEL), zstandard.ZstdDecompressor()
    packed = compressor.compress(text)
    works = {
        "zstd": lambda: compressor.compress(text),
        "unzstd": lambda: decompressor.decompress(packed),
        "seal": lambda: _seal(Frame(text), key, signer),
        "open": lambda: _open(sealed, key, signer),
    }
    rates = _rates(works, len(text), repeat)
    both = 1 / (1 / rates["seal"] + 1 / rates["open"])
    zstd_both = 1 / (1 / rates["zstd"] + 1 / rates["unzstd"])
    return [
        _row("sealing text", rates["seal"], "zstd level 3", rates["zstd"], ratio_at_least(0.8)),
        _row("opening text", rates["open"], "zstd decompression", rates["unzstd"]),
        _row("sealing and opening text", both, "zstd level 3 both ways", zstd_both, ratio_at_least(0.8)),
    ]


def _small(key: GenerationKey, signer: SigningKey, repeat: int) -> list[Row]:
    frame = Frame(_some_text()[:1000])
    sealed = _seal(frame, key, signer)
    works = {"seal": lambda: _seal(frame, key, signer), "open": lambda: _open(sealed, key, signer)}
    timings = interleaved(works, repeat=repeat)
    return [
        Row(name="sealing an entry of 1,000 characters", value=timings["seal"].median * 1e6, unit="µs"),
        Row(name="opening it", value=timings["open"].median * 1e6, unit="µs"),
    ]


def _blob(key: GenerationKey, repeat: int) -> list[Row]:
    secret, vault = VaultSecret.generate(), bytes(16)
    content = os.urandom(BLOB_CONTENT_BYTES_MAX)
    digest = hashlib.sha256(content).digest()
    pieces = [content[at : at + 65536] for at in range(0, len(content), 65536)]
    name = secret.blob_name(digest)

    def sealed() -> Iterator[bytes]:
        length, salt = len(content), os.urandom(24)
        return seal_blob(
            pieces, length=length, content_hash=digest, vault=vault, key=key, name=name, salt=salt
        )

    stored = list(sealed())
    works = {
        "hmac": lambda: hmac.digest(digest, content, "sha256"),
        "seal": lambda: _drain(sealed()),
        "open": lambda: _drain(open_blob(stored, content_hash=digest, name=name, vault=vault, key=key)),
    }
    rates = _rates(works, len(content), repeat)
    return [
        _row("sealing a blob of 8 MiB", rates["seal"], "HMAC-SHA256", rates["hmac"]),
        _row("opening a blob of 8 MiB", rates["open"], "HMAC-SHA256", rates["hmac"]),
    ]


def _drain(pieces: Iterator[Piece]) -> int:
    return sum(len(piece) for piece in pieces)


def _rates(works: Mapping[str, Callable[[], object]], size: int, repeat: int) -> dict[str, float]:
    """MiB/s of each."""
    timings = interleaved(works, repeat=repeat, warm_up=3)
    return {name: size / _MIB / timing.median for name, timing in timings.items()}


def _row(name: str, rate: float, baseline: str, baseline_rate: float, target: Target | None = None) -> Row:
    return Row(
        name=name, value=rate, unit="MiB/s", baseline=baseline, baseline_value=baseline_rate, target=target
    )


def _some_text() -> bytes:
    """English and code, as much as fits in one entry: the modules of the standard library."""
    modules = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = b"".join(path.read_bytes() for path in modules)[: 4 * _MIB]
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    while len(compressor.compress(text)) > content_bytes_max() - 10:
        text = text[:-_TEXT_STEP_BYTES]
    return text
