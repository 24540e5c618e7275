"""Whatever bytes come, a parser gives a value or an error of the documented tree, and never allocates what they claim."""

import hashlib
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_crypto.blob import open_blob, parse_blob_header
from crystal_crypto.bundle import open_bundle
from crystal_crypto.compression import compress, decompress
from crystal_crypto.entry import Frame, parse, seal
from crystal_crypto.errors import BadCode, CryptoError, Malformed
from crystal_crypto.frames import frames_of
from crystal_crypto.identity import DeviceIdentity, ExchangeKey, VerifyKey
from crystal_crypto.pairing import decode
from crystal_prototype.sealing import open_v1, seal_v1
from tests.crypto.support import KEY, SALT, SIGNER, header
from tests.vectors.craft import VAULT, BlobDraft, EntryDraft, content, fixed, packed, raw, zstd_rle

TEXT = b"the same words again and again, and again the same words " * 20
ZSTD = compress(TEXT) or b""
MIB = 1024 * 1024

changes = st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), min_size=1, max_size=4)


def _changed(data: bytes, where: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for at, mask in where:
        changed[at % len(changed)] ^= mask
    return bytes(changed)


@given(
    frames=st.lists(st.builds(Frame, st.binary(max_size=2000), st.booleans()), max_size=12),
    public=st.binary(max_size=300),
    sequence=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**64 - 1),
    salt=st.binary(min_size=24, max_size=24),
)
def test_what_is_sealed_is_opened(
    frames: list[Frame], public: bytes, sequence: int, epoch: int, salt: bytes
) -> None:
    made = header(sequence=sequence, epoch=epoch)
    entry = parse(seal(made, frames, key=KEY, signer=SIGNER, public=public, salt=salt))
    entry.verify(SIGNER.public)
    assert entry.open(KEY) == [frame.data for frame in frames]
    assert (entry.header, entry.public, entry.salt) == (made, public, salt)


@given(st.binary(max_size=1000))
def test_any_bytes_as_an_entry(data: bytes) -> None:
    for prefix in (b"", b"CRYE", b"CRYE\x02\x01\x02\x02\x00\x00\x00\x00"):
        with pytest.raises(Malformed):
            parse(prefix + data)


@given(changes)
def test_any_change_to_an_entry(where: list[tuple[int, int]]) -> None:
    data = EntryDraft(name="changed").build()
    changed = _changed(data, where)
    if changed != data:
        with pytest.raises(CryptoError):
            _read_entry(changed)


def _read_entry(data: bytes) -> None:
    entry = parse(data)
    entry.verify(SIGNER.public)
    entry.open(KEY)


@given(st.binary(max_size=600), st.sampled_from([b"", raw(b"data"), packed(len(TEXT), ZSTD), b"\x02"]))
def test_any_bytes_as_the_content_of_an_entry(data: bytes, prefix: bytes) -> None:
    inside = prefix + data
    padded = inside + bytes(max(0, 256 - len(inside)))
    for view in (memoryview(inside), memoryview(padded), memoryview(content([inside]))):
        try:
            frames = frames_of(view)
        except Malformed:
            continue
        assert sum(len(frame) for frame in frames) <= 16 * MIB


@given(changes)
def test_any_change_to_a_zstd_frame(where: list[tuple[int, int]]) -> None:
    try:
        data = decompress(_changed(ZSTD, where), len(TEXT))
    except Malformed:
        return
    assert len(data) == len(TEXT)


@given(st.binary(max_size=200), st.integers(0, 4096))
def test_any_bytes_as_a_zstd_frame(data: bytes, length: int) -> None:
    for prefix in (b"", b"\x28\xb5\x2f\xfd", ZSTD[:6]):
        try:
            found = decompress(prefix + data, length)
        except Malformed:
            continue
        assert len(found) == length


def test_a_frame_that_claims_much_costs_nothing() -> None:
    """What a frame claims is compared before memory is taken for it."""
    bombs = [
        (1000, zstd_rle([(0, 131072)] * 8000, stated=1000)),
        (1000, zstd_rle([(0, 131072)] * 8000, stated=2**32 - 1)),
        (1000, zstd_rle([(0, 131072)] * 8000, stated=None)),
    ]
    tracemalloc.start()
    try:
        for length, bomb in bombs:
            with pytest.raises(Malformed):
                decompress(bomb, length)
        most = [packed(MIB, zstd_rle([(0, 131072)] * 8, stated=MIB))] * 17
        with pytest.raises(Malformed):
            frames_of(memoryview(content(most)))
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=1000))
def test_any_bytes_as_a_blob(data: bytes) -> None:
    head = BlobDraft(name="any").build()[:128]
    with pytest.raises(Malformed):
        parse_blob_header(data[:96])
    for prefix in (b"", head[:8], head[:88], head):
        with pytest.raises(CryptoError):
            list(open_blob([prefix, data], content_hash=bytes(32), name=bytes(32), vault=VAULT, key=KEY))


@given(changes)
def test_any_change_to_a_blob(where: list[tuple[int, int]]) -> None:
    draft = BlobDraft(name="changed", content=fixed("content", 1000))
    data = draft.build()
    changed, digest = _changed(data, where), hashlib.sha256(draft.content).digest()
    if changed != data:
        with pytest.raises(CryptoError):
            list(open_blob([changed], content_hash=digest, name=data[32:64], vault=VAULT, key=KEY))


@given(st.binary(max_size=120))
def test_any_bytes_as_a_bundle_an_identity_or_a_public_key(data: bytes) -> None:
    private = ExchangeKey(fixed("private", 32))
    for prefix in (b"", b"\x02\x01"):
        with pytest.raises(CryptoError):
            open_bundle(
                prefix + data,
                private,
                vault=VAULT,
                recipient_id=bytes(16),
                log_head=bytes(32),
                generation_number=1,
            )
    for prefix in (b"", b"CRYD\x02"):
        with pytest.raises(Malformed):
            DeviceIdentity.from_bytes(prefix + data)
    try:
        key = VerifyKey.from_bytes(data[:32])
    except Malformed:
        return
    with pytest.raises(CryptoError):
        key.verify(data[-64:], b"message")


@given(st.text(max_size=80))
def test_any_text_as_a_pairing_code(text: str) -> None:
    for prefix in ("", "mc1:", "mc3:"):
        with pytest.raises(BadCode):
            decode(prefix + text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.one_of(
        st.binary(max_size=200),
        json_values.map(lambda value: json.dumps(value).encode()),
        st.fixed_dictionaries(
            dict.fromkeys(("nonce", "ciphertext", "tag", "hmac"), json_values) | {"v": st.just(1)}
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_any_bytes_as_a_version_1_payload(payload: bytes) -> None:
    with pytest.raises(CryptoError):
        open_v1(bytes(32), payload)


@given(changes)
def test_any_change_to_a_version_1_payload(where: list[tuple[int, int]]) -> None:
    payload = seal_v1(bytes(32), b"a message", random=bytes)
    changed = _changed(payload, where)
    try:
        opened = open_v1(bytes(32), changed)
    except CryptoError:
        return
    # A change may only have touched what JSON does not tell apart: nothing here does, unless it undid itself.
    assert (opened, changed) == (b"a message", payload)


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"v":' * 100_000, '{"v":' + "1" * 100_000])
def test_json_that_is_deep_or_long_is_refused(deep: str) -> None:
    with pytest.raises(Malformed):
        open_v1(bytes(32), deep.encode())


def test_salts_make_equal_entries_differ() -> None:
    one = seal(header(), [Frame(TEXT)], key=KEY, signer=SIGNER, salt=SALT)
    two = seal(header(), [Frame(TEXT)], key=KEY, signer=SIGNER, salt=fixed("another salt", 24))
    assert one[184:-96] != two[184:-96]
