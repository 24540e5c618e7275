"""The vectors about an entry's body: frames, end mark, padding, compression. All are sealed by a member, correctly."""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from tests.vectors.craft import EntryDraft, content, flip, packed, padded, raw, zstd_rle
from tests.vectors.entry_cases import entry
from tests.vectors.vectorfile import Vector

TEXT: Final = b"the quick brown fox jumps over the lazy dog, and the lazy dog sleeps on. " * 3
ZSTD: Final = bytes.fromhex(
    "28b52ffd20db3d0200740374686520717569636b2062726f776e20666f78206a756d7073206f76657220746865206c617a7920"
    "646f672c20616e6420736c65656e2e04000b2610d8d9d8a955431d130a"
)
ZSTD_WITH_CHECKSUM: Final = bytes.fromhex(
    "28b52ffd24db3d0200740374686520717569636b2062726f776e20666f78206a756d7073206f76657220746865206c617a7920"
    "646f672c20616e6420736c65656e2e04000b2610d8d9d8a955431d130af51480f0"
)
SKIPPABLE: Final = b"\x50\x2a\x4d\x18\x04\x00\x00\x00" + bytes(4)
_MIB: Final = 1024 * 1024
_MIB_OF_A: Final = zstd_rle([(65, 131072)] * 8, stated=_MIB)


def cases() -> Iterator[Vector]:
    yield from _good()
    yield from _layout()
    yield from _padding()
    yield from _compressed()


def _good() -> Iterator[Vector]:
    def case(name: str, what: str, stored: Sequence[bytes], frames: Sequence[bytes]) -> Vector:
        return entry(EntryDraft(name=name, content=content(stored)), what, "success", frames=frames)

    yield case("good_compressed", "one compressed frame", [packed(len(TEXT), ZSTD)], [TEXT])
    stored = [raw(b"vectors"), packed(len(TEXT), ZSTD), raw(b"")]
    yield case("good_mixed", "compressed, stored and empty frames", stored, [b"vectors", TEXT, b""])
    full = bytes(range(246))
    yield case("good_256_bytes", "content of 256 bytes: no padding", [raw(full)], [full])
    more = bytes(range(247))
    yield case("good_257_bytes", "content of 257 bytes: padded to 272", [raw(more)], [more])
    yield case("good_4096_frames", "as many frames as there may be", [raw(b"")] * 4096, [b""] * 4096)
    most = [packed(_MIB, _MIB_OF_A)] * 16
    yield case("good_16_mib", "16 MiB after decompression", most, [b"A" * _MIB] * 16)


def _bad(name: str, what: str, inside: bytes, expect: str = "malformed") -> Vector:
    return entry(EntryDraft(name=name, content=inside), what, expect)


def _filled(inside: bytes) -> bytes:
    """Zeros up to the next padded length; only for content that is wrong before its end."""
    return inside + bytes(padded(len(inside)) - len(inside))


def _layout() -> Iterator[Vector]:
    filled = raw(bytes(247))
    yield _bad("no_end_mark", "frames up to the last byte, and no end mark", filled)
    short = raw(bytes(240)) + b"\x01\x00\x00\x00\x00\x00\x00"
    yield _bad("frame_header_cut", "the content ends within a frame's header", short)
    for codec in (3, 128, 255):
        inside = content([struct.pack(">BII", codec, 4, 4) + b"data"])
        yield _bad(f"codec_{codec}", f"codec {codec} is not defined", inside)
    zstd = content([struct.pack(">BII", 3, len(TEXT), len(ZSTD)) + ZSTD])
    yield _bad("codec_3_with_a_zstd_frame", "a good zstd frame under an unknown codec", zstd)
    beyond = _filled(struct.pack(">BII", 1, 248, 248) + bytes(200))
    yield _bad("frame_beyond_content", "a frame one byte longer than what is left", beyond)
    largest = _filled(struct.pack(">BII", 2, 1000, 2**32 - 1))
    yield _bad("stored_length_largest", "the largest stored length", largest)
    length = _filled(struct.pack(">BII", 1, 2**32 - 1, 2**32 - 1))
    yield _bad("length_largest", "the largest length", length, "too large")
    unequal = content([struct.pack(">BII", 1, 5, 4) + b"data"])
    yield _bad("stored_frame_with_two_lengths", "a stored frame whose lengths differ", unequal)
    yield _bad("frames_4097", "one frame too many", content([raw(b"")] * 4097), "too large")
    over = content([packed(_MIB, _MIB_OF_A)] * 16 + [raw(b"A")])
    yield _bad("over_16_mib", "one byte over 16 MiB after decompression", over, "too large")
    claims = content([packed(2**32 - 1, zstd_rle([(65, 1)], stated=2**32 - 1))])
    yield _bad("claims_4_gib", "a few bytes that claim to be 4 GiB", claims, "too large")


def _padding() -> Iterator[Vector]:
    right = content([raw(b"data")])
    yield _bad("padding_first_byte", "the first byte of padding is not zero", flip(14)(right))
    yield _bad("padding_last_byte", "the last byte of padding is not zero", flip(-1, 7)(right))
    yield _bad("padding_too_long", "padded to 272 where 256 is right", right + bytes(16))
    yield _bad("padding_doubled", "padded to 512 where 256 is right", right + bytes(256))
    data = bytes(range(256))
    exact = raw(data) + b"\x00"
    yield _bad("padding_missing", "266 bytes and no padding: not even a padded length", exact)
    after = content([raw(b"data")])[:14] + raw(b"more") + b"\x00"
    yield _bad("frames_after_the_end_mark", "a frame after the end mark", _filled(after))


def _compressed() -> Iterator[Vector]:
    length = len(TEXT)

    def case(name: str, what: str, stated: int, zstd: bytes) -> Vector:
        return _bad(name, what, content([packed(stated, zstd)]))

    yield case("zstd_length_short", "the frame states one byte more than the entry", length - 1, ZSTD)
    yield case("zstd_length_long", "the frame states one byte less than the entry", length + 1, ZSTD)
    yield case("zstd_not_smaller", "a compressed frame as long as its data", len(ZSTD), ZSTD)
    unsized = zstd_rle([(65, 1000)], stated=None)
    yield case("zstd_without_size", "a frame that does not state its size", 1000, unsized)
    yield case("zstd_with_checksum", "a frame with a checksum", length, ZSTD_WITH_CHECKSUM)
    dictionary = zstd_rle([(65, 1000)], stated=1000, dictionary=7)
    yield case("zstd_with_dictionary", "a frame that asks for a dictionary", 1000, dictionary)
    bomb = zstd_rle([(65, 131072)] * 40, stated=1000)
    yield case("zstd_bomb", "a frame that states 1,000 bytes and holds 5 MiB", 1000, bomb)
    yield case(
        "zstd_gives_less", "a frame that holds less than it states", 1000, zstd_rle([(65, 999)], stated=1000)
    )
    yield case("zstd_cut", "a frame without its last byte", length, ZSTD[:-1])
    yield case("zstd_header_only", "a frame without blocks", length, ZSTD[:6])
    yield case("zstd_magic_only", "a frame of its magic only", length, ZSTD[:4])
    yield case("zstd_empty", "a compressed frame without a byte", length, b"")
    yield case("zstd_followed_by_a_byte", "a byte after the frame", length, ZSTD + b"\x00")
    yield case("zstd_followed_by_a_frame", "two frames in one", 2 * length, ZSTD + ZSTD)
    yield case("zstd_followed_by_skippable", "a skippable frame after it", length, ZSTD + SKIPPABLE)
    yield case("zstd_preceded_by_skippable", "a skippable frame before it", length, SKIPPABLE + ZSTD)
    yield case("zstd_skippable_only", "a skippable frame only", 4, SKIPPABLE[:3])
    yield case("zstd_magic_changed", "a frame with another magic", length, flip(0)(ZSTD))
    yield case(
        "zstd_reserved_bit", "a frame with the reserved bit of its header set", length, flip(4, 3)(ZSTD)
    )
    yield case("zstd_bad_block", "a frame with a block of the reserved type", length, _reserved_block())
    second = content([raw(b"data"), packed(length, ZSTD[:-1])])
    yield _bad("zstd_cut_in_second_frame", "a good frame, then one that is cut", second)


def _reserved_block() -> bytes:
    changed = bytearray(ZSTD)
    changed[6] |= 0b110
    return bytes(changed)
