"""The vectors about an entry's header, keys, MAC, signature and length. `content_cases` has what is inside the body."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

from tests.vectors.craft import (
    GENERATION_KEY,
    OTHER,
    OTHER_SEED,
    SEED,
    EntryDraft,
    content,
    fixed,
    flip,
    raw,
    verify_key,
)
from tests.vectors.vectorfile import Vector

_GROUP_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
_MIB: Final = 1024 * 1024


def entry(
    draft: EntryDraft,
    what: str,
    expect: str,
    *,
    frames: Sequence[bytes] = (b"a first frame", b"and a second"),
    parts: str = "",
    key: tuple[int, bytes] = (1, GENERATION_KEY),
    verifier: bytes = b"",
) -> Vector:
    """The vector of a draft. `key` and `verifier` are what the reader is given; `frames` are hashed for a success."""
    fields = {
        "what": what,
        "expect": expect,
        "verify-key": (verifier or verify_key(SEED)).hex(),
        "generation": str(key[0]),
        "generation-key": key[1].hex(),
    }
    if expect == "success":
        fields["entry-hash"] = draft.hash().hex()
        fields["frames"] = str(len(frames))
        digests = b"".join(hashlib.sha256(frame).digest() for frame in frames)
        fields["payload"] = hashlib.sha256(digests).hexdigest()
    if parts:
        fields["parts"] = parts
    return Vector("entry", draft.name, fields, draft.build())


def cases() -> Iterator[Vector]:
    yield from _good()
    yield from _unknown()
    yield from _lengths()
    yield from _cuts()
    yield from _changed_after_signing()
    yield from _signed_by_a_member_without_the_key()
    yield from _wrong_keys()


def _good() -> Iterator[Vector]:
    yield entry(EntryDraft(name="good_two_frames"), "two frames stored as they are", "success")
    yield entry(EntryDraft(name="good_no_frames", content=content([])), "no frames", "success", frames=())
    public = EntryDraft(name="good_public_part", public=b"\x81\xa3pub\xa6public")
    yield entry(public, "a public part", "success")
    for kind, channel, name in (
        (1, 1, "log"),
        (3, 3, "batch"),
        (4, 3, "seal"),
        (5, 5, "cursor"),
        (6, 4, "command"),
    ):
        draft = EntryDraft(name=f"good_kind_{name}", kind=kind, channel=channel, recipient=OTHER)
        yield entry(draft, f"an entry of kind {name}", "success")
    largest = EntryDraft(
        name="good_largest_numbers", epoch=2**64 - 1, sequence=2**64 - 1, generation=2**32 - 1
    )
    yield entry(largest, "every number at its largest", "success", key=(2**32 - 1, GENERATION_KEY))
    zero = EntryDraft(
        name="good_smallest_numbers",
        epoch=0,
        sequence=0,
        generation=0,
        previous=bytes(32),
        log_head=bytes(32),
        incarnation=bytes(8),
    )
    yield entry(zero, "every number and hash zero", "success", key=(0, GENERATION_KEY))
    long = fixed("a long frame", 134_000)
    pieces = EntryDraft(name="good_two_pieces", content=content([raw(long)]))
    yield entry(pieces, "a body that is hashed in two pieces", "success", frames=(long,))


def _unknown() -> Iterator[Vector]:
    def case(name: str, what: str, expect: str, **changes: object) -> Vector:
        draft = EntryDraft(name=name)
        for field, value in changes.items():
            setattr(draft, field, value)
        return entry(draft, what, expect)

    yield case("magic_of_a_blob", "the magic of a blob", "malformed", magic=b"CRYB")
    yield case("magic_lower_case", "the magic in lower case", "malformed", magic=b"crye")
    for version in (0, 1, 3, 255):
        yield case(f"version_{version}", f"version {version}", "unknown version", version=version)
    for suite in (0, 2, 255):
        yield case(f"suite_{suite}", f"suite {suite}", "unknown version", suite=suite)
    for kind in (0, 7, 255):
        yield case(f"kind_{kind}", f"kind {kind} is not defined", "malformed", kind=kind)
    for channel in (0, 6, 255):
        yield case(f"channel_{channel}", f"channel {channel} is not defined", "malformed", channel=channel)
    yield case("offer_on_the_command_channel", "a kind on another kind's channel", "malformed", channel=4)
    yield case("command_on_the_conversation_channel", "a command sent as conversation", "malformed", kind=6)
    for flags in (1, 2, 128):
        yield case(f"flags_{flags}", f"flags {flags}", "malformed", flags=flags)
    for at in range(3):
        reserved = flip(at, 7)(bytes(3))
        yield case(f"reserved_{at}", f"a bit in reserved byte {at}", "malformed", reserved=reserved)


def _lengths() -> Iterator[Vector]:
    def case(name: str, what: str, expect: str, public: int | None = None, body: int | None = None) -> Vector:
        draft = EntryDraft(name=name, public=bytes(16), public_length=public, body_length=body)
        return entry(draft, what, expect)

    yield case("public_length_short", "the public length one too small", "malformed", public=15)
    yield case("public_length_long", "the public length one too large", "malformed", public=17)
    yield case("public_length_zero", "the public length left out", "malformed", public=0)
    yield case("public_length_over_limit", "a public length over 256 KiB", "too large", public=262_145)
    yield case("public_length_largest", "the largest public length", "too large", public=2**32 - 1)
    yield case("body_length_zero", "a body length of zero", "malformed", body=0)
    yield case("body_length_of_a_tag", "a body of a tag only", "malformed", body=16)
    yield case("body_length_not_padded", "a body length that no padding gives", "malformed", body=273)
    yield case("body_length_next_padded", "the next padded body length", "malformed", body=288)
    yield case("body_length_at_limit", "a body length of 1 MiB: not a padded one", "malformed", body=_MIB)
    yield case("body_length_over_limit", "a body length over 1 MiB", "too large", body=_MIB + 16)
    yield case("body_length_largest", "the largest body length", "too large", body=2**32 - 1)
    both = EntryDraft(
        name="lengths_shifted", public=bytes(16), public_length=0, body_length=272 + 16, content=content([])
    )
    yield entry(both, "public bytes counted as body: the sum is right", "bad signature")
    for length in (0, 255, 257, 273):
        # The signature is broken too: a length is judged before it, and without a key.
        unpadded = EntryDraft(name=f"body_of_{length}", content=bytes(length), after_signature=flip(-40))
        yield entry(unpadded, f"a body of {length} bytes and its tag", "malformed")


def _cuts() -> Iterator[Vector]:
    cuts = {
        0: "before the first byte",
        3: "within the magic",
        4: "before the version",
        5: "before the suite",
        6: "after the suite",
        183: "before the header's last byte",
        184: "after the header",
        190: "within the public part",
        200: "after the public part",
        300: "within the ciphertext",
        456: "before the tag",
        472: "before the MAC",
        504: "before the signature",
        567: "before the last byte",
    }
    for at, where in cuts.items():
        draft = EntryDraft(name=f"cut_{at:03}", public=bytes(16))
        yield entry(draft, f"cut {where}", "malformed", parts=f":{at}" if at else "x")
    yield entry(EntryDraft(name="longer_by_a_byte"), "a byte after the end", "malformed", parts=": x00")
    yield entry(EntryDraft(name="twice"), "the same entry twice", "malformed", parts=": :")
    yield entry(
        EntryDraft(name="longer_than_the_limit"), "zeros up to one byte over 1 MiB", "too large",
        parts=f": x00*{_MIB + 1 - 552}",
    )  # fmt: skip
    yield entry(
        EntryDraft(name="long_but_within_the_limit"),
        "zeros up to 1 MiB",
        "malformed",
        parts=f": x00*{_MIB - 552}",
    )


# Where one bit is flipped, in an entry with 16 public bytes.
_FIELDS: Final = {
    "generation": 15,
    "vault": 16,
    "sender": 47,
    "incarnation": 55,
    "epoch": 63,
    "sequence": 71,
    "recipient": 72,
    "log_head": 119,
    "previous": 120,
    "salt": 175,
    "public": 184,
    "ciphertext": 200,
    "ciphertext_end": 455,
    "tag": 456,
    "tag_end": 471,
    "mac": 472,
    "mac_end": 503,
    "signature_r": 504,
    "signature_s": 540,
}


def _changed_after_signing() -> Iterator[Vector]:
    for field, at in _FIELDS.items():
        draft = EntryDraft(name=f"changed_{field}", public=bytes(16), after_signature=flip(at))
        yield entry(draft, f"one bit of {field.replace('_', ' ')} flipped on the way", "bad signature")
    batch = EntryDraft(name="changed_kind", kind=3, channel=3, after_signature=_batch_to_seal)
    yield entry(batch, "a batch turned into a seal on the way", "bad signature")
    moved = EntryDraft(name="changed_channel", after_signature=_offer_to_batch)
    yield entry(moved, "an offer turned into a batch on the way", "bad signature")
    good = next(vector for vector in _good() if vector.name == "good_two_pieces")
    fields = {name: good.fields[name] for name in ("verify-key", "generation", "generation-key")}
    second = 184 + 131072
    fields |= {"base": f"{good.name}.txt", "parts": f":184 {second}:{len(good.body) - 96} 184:{second} -96:"}
    what = {"what": "the two pieces of the body swapped", "expect": "bad signature"}
    yield Vector("entry", "pieces_swapped", what | fields)


def _batch_to_seal(data: bytes) -> bytes:
    return data[:6] + b"\x04" + data[7:]


def _offer_to_batch(data: bytes) -> bytes:
    return data[:6] + b"\x03\x03" + data[8:]


def _signed_by_a_member_without_the_key() -> Iterator[Vector]:
    """The signature is good, and the MAC is not: a signer who does not hold the key, or changed bytes after the MAC."""
    for field, at in _FIELDS.items():
        if at >= 504:
            break
        draft = EntryDraft(name=f"signed_with_changed_{field}", public=bytes(16), after_mac=flip(at))
        key = (0, GENERATION_KEY) if field == "generation" else (1, GENERATION_KEY)
        what = f"one bit of {field.replace('_', ' ')} flipped after the MAC, then signed"
        yield entry(draft, what, "wrong key", key=key)
    for field, change in {"ciphertext": flip(184), "tag": flip(-1)}.items():
        draft = EntryDraft(name=f"authenticated_with_changed_{field}", after_encryption=change)
        yield entry(draft, f"one bit of the {field} flipped before the MAC", "wrong key")


def _wrong_keys() -> Iterator[Vector]:
    other = verify_key(OTHER_SEED)
    yield entry(
        EntryDraft(name="verified_with_another_key"), "another sender's key", "bad signature", verifier=other
    )
    by_other = EntryDraft(name="signed_by_another", seed=OTHER_SEED)
    yield entry(by_other, "signed by another device in the sender's name", "bad signature")
    small_s = EntryDraft(name="signature_with_large_s", after_signature=_large_s)
    yield entry(small_s, "S raised by the group order: not canonical", "bad signature")
    zeros = EntryDraft(name="signature_of_zeros", after_signature=_without_signature)
    yield entry(zeros, "a signature of zeros", "bad signature")
    unlabelled = EntryDraft(name="signature_without_label", signature_label=b"")
    yield entry(unlabelled, "signed without the label", "bad signature")
    hash_label = EntryDraft(name="signature_with_another_label", signature_label=b"crystal/v2/entry-hash\x00")
    yield entry(hash_label, "signed under another label", "bad signature")
    mac_label = EntryDraft(name="mac_without_label", mac_label=b"")
    yield entry(mac_label, "MAC without the label", "wrong key")
    key = (1, flip(31)(GENERATION_KEY))
    yield entry(EntryDraft(name="another_generation_key"), "another key of that number", "wrong key", key=key)
    number = (2, GENERATION_KEY)
    yield entry(EntryDraft(name="another_generation"), "a key of another number", "wrong key", key=number)
    derived = EntryDraft(name="key_derived_for_another_number", key_number=2)
    yield entry(derived, "sealed with keys derived for another number", "wrong key")


def _large_s(data: bytes) -> bytes:
    s = int.from_bytes(data[-32:], "little") + _GROUP_ORDER
    return data[:-32] + s.to_bytes(32, "little")


def _without_signature(data: bytes) -> bytes:
    return data[:-64] + bytes(64)
