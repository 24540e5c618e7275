"""The vectors about blobs."""

import hashlib
from collections.abc import Iterator

from tests.vectors.craft import GENERATION_KEY, OTHER, VAULT, VAULT_SECRET, BlobDraft, blob_name, fixed, flip
from tests.vectors.vectorfile import Vector

_CHUNK = 65536
_SEALED_CHUNK = _CHUNK + 16
_FIRST = 128  # where the first chunk begins


def cases() -> Iterator[Vector]:
    yield from _good()
    yield from _headers()
    yield from _cuts()
    yield from _chunks()
    yield from _payload()
    yield from _wrong_keys()


def _fields(draft: BlobDraft, what: str, expect: str) -> dict[str, str]:
    fields = {
        "what": what,
        "expect": expect,
        "vault": VAULT.hex(),
        "name": blob_name(draft.content).hex(),
        "generation": "1",
        "generation-key": GENERATION_KEY.hex(),
        "secret": VAULT_SECRET.hex(),
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
    yield case("flags_1", "a flag", "malformed", flags=1)
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
    yield _blob(renamed, "sealed under the name of other content", "wrong key", name=name.hex())


def _wrong_keys() -> Iterator[Vector]:
    def case(title: str, what: str, **given: str) -> Vector:
        return _blob(BlobDraft(name=title), what, "wrong key", **given)

    other_key = flip(0)(GENERATION_KEY).hex()
    yield case("another_generation_key", "another key of that number", generation_key=other_key)
    yield case("another_generation", "a key of another number", generation="2")
    yield case("another_vault", "asked for in another vault", vault=OTHER.hex())
    yield case("another_name", "asked for under another name", name=blob_name(b"other content").hex())
    yield case("another_vault_secret", "another vault secret", secret=flip(0)(VAULT_SECRET).hex())
