"""Sealing and opening entries: what fits, what is refused, what stays hidden."""

import dataclasses
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from crystal_crypto.entry import (
    ENTRY_BYTES_MAX,
    Channel,
    Frame,
    Kind,
    content_bytes_max,
    parse,
    seal,
    seal_entry,
)
from crystal_crypto.errors import BadSignature, CryptoError, Malformed, TooLarge, WrongKey
from crystal_crypto.hierarchy import GenerationKey
from crystal_crypto.identity import SigningKey
from crystal_crypto.limits import FRAMES_MAX, MIB, PLAINTEXT_BYTES_MAX, PUBLIC_BYTES_MAX
from tests.crypto.support import KEY, SALT, SIGNER, header
from tests.vectors.craft import EntryDraft, content, fixed, raw

TEXT = b"A person asks, an agent answers, and both would like to find it again. " * 40


@pytest.mark.parametrize("public", [b"", b"public part"])
def test_sealing_gives_the_bytes_that_the_document_describes(public: bytes) -> None:
    """Against the vectors' builder, which shares no code with ours."""
    draft = EntryDraft(name="same bytes", public=public, content=content([raw(b"one"), raw(b"two")]))
    parsed = parse(draft.build())
    frames = [Frame(b"one", compress=False), Frame(b"two", compress=False)]
    assert seal(parsed.header, frames, key=KEY, signer=SIGNER, public=public, salt=parsed.salt) == parsed.data


def test_an_entry_without_frames_has_a_sealed_body_all_the_same() -> None:
    data = seal(header(), [], key=KEY, signer=SIGNER, salt=SALT)
    assert len(data) == 184 + 256 + 16 + 32 + 64
    assert parse(data).open(KEY) == []


def test_the_public_part_is_clear_and_the_frames_are_not() -> None:
    data = seal(header(), [Frame(TEXT, compress=False)], key=KEY, signer=SIGNER, public=b"clear", salt=SALT)
    assert b"clear" in data
    assert parse(data).public == b"clear"
    assert not any(TEXT[at : at + 8] in data for at in range(80))


def test_the_hash_is_the_same_for_who_seals_and_who_reads() -> None:
    entry = seal_entry(header(), [Frame(TEXT)], key=KEY, signer=SIGNER, salt=SALT)
    assert parse(entry.data).hash == entry.hash
    other = seal_entry(header(sequence=42), [Frame(TEXT)], key=KEY, signer=SIGNER, salt=SALT)
    assert other.hash != entry.hash


def test_the_largest_content_fits_and_one_byte_more_does_not() -> None:
    for public in (b"", bytes(PUBLIC_BYTES_MAX)):
        data = os.urandom(content_bytes_max(len(public)) - 9 - 1)
        sealed = seal(header(), [Frame(data)], key=KEY, signer=SIGNER, public=public, salt=SALT)
        assert ENTRY_BYTES_MAX - 20 * 1024 < len(sealed) <= ENTRY_BYTES_MAX
        entry = parse(sealed)
        entry.verify(SIGNER.public)
        assert entry.open(KEY) == [data]
        with pytest.raises(TooLarge):
            seal(header(), [Frame(data + b"\x00")], key=KEY, signer=SIGNER, public=public, salt=SALT)


def test_what_is_too_much_is_refused_before_it_is_sealed() -> None:
    with pytest.raises(TooLarge, match="frames"):
        seal(header(), [Frame(b"")] * (FRAMES_MAX + 1), key=KEY, signer=SIGNER, salt=SALT)
    many = [Frame(bytes([n % 256])) for n in range(FRAMES_MAX)]
    assert len(parse(seal(header(), many, key=KEY, signer=SIGNER, salt=SALT)).open(KEY)) == FRAMES_MAX
    with pytest.raises(TooLarge, match="public"):
        seal(header(), [], key=KEY, signer=SIGNER, public=bytes(PUBLIC_BYTES_MAX + 1), salt=SALT)
    most = [Frame(bytes(PLAINTEXT_BYTES_MAX // 4))] * 4
    assert parse(seal(header(), most, key=KEY, signer=SIGNER, salt=SALT)).open(KEY) == [f.data for f in most]
    with pytest.raises(TooLarge, match="together"):
        seal(header(), [*most, Frame(b"1")], key=KEY, signer=SIGNER, salt=SALT)


def test_text_shrinks_and_what_does_not_is_stored_as_it_is() -> None:
    random = fixed("incompressible", 300_000)
    for data in (random, random[:1000]):
        plain = seal(header(), [Frame(data, compress=False)], key=KEY, signer=SIGNER, salt=SALT)
        assert seal(header(), [Frame(data)], key=KEY, signer=SIGNER, salt=SALT) == plain
    large = TEXT * 200
    for data in (TEXT, large):
        assert len(seal(header(), [Frame(data)], key=KEY, signer=SIGNER, salt=SALT)) < len(data) / 4
        assert len(seal(header(), [Frame(data, False)], key=KEY, signer=SIGNER, salt=SALT)) > len(data)


def test_short_runs_come_back_whichever_way_they_are_stored() -> None:
    """Among them the length at which a compressed frame is exactly as long as its data."""
    frames = [Frame(bytes(length)) for length in range(64)]
    entry = parse(seal(header(), frames, key=KEY, signer=SIGNER, salt=SALT))
    assert entry.open(KEY) == [frame.data for frame in frames]


def test_texts_never_share_a_compression_frame() -> None:
    """Or the length would tell whether one conversation repeats what another says."""
    secret = fixed("a secret", 400).hex().encode()
    guess = fixed("a guess", 400).hex().encode()
    sizes = {
        len(seal(header(), [Frame(secret), Frame(other)], key=KEY, signer=SIGNER, salt=SALT))
        for other in (secret, guess)
    }
    assert len(sizes) == 1


def test_an_entry_says_which_generation_it_needs() -> None:
    entry = seal_entry(header(), [], key=KEY, signer=SIGNER, salt=SALT)
    with pytest.raises(WrongKey, match="generation 1, not 2"):
        entry.open(GenerationKey(2, KEY.secret))


def test_another_vault_channel_sender_or_incarnation_has_other_keys() -> None:
    entry = seal_entry(header(), [Frame(TEXT)], key=KEY, signer=SIGNER, salt=SALT)
    again = seal_entry(header(incarnation=bytes(8)), [Frame(TEXT)], key=KEY, signer=SIGNER, salt=SALT)
    assert entry.data[184:-96] != again.data[184:-96]
    spliced = parse(entry.data[:48] + again.data[48:56] + entry.data[56:])
    with pytest.raises(WrongKey):
        spliced.open(KEY)
    with pytest.raises(BadSignature):
        spliced.verify(SIGNER.public)


@pytest.mark.parametrize(
    "change",
    [
        {"vault": bytes(15)},
        {"sender": bytes(17)},
        {"recipient": b""},
        {"incarnation": bytes(9)},
        {"log_head": bytes(31)},
        {"previous": bytes(33)},
        {"epoch": -1},
        {"epoch": 2**64},
        {"sequence": -1},
        {"sequence": 2**64},
        {"generation": -1},
        {"generation": 2**32},
        {"flags": 1},
        {"channel": Channel.COMMANDS},
        {"kind": Kind.SEAL},
    ],
)
def test_a_header_that_no_entry_can_have_cannot_be_made(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"header|flags|belong"):
        dataclasses.replace(header(), **change)


def test_a_wrong_salt_or_key_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="salt"):
        seal(header(), [], key=KEY, signer=SIGNER, salt=SALT[1:])
    with pytest.raises(ValueError, match="generation"):
        seal(header(), [], key=GenerationKey(2, KEY.secret), signer=SIGNER, salt=SALT)


@pytest.mark.slow
def test_every_flipped_bit_is_noticed_by_the_signature_and_all_but_its_own_by_the_mac() -> None:
    data = EntryDraft(name="every bit", public=b"public").build()
    for at in range(len(data)):
        for bit in range(8):
            changed = data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
            try:
                entry = parse(changed)
            except Malformed:
                continue
            with pytest.raises(BadSignature):
                entry.verify(SIGNER.public)
            if at < len(data) - 64:
                with pytest.raises(CryptoError):
                    entry.open(KEY)


def test_every_cut_is_noticed() -> None:
    data = EntryDraft(name="every cut", public=b"public").build()
    for at in range(len(data)):
        with pytest.raises(Malformed):
            parse(data[:at])
        with pytest.raises(Malformed):
            parse(data[at + 1 :])


FIELDS = {  # of the header, as docs/protocol.md numbers them: where each begins and how long it is
    "magic": (0, 4),
    "version": (4, 1),
    "suite": (5, 1),
    "kind": (6, 1),
    "channel": (7, 1),
    "flags": (8, 1),
    "reserved": (9, 3),
    "generation": (12, 4),
    "vault": (16, 16),
    "sender": (32, 16),
    "incarnation": (48, 8),
    "epoch": (56, 8),
    "sequence": (64, 8),
    "recipient": (72, 16),
    "log head": (88, 32),
    "previous": (120, 32),
    "salt": (152, 24),
    "public length": (176, 4),
    "body length": (180, 4),
}


def test_every_two_fields_of_a_header_put_in_each_others_place_are_noticed() -> None:
    data = EntryDraft(name="swapped fields", public=b"public").build()
    assert sum(length for _, length in FIELDS.values()) == 184
    tried = 0
    for (one, length), (other, other_length) in itertools.combinations(FIELDS.values(), 2):
        if length == other_length and (changed := swapped(data, one, other, length)) != data:
            unbelieved(changed)
            tried += 1
    assert tried >= 15, "every pair of fields of one length"


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_another_entry_in_its_place_is_noticed(field: str) -> None:
    at, length = FIELDS[field]
    data, other = two_entries()
    changed = data[:at] + other[at : at + length] + data[at + length :]
    if changed == data:  # all entries have the same there
        changed = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
    unbelieved(changed)


def test_two_entries_cut_at_any_boundary_and_put_together_are_noticed() -> None:
    data, other = two_entries()
    body = len(data) - 64 - 32 - 16
    boundaries = [*(at + length for at, length in FIELDS.values()), 184 + 6, body, body + 16, body + 16 + 32]
    for at in boundaries:
        for changed in (data[:at] + other[at:], other[:at] + data[at:]):
            if changed not in (data, other):
                unbelieved(changed, forged=at < body + 16 + 32)


def two_entries() -> tuple[bytes, bytes]:
    """Whole ones of the same signer, of the same length, with nothing in common that can differ."""
    one = EntryDraft(name="this one", public=b"public")
    two = EntryDraft(
        name="that one",
        kind=Kind.BATCH,
        channel=Channel.MIRROR,
        vault=fixed("another vault", 16),
        sender=fixed("another sender", 16),
        incarnation=fixed("another incarnation", 8),
        epoch=4,
        sequence=42,
        recipient=fixed("a recipient", 16),
        log_head=fixed("another log head", 32),
        previous=fixed("another one", 32),
        public=b"PUBLIC",
        content=content([raw(b"A FIRST FRAME"), raw(b"AND A SECOND")]),
    )
    data, other = one.build(), two.build()
    assert len(data) == len(other)
    return data, other


def swapped(data: bytes, one: int, other: int, length: int) -> bytes:
    """Two parts of the same length in each other's place; ``one`` comes first."""
    first, second = data[one : one + length], data[other : other + length]
    return data[:one] + second + data[one + length : other] + first + data[other + length :]


def unbelieved(data: bytes, *, forged: bool = True) -> None:
    """Neither who looks at the signature takes it, nor (``forged``) who has to open what somebody signed anew."""
    try:
        entry = parse(data)
    except Malformed:
        return
    with pytest.raises(BadSignature):
        entry.verify(SIGNER.public)
    if forged:
        with pytest.raises(CryptoError):
            entry.open(KEY)


def test_many_threads_can_seal_and_open_at_once() -> None:
    texts = [TEXT * (1 + n * 40) for n in range(8)]
    randoms = [fixed(f"random {n}", 300_000 + n) for n in range(4)]

    def round_trip(n: int) -> bool:
        frames = [Frame(texts[n % 8]), Frame(randoms[n % 4])]
        entry = parse(seal(header(sequence=n), frames, key=KEY, signer=SIGNER, salt=fixed(str(n), 24)))
        entry.verify(SIGNER.public)
        return entry.open(KEY) == [frame.data for frame in frames]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(round_trip, range(120)))


def test_more_streams_than_are_cached_still_open() -> None:
    key = GenerationKey(1, KEY.secret)
    sealed = [
        seal(header(incarnation=n.to_bytes(8, "big")), [Frame(b"x")], key=key, signer=SIGNER, salt=SALT)
        for n in range(600)
    ]
    assert all(parse(data).open(key) == [b"x"] for data in sealed)


def test_another_signer_is_not_believed() -> None:
    entry = seal_entry(header(), [], key=KEY, signer=SigningKey.generate(), salt=SALT)
    with pytest.raises(BadSignature):
        entry.verify(SIGNER.public)
    assert entry.open(KEY) == []


def test_an_entry_shows_neither_its_content_nor_its_keys() -> None:
    entry = seal_entry(header(), [Frame(b"hunter2", compress=False)], key=KEY, signer=SIGNER, salt=SALT)
    assert repr(entry) == f"<Entry OFFER CONVERSATIONS #41, {len(entry.data)} bytes>"
    assert len(entry.data) < MIB
