"""Letters: whoever has the recipient's key opens them, at their place, and nobody else anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_crypto.errors import CryptoError, Malformed, TooLarge, WrongKey
from crystal_crypto.identity import ExchangeKey, ExchangePublic
from crystal_crypto.letter import open_letter, seal_letter
from crystal_crypto.limits import LETTER_CONTENT_BYTES_MAX, U64_MAX
from tests.vectors.craft import fixed

KEY = ExchangeKey(fixed("private", 32))
VAULT, SENDER, RECIPIENT = fixed("vault", 16), fixed("sender", 16), fixed("recipient", 16)
HEAD, INCARNATION = fixed("head", 32), fixed("incarnation", 8)


def sealed(content: bytes, key: ExchangePublic = KEY.public, sequence: int = 3) -> bytes:
    return seal_letter(
        content,
        key,
        vault=VAULT,
        sender=SENDER,
        recipient_id=RECIPIENT,
        log_head=HEAD,
        incarnation=INCARNATION,
        sequence=sequence,
    )


def opened(data: bytes, key: ExchangeKey = KEY, sequence: int = 3) -> bytes:
    return open_letter(
        data,
        key,
        vault=VAULT,
        sender=SENDER,
        recipient_id=RECIPIENT,
        log_head=HEAD,
        incarnation=INCARNATION,
        sequence=sequence,
    )


@pytest.mark.parametrize("content", [b"", b"one", bytes(LETTER_CONTENT_BYTES_MAX)], ids=len)
@pytest.mark.parametrize("sequence", [0, 3, U64_MAX])
def test_a_letter_opens_for_its_recipient_and_for_nobody_else(content: bytes, sequence: int) -> None:
    data = sealed(content, sequence=sequence)
    assert len(data) == len(content) + 50
    assert opened(data, sequence=sequence) == content
    with pytest.raises(WrongKey):
        opened(data, ExchangeKey.generate(), sequence)
    with pytest.raises(ValueError, match="64 bits"):
        opened(data, sequence=U64_MAX + 1)


def test_no_letter_is_longer_than_a_reader_takes() -> None:
    with pytest.raises(TooLarge):
        sealed(bytes(LETTER_CONTENT_BYTES_MAX + 1))


def test_every_flipped_bit_of_a_letter_is_noticed() -> None:
    data = sealed(b"status")
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CryptoError):
            opened(bytes(changed))


def test_no_letter_is_sealed_to_a_key_of_low_order() -> None:
    for point in (bytes(32), b"\x01" + bytes(31)):
        with pytest.raises(Malformed):
            sealed(b"status", ExchangePublic.from_bytes(point))


@given(st.binary(max_size=200))
def test_any_bytes_as_a_letter(data: bytes) -> None:
    for prefix in (b"", b"\x02\x01"):
        with pytest.raises(CryptoError):
            opened(prefix + data)
