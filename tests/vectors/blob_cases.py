"""The vectors about blobs."""

import hashlib
from collections.abc import Iterator

from tests.vectors.content_cases import SKIPPABLE, TEXT, ZSTD, ZSTD_WITH_CHECKSUM
from tests.vectors.craft import (
    GENERATION_KEY,
    OTHER,
    VAULT,
    BlobDraft,
    blob_name,
    fixed,
    flip,
    generation_name,
    zstd_rle,
)
from tests.vectors.vectorfile import Vector

_CHUNK = 65536
_SEALED_CHUNK = _CHUNK + 16
_FIRST = 128  # where the first chunk begins
_LONGEST = 8_257_528
_BLOCK = 131072  # the longest of a zstd frame


def cases() -> Iterator[Vector]:
    yield from _good()
    yield from _headers()
    yield from _cuts()
    yield from _chunks()
    yield from _payload()
    yield from _good_compressed()
    yield from _compressed()
    yield from _wrong_keys()
    yield from _named()


def _fields(draft: BlobDraft, what: str, expect: str) -> dict[str, str]:
    fields = {
        "what": what,
        "expect": expect,
        "vault": VAULT.hex(),
        "name": blob_name(draft.content).hex(),
        "generation": "1",
        "generation-key": GENERATION_KEY.hex(),
        "content-hash": hashlib.sha256(draft.content).hexdigest(),
    }
    if expect == "success":
        fields["length"] = str(len(draft.content))
        fields["content"] = hashlib.sha256(draft.content).hexdigest()
    return fields


def _blob(draft: BlobDraft, what: str, expect: str, **given: str) -> Vector:
    """`given` replaces fields that the reader gets."""
    fields = _fields(draft, what, expect)
    fields.update({name.replace("_", "-"): value for name, value in given.items()})
    return Vector("blob", draft.name, fields, draft.build())


_SMALL = BlobDraft(name="good_small")
_TWO = BlobDraft(name="good_two_chunks", content=fixed("two chunks", _CHUNK - 8 + 1))
_THREE = BlobDraft(name="good_three_chunks", content=fixed("three chunks", 2 * _CHUNK))


def _good() -> Iterator[Vector]:
    yield _blob(_SMALL, "a few bytes", "success")
    yield _blob(BlobDraft(name="good_empty", content=b""), "no content", "success")
    full = BlobDraft(name="good_full_chunk", content=fixed("a full chunk", _CHUNK - 8))
    yield _blob(full, "a payload of exactly one chunk", "success")
    yield _blob(_TWO, "one byte more than a chunk", "success")
    yield _blob(_THREE, "three chunks", "success")


def _headers() -> Iterator[Vector]:
    def case(name: str, what: str, expect: str, **changes: object) -> Vector:
        draft = BlobDraft(name=name)
        for field, value in changes.items():
            setattr(draft, field, value)
        return _blob(draft, what, expect)

    yield case("magic_of_an_entry", "the magic of an entry", "malformed", magic=b"CRYE")
    yield case("version_1", "version 1", "unknown version", version=1)
    yield case("version_3", "version 3", "unknown version", version=3)
    yield case("suite_2", "suite 2", "unknown version", suite=2)
    for flags in (2, 3, 128):
        yield case(f"flags_{flags}", f"flags {flags}", "malformed", flags=flags)
    yield case("reserved_first", "a bit in the first reserved byte", "malformed", reserved=128)
    reserved = bytes([0, 0, 0, 1])
    yield case("reserved_last", "a bit in the last reserved byte", "malformed", reserved_more=reserved)
    yield case("payload_length_zero", "a payload length of zero", "malformed", payload_bytes=0)
    yield case("payload_length_short", "a payload of 255 bytes", "malformed", payload_bytes=255)
    yield case("payload_length_not_padded", "a payload that no padding gives", "malformed", payload_bytes=257)
    yield case("payload_length_longer", "the next padded payload length", "malformed", payload_bytes=272)
    for length in (240, 257):
        # The MAC is broken too: a length is judged before it, and without a key.
        draft = BlobDraft(name=f"payload_length_{length}_and_mac", payload_bytes=length)
        fields = _fields(draft, f"a payload of {length} bytes, and another MAC", "malformed")
        yield Vector("blob", draft.name, fields, flip(100)(draft.build()))
    over = 8 * 1024 * 1024
    yield case("payload_length_over_limit", "a payload of 8 MiB", "too large", payload_bytes=over)
    yield case("payload_length_largest", "the largest length", "too large", payload_bytes=2**64 - 1)
    for field, at in (("salt", 87), ("mac", 96), ("mac_end", 127)):
        name = f"changed_{field}"
        built = BlobDraft(name=name)
        fields = _fields(built, f"one bit of {field.replace('_', ' ')} flipped", "wrong key")
        yield Vector("blob", name, fields, flip(at)(built.build()))


def _parts_of(base: BlobDraft, name: str, what: str, parts: str, expect: str = "malformed") -> Vector:
    fields = _fields(base, what, expect) | {"base": f"{base.name}.txt", "parts": parts}
    return Vector("blob", name, fields)


def _cuts() -> Iterator[Vector]:
    cuts = {
        0: "before the first byte",
        5: "before the suite",
        95: "within the header",
        96: "before the MAC",
        127: "within the MAC",
        128: "before the first chunk",
        383: "within the ciphertext",
        399: "before the last byte of the last tag",
    }
    for at, where in cuts.items():
        yield _parts_of(_SMALL, f"cut_{at:03}", f"cut {where}", f":{at}" if at else "x")
    whole = _FIRST + _SEALED_CHUNK
    yield _parts_of(_TWO, "last_chunk_missing", "the last chunk cut off", f":{whole}")
    yield _parts_of(_TWO, "cut_in_last_chunk", "the last chunk cut short", f":{whole + 100}")
    yield _parts_of(_SMALL, "longer_by_a_byte", "a byte after the last chunk", ": x00")
    yield _parts_of(_TWO, "longer_by_a_chunk", "the last chunk twice", f": {whole}:")


def _chunks() -> Iterator[Vector]:
    first, second, third = (_FIRST + n * _SEALED_CHUNK for n in range(3))
    yield _parts_of(
        _THREE, "chunks_swapped", "two chunks swapped", f":{first} {second}:{third} {first}:{second} {third}:"
    )
    yield _parts_of(
        _THREE,
        "chunk_repeated",
        "the first chunk in place of the second",
        f":{second} {first}:{second} {third}:",
    )
    yield _parts_of(_THREE, "chunk_left_out", "the second chunk left out", f":{second} {third}:")
    zeros = f"x00*{_SEALED_CHUNK}"
    yield _parts_of(_THREE, "chunk_of_zeros", "the second chunk of zeros", f":{second} {zeros} {third}:")
    last_first = BlobDraft(name="last_mark_on_every_chunk", content=_TWO.content, flag_last=_always)
    yield _blob(last_first, "every chunk marked as the last", "malformed")
    unmarked = BlobDraft(name="last_mark_missing", flag_last=_never)
    yield _blob(unmarked, "no chunk marked as the last", "malformed")
    for name, at in (("changed_ciphertext", 128), ("changed_tag", 399)):
        fields = _fields(_SMALL, f"one bit flipped at {at}", "malformed")
        yield Vector("blob", name, fields, flip(at)(_SMALL.build()))


def _always(number: int, last: int) -> bool:
    return number <= last


def _never(number: int, last: int) -> bool:
    return number > last


def _payload() -> Iterator[Vector]:
    longer = BlobDraft(name="content_length_too_large", content_length=249)
    yield _blob(longer, "a content length beyond the payload", "malformed")
    largest = BlobDraft(name="content_length_largest", content_length=2**64 - 1)
    yield _blob(largest, "the largest content length", "malformed")
    shorter = BlobDraft(name="content_length_too_small", content_length=20)
    yield _blob(shorter, "a content length one too small: padding is not zero", "malformed")
    padding = BlobDraft(name="padding_not_zero", padding=flip(-1))
    yield _blob(padding, "the last byte of padding is not zero", "malformed")
    name = blob_name(b"other content")
    renamed = BlobDraft(name="content_of_another_name", blob_name=name)
    other = hashlib.sha256(b"other content").hexdigest()
    yield _blob(
        renamed, "sealed under the name of other content", "wrong key", name=name.hex(), content_hash=other
    )


def _good_compressed() -> Iterator[Vector]:
    def case(name: str, what: str, content: bytes, stored: bytes) -> Vector:
        return _blob(BlobDraft(name=name, content=content, stored=stored), what, "success")

    yield case("good_compressed", "one zstd frame", TEXT, ZSTD)
    least = zstd_rle([(65, 14)], stated=14)
    yield case("good_compressed_least", "a frame one byte shorter than its content", b"A" * 14, least)
    head = fixed("stored in a frame", 100_000)
    two = head + b"A" * _BLOCK
    yield case(
        "good_compressed_chunks", "a frame over two chunks", two, _frame(head, [(65, _BLOCK)], len(two))
    )
    longest = zstd_rle(_blocks(_LONGEST), stated=_LONGEST)
    yield case("good_compressed_longest", "as much content as there may be", b"A" * _LONGEST, longest)


def _compressed() -> Iterator[Vector]:
    def case(name: str, what: str, stored: bytes, expect: str = "malformed", content: bytes = TEXT) -> Vector:
        return _blob(BlobDraft(name=f"zstd_{name}", content=content, stored=stored), what, expect)

    a = b"A" * 1000
    yield case("flag_on_plain_content", "content as it is, and the flag of compression", TEXT)
    yield _blob(
        BlobDraft(name="zstd_flag_missing", content=TEXT, stored=ZSTD, flags=0), "no flag", "wrong key"
    )
    yield case("empty", "no stored byte, and the flag of compression", b"")
    yield case("magic_only", "a frame of its magic only", ZSTD[:4])
    yield case("header_only", "a frame without blocks", ZSTD[:6])
    yield case("cut", "a frame without its last byte", ZSTD[:-1])
    yield case("followed_by_a_byte", "a byte after the frame", ZSTD + b"\x00")
    yield case("followed_by_a_frame", "two frames", ZSTD + ZSTD, content=TEXT + TEXT)
    yield case("followed_by_skippable", "a skippable frame after it", ZSTD + SKIPPABLE)
    yield case("preceded_by_skippable", "a skippable frame before it", SKIPPABLE + ZSTD)
    yield case("magic_changed", "a frame with another magic", flip(0)(ZSTD))
    yield case("with_checksum", "a frame with a checksum", ZSTD_WITH_CHECKSUM)
    dictionary = zstd_rle([(65, 1000)], stated=1000, dictionary=7)
    yield case("with_dictionary", "a frame that asks for a dictionary", dictionary, content=a)
    unsized = zstd_rle([(65, 1000)], stated=None)
    yield case("without_size", "a frame that does not state its size", unsized, content=a)
    yield case("gives_less", "less than the frame states", zstd_rle([(65, 999)], stated=1000), content=a)
    yield case("gives_more", "more than the frame states", zstd_rle([(65, 1001)], stated=1000), content=a)
    bomb = zstd_rle([(65, _BLOCK)] * 40, stated=1000)
    yield case("bomb", "a frame that states 1,000 bytes and holds 5 MiB", bomb, content=a)
    same = zstd_rle([(65, 13)], stated=13)
    yield case("not_smaller", "a frame as long as its content", same, content=b"A" * 13)
    over = zstd_rle(_blocks(_LONGEST + 1), stated=_LONGEST + 1)
    yield case("over_limit", "one byte more than a blob holds", over, "too large", b"A" * (_LONGEST + 1))
    claims = zstd_rle([(65, 1)], stated=2**32 - 1)
    yield case("claims_4_gib", "a few bytes that claim to be 4 GiB", claims, "too large", b"A")
    for name, stated, expect in (("largest", 2**64 - 3, "too large"), ("nothing", 2**64 - 1, "malformed")):
        frame = ZSTD[:4] + b"\xe0" + stated.to_bytes(8, "little") + b"\x0b\x00\x00A"
        yield case(f"claims_{name}", f"a frame that states {stated} bytes", frame, expect, b"A")
    other = zstd_rle([(66, 1000)], stated=1000)
    yield case("of_other_content", "a good frame of other content", other, "wrong key", a)


def _blocks(length: int) -> list[tuple[int, int]]:
    return [(65, _BLOCK)] * (length // _BLOCK) + [(65, length % _BLOCK)]


def _frame(head: bytes, blocks: list[tuple[int, int]], stated: int) -> bytes:
    """A zstd frame of a block of bytes as they are, and run-length blocks."""
    runs = zstd_rle(blocks, stated=stated)
    return runs[:9] + (len(head) << 3).to_bytes(3, "little") + head + runs[9:]


def _wrong_keys() -> Iterator[Vector]:
    def case(title: str, what: str, **given: str) -> Vector:
        return _blob(BlobDraft(name=title), what, "wrong key", **given)

    other_key = flip(0)(GENERATION_KEY).hex()
    yield case("another_generation_key", "another key of that number", generation_key=other_key)
    yield case("another_generation", "a key of another number", generation="2")
    yield case("another_vault", "asked for in another vault", vault=OTHER.hex())
    yield case("another_name", "asked for under another name", name=blob_name(b"other content").hex())
    other = hashlib.sha256(b"other content").hexdigest()
    yield case("another_content", "other content asked for under this name", content_hash=other)


def _named() -> Iterator[Vector]:
    """Blobs whose reference has a name and the content's SHA-256 instead of a turn."""

    def case(title: str, what: str, expect: str, content: bytes, name: bytes, asked: bytes) -> Vector:
        draft = BlobDraft(name=title, content=content, generation=2, blob_name=name)
        fields = _fields(draft, what, expect)
        fields |= {"name": name.hex(), "generation": "2", "content-hash": hashlib.sha256(asked).hexdigest()}
        return Vector("blob", title, fields, draft.build())

    text, other = b"the content of a blob", b"other content"
    name = generation_name(text, 2)
    yield case("named", "named in generation 2", "success", text, name, text)
    turned = generation_name(text, 2, 7)
    yield case("named_turn", "named in generation 2, by its eighth turn", "success", text, turned, text)
    kept = generation_name(text, 1)
    yield case("named_before", "put back under the name of an older generation", "success", text, kept, text)
    yield case(
        "named_other", "other content than was asked for, under its name", "wrong key", other, name, text
    )
