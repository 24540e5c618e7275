"""The smaller parts: bundles, pairing texts, state digests, padding, buffers, version 1."""

import base64
import itertools
import random
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_crypto.bundle import open_bundle, seal_bundle
from crystal_crypto.digest import TableDigest
from crystal_crypto.errors import BadCode, CryptoError, Malformed, TooLarge, WrongKey
from crystal_crypto.frames import Frame, content_of, frames_of
from crystal_crypto.hierarchy import GenerationKey, Root, VaultSecret
from crystal_crypto.identity import ExchangeKey, ExchangePublic
from crystal_crypto.limits import ENTRY_BYTES_MAX, U32_MAX, V1_PAYLOAD_BYTES_MAX
from crystal_crypto.memory import borrowed
from crystal_crypto.padding import largest_content, padded_length
from crystal_crypto.pairing import OfflineCode, decode, encode
from crystal_prototype.sealing import open_v1, seal_v1
from tests.vectors.craft import fixed

VAULT, DEVICE, HEAD = fixed("vault", 16), fixed("device", 16), fixed("head", 32)


def _bundle(recipient: ExchangePublic, number: int = 1) -> tuple[bytes, GenerationKey, VaultSecret]:
    generation, secret = GenerationKey.generate(number), VaultSecret.generate()
    data = seal_bundle(
        recipient, generation=generation, secret=secret, vault=VAULT, recipient_id=DEVICE, log_head=HEAD
    )
    return data, generation, secret


@pytest.mark.parametrize("number", [0, 1, U32_MAX])
def test_a_bundle_opens_for_its_recipient_and_for_nobody_else(number: int) -> None:
    private = ExchangeKey.generate()
    data, generation, secret = _bundle(private.public, number)
    assert len(data) == 114

    def opened(key: ExchangeKey) -> tuple[GenerationKey, VaultSecret]:
        return open_bundle(
            data, key, vault=VAULT, recipient_id=DEVICE, log_head=HEAD, generation_number=number
        )

    assert opened(private) == (generation, secret)
    with pytest.raises(ValueError, match="32 bits"):
        open_bundle(data, private, vault=VAULT, recipient_id=DEVICE, log_head=HEAD, generation_number=2**32)
    with pytest.raises(WrongKey):
        opened(ExchangeKey.generate())


def test_every_flipped_bit_of_a_bundle_is_noticed() -> None:
    private = ExchangeKey.generate()
    data, _, _ = _bundle(private.public)
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CryptoError):
            open_bundle(
                bytes(changed), private, vault=VAULT, recipient_id=DEVICE, log_head=HEAD, generation_number=1
            )


def test_nothing_is_sealed_to_a_key_of_low_order() -> None:
    for point in (bytes(32), b"\x01" + bytes(31)):
        with pytest.raises(Malformed):
            _bundle(ExchangePublic.from_bytes(point))


@given(st.binary(min_size=32, max_size=32))
def test_every_root_survives_its_pairing_text(raw: bytes) -> None:
    text = encode(Root(raw))
    for way in (text, f"  {text}\n", text.replace("+", "-").replace("/", "_")):
        assert decode(way) == OfflineCode(Root(raw))


@given(st.binary(min_size=32, max_size=32))
def test_a_code_of_an_earlier_version_is_read_and_known_as_one(raw: bytes) -> None:
    text = "mc1:" + base64.b64encode(raw).decode()
    for way in (text, f"  {text.rstrip('=')}\n", text.replace("+", "-").replace("/", "_")):
        assert decode(way) == OfflineCode(Root(raw), old=True)
    assert decode(f"{text}@{bytes(16).hex()}") == OfflineCode(Root(raw), bytes(16), old=True)


@given(st.binary(min_size=32, max_size=32), st.none() | st.binary(min_size=16, max_size=16))
def test_the_published_prototype_refuses_an_offline_code(raw: bytes, vault: bytes | None) -> None:
    """It takes `mc1:` and base64 of 32 bytes. A reader that passed over the prefix would not find 32 bytes either."""
    text = encode(Root(raw), vault)
    assert not text.lower().startswith("mc1:")
    payload = text.partition(":")[2].partition("@")[0]
    assert len(base64.b64decode(payload, validate=True)) == 36


def test_every_slip_of_one_character_in_an_offline_code_is_found() -> None:
    for text in (encode(Root(fixed("root", 32))), encode(Root(fixed("root", 32)), fixed("vault", 16))):
        for at, slip in itertools.product(range(4, len(text)), "A7b/?"):
            if slip.lower() == text[at].lower() and (at > text.find("@") > 0 or slip == text[at]):
                continue  # no slip
            with pytest.raises(BadCode):
                decode(text[:at] + slip + text[at + 1 :])


def test_what_is_wrong_with_a_pairing_text_is_said_without_quoting_it() -> None:
    text = encode(Root(fixed("root", 32)))
    old = "mc1:" + base64.b64encode(fixed("root", 32)).decode().rstrip("=")
    cases = {
        "too short by 3 characters": text[:-3],
        "too long by 2 characters": text + "AA",
        "position 9 ": text[:8] + "?" + text[9:],
        "its check does not agree": text[:4] + text[5:20] + text[4] + text[20:],
        "`mc3:` in lower case": "MC3:" + text[4:],
        "`mc1:` in lower case": "MC1:" + old[4:],
        "too short by 1 characters": old[:-1],
        "does not begin with `mc3:`": text[4:],
        "invite": "mc2:" + text[4:],
        "empty": " ",
    }
    for said, code in cases.items():
        with pytest.raises(BadCode) as caught:
            decode(code)
        assert said in str(caught.value)
        assert not any(text[at : at + 6] in str(caught.value) for at in range(4, len(text) - 6))
        assert caught.value.hint
        assert caught.value.exit_code == 7


rows = st.lists(st.binary(max_size=20), max_size=12)


@given(rows, rows, st.randoms(use_true_random=False))
def test_a_digest_depends_on_the_rows_and_not_on_their_history(
    kept: list[bytes], gone: list[bytes], chance: random.Random
) -> None:
    key = fixed("state", 32)
    straight = TableDigest(key, "chunks")
    for row in kept:
        straight.add(row)
    winding = TableDigest(key, "chunks")
    steps = kept + gone
    chance.shuffle(steps)
    for row in steps:
        winding.add(row)
    chance.shuffle(gone)
    for row in gone:
        winding.remove(row)
    assert winding == straight
    assert TableDigest(key, "chunks", straight.sum, straight.count) == straight
    more = TableDigest(key, "chunks", straight.sum, straight.count)
    more.add(b"one more")
    assert more.sum_bytes != straight.sum_bytes


def test_tables_and_vaults_have_digests_of_their_own() -> None:
    def digest(key: bytes, table: str, row: bytes) -> bytes:
        made = TableDigest(key, table)
        made.add(row)
        return made.sum_bytes

    key = fixed("state", 32)
    sums = {
        digest(key, "chunks", b"row"),
        digest(key, "memories", b"row"),
        digest(key, "chunk", b"s\x00row"),
        digest(fixed("another state", 32), "chunks", b"row"),
    }
    assert len(sums) == 4


def test_a_digest_refuses_what_cannot_be() -> None:
    key = fixed("state", 32)
    with pytest.raises(ValueError, match="empty digest"):
        TableDigest(key, "chunks").remove(b"row")
    for table in ("", "tab\x00le", "tabl\u00e9"):
        with pytest.raises(ValueError, match="ASCII"):
            TableDigest(key, table)
    for total, count in ((-1, 0), (2**256, 0), (0, -1)):
        with pytest.raises(ValueError, match="out of range"):
            TableDigest(key, "chunks", total, count)


@given(st.integers(0, 2**24))
def test_padding_never_shrinks_and_adds_at_most_an_eighth(length: int) -> None:
    padded = padded_length(length)
    assert length <= padded <= max(256, length * 1.125)
    assert padded_length(padded) == padded
    assert largest_content(padded) == padded
    assert padded_length(largest_content(length)) <= max(length, 256)
    if length >= 256:
        assert padded_length(largest_content(length) + 1) > length


@given(st.integers(257, 2**22))
def test_padding_leaves_few_lengths_apart(length: int) -> None:
    lengths = {padded_length(n) for n in range(length, length * 2, max(1, length // 2000))}
    assert len(lengths) <= 40


def _fill_and_fail(size: int) -> None:
    with borrowed(size) as view:
        assert not any(view)
        view[:] = b"\x01" * size
        raise RuntimeError


def test_a_buffer_comes_back_wiped_even_after_an_error() -> None:
    for size in (100, 64 * 1024, ENTRY_BYTES_MAX - 1, ENTRY_BYTES_MAX):
        with borrowed(size) as view, borrowed(size) as other:
            assert not any((any(view), any(other)))
            view[:] = b"\x01" * size
            assert not any(other)
        with pytest.raises(RuntimeError):
            _fill_and_fail(size)
        with borrowed(size) as view, borrowed(size) as other, borrowed(size) as third:
            assert not any((any(view), any(other), any(third)))
        with pytest.raises(ValueError, match="released"):
            view[0] = 1
    with pytest.raises(ValueError, match="size"), borrowed(ENTRY_BYTES_MAX + 1):
        pass


@given(st.binary(max_size=2000))
def test_a_version_1_payload_opens_with_its_key_only(plain: bytes) -> None:
    key = secrets.token_bytes(32)
    payload = seal_v1(key, plain)
    assert open_v1(key, payload) == plain
    with pytest.raises(WrongKey):
        open_v1(secrets.token_bytes(32), payload)


def test_version_1_has_limits() -> None:
    with pytest.raises(TooLarge):
        open_v1(bytes(32), bytes(V1_PAYLOAD_BYTES_MAX + 1))
    with pytest.raises(TooLarge):
        seal_v1(bytes(32), bytes((V1_PAYLOAD_BYTES_MAX - 157) // 4 * 3 + 1))
    for key in (bytes(31), bytes(33)):
        with pytest.raises(Malformed):
            seal_v1(key, b"")
        with pytest.raises(Malformed):
            open_v1(key, b"{}")


def test_a_thorough_frame_packs_closer_and_reads_back_the_same() -> None:
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))[:200_000].encode()
    sizes = {}
    for thorough in (False, True):
        parts, length = content_of([Frame(text, thorough=thorough)], 1 << 20)
        sizes[thorough] = length
        assert frames_of(memoryview(b"".join(bytes(part) for part in parts))) == [text]
    assert sizes[True] < sizes[False] * 0.98
