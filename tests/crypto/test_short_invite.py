"""The short invite: what people type, with their slips, and what the relay keeps of it."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_crypto.errors import BadCode, BadMessage
from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import ExchangePublic
from crystal_crypto.invite_code import InviteCode, InviteSecret, encode_invite
from crystal_crypto.limits import SHORT_INVITE_BYTES
from crystal_crypto.pairing import encode
from crystal_crypto.short_invite import (
    ShortInvite,
    ShortInviteKeys,
    decode_short_invite,
    encode_short_invite,
    is_short_invite,
)
from tests.crypto.support import counting
from tests.vectors.craft import VAULT, fixed

URL = "https://192.168.1.20:18791#pin=abcdefghijklmnopqrstuvwxyz"
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
SHORT = ShortInvite.generate(URL, counting("short invite"))
TEXT = encode_short_invite(SHORT)
ADDRESS, _, KEY = TEXT.rpartition("/")
CODE = InviteCode(VAULT, InviteSecret(fixed("secret", 16)), ExchangePublic.from_bytes(fixed("key", 32)), URL)

keys = st.text(ALPHABET, min_size=10, max_size=10)
addresses = st.from_regex(r"\A(http://)?[a-z0-9.-]{1,30}(:[0-9]{1,5})?(/[a-zA-Z0-9]{1,8})?\Z")


@given(addresses, keys)
def test_what_is_shown_is_read_as_it_is_meant(address: str, key: str) -> None:
    text = encode_short_invite(ShortInvite(address, key))
    assert is_short_invite(text)
    for typed in (text, text.replace("-", "").replace(address.replace("-", ""), address), f"  {text}\n"):
        assert decode_short_invite(typed) == ShortInvite(address, key)


def test_it_is_short_enough_to_be_typed() -> None:
    assert len(TEXT) == 33
    assert SHORT.url == "https://192.168.1.20:18791"
    assert decode_short_invite(f"https://{TEXT.lower()}").url == SHORT.url


def test_every_slip_in_one_or_two_characters_of_the_key_is_found() -> None:
    values = [ALPHABET.index(char) for char in KEY.replace("-", "")]

    def with_errors(*errors: tuple[int, int]) -> str:
        typed = [*values]
        for at, error in errors:
            typed[at] ^= error
        return f"{ADDRESS}/{''.join(ALPHABET[value] for value in typed)}"

    assert _is_taken(with_errors())
    assert not any(_is_taken(with_errors((at, error))) for at in range(12) for error in range(1, 32))
    # The check is linear over GF(32): a pair of errors is found if that pair is whose first one is 1.
    assert not any(
        _is_taken(with_errors((first, 1), (second, error)))
        for second in range(12)
        for first in range(second)
        for error in range(1, 32)
    )


def test_every_wrong_and_every_swapped_character_of_the_address_is_found() -> None:
    for at in range(len(ADDRESS)):
        for char in "0123456789.:abcdefghijklmnopqrstuvwxyz-":
            if char != ADDRESS[at]:
                assert not _is_taken(f"{ADDRESS[:at]}{char}{ADDRESS[at + 1 :]}/{KEY}")
        if at and ADDRESS[at] != ADDRESS[at - 1]:
            assert not _is_taken(
                f"{ADDRESS[: at - 1]}{ADDRESS[at]}{ADDRESS[at - 1]}{ADDRESS[at + 1 :]}/{KEY}"
            )


def _is_taken(text: str) -> bool:
    try:
        decode_short_invite(text)
    except BadCode:
        return False
    return True


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        (KEY, "no relay's address before its key"),
        (f"{ADDRESS}/", "an address without a key"),
        (f"{ADDRESS}/{KEY[:-1]}", "11 characters after the last slash, and there must be 12"),
        (f"{ADDRESS}/{KEY}7", "too long: 13"),
        (f"{ADDRESS}/U{KEY[1:]}", "at place 1 that cannot occur"),
        (f"{ADDRESS.replace('20', '21')}/{KEY}", "mistyped"),
        (f"ftp://{ADDRESS}/{KEY}", "no relay's address"),
    ],
)
def test_a_mistake_is_named_and_never_quoted(typed: str, named: str) -> None:
    with pytest.raises(BadCode, match=named) as raised:
        decode_short_invite(typed)
    assert KEY not in str(raised.value) + raised.value.hint
    assert raised.value.hint


def test_the_kinds_of_codes_are_told_apart() -> None:
    root = Root(fixed("root", 32))
    slashed, mistyped = "mc3:" + "/" * 48, "xc1:" + "A/" * 21
    for text in (
        encode_invite(CODE),
        encode(root),
        slashed,
        mistyped,
        URL,
        "https://relay.example.org/",
        "hello",
        "",
    ):
        assert not is_short_invite(text)
    for text in (
        TEXT,
        TEXT.lower(),
        f"https://{TEXT}",
        KEY,
        f"{ADDRESS}/{KEY[:-1]}",
        f"me@{TEXT}",
        f"[fd00::1]:80/{KEY}",
        f"relay/{KEY}",
    ):
        assert is_short_invite(text)


def test_the_relay_keeps_the_same_number_of_bytes_of_every_invite_and_none_in_clear() -> None:
    derived = SHORT.derived()
    sealed = derived.seal(CODE)
    assert derived.open(sealed) == CODE
    other = InviteCode(VAULT, CODE.secret, CODE.exchange, "https://a.org")
    assert len(sealed) == len(derived.seal(other)) == SHORT_INVITE_BYTES
    for secret in (VAULT, CODE.secret.to_bytes(), b"192.168.1.20", SHORT.key.encode()):
        assert secret not in sealed + derived.place


def test_another_key_or_address_gives_another_place_and_opens_nothing() -> None:
    sealed = SHORT.derived().seal(CODE)
    places = {SHORT.derived().place}
    for other in (ShortInvite(SHORT.address, "0" * 10), ShortInvite("relay.example.org", SHORT.key)):
        derived = other.derived()
        places.add(derived.place)
        with pytest.raises(BadMessage):
            derived.open(sealed)
    assert len(places) == 3


def test_keys_are_fifty_random_bits() -> None:
    made = ShortInvite.generate(URL, lambda count: bytes(range(256 - count, 256)))
    assert made.key == "PQRSTVWXYZ"
    assert len({ShortInvite.generate(URL).key for _ in range(100)}) == 100


def test_it_shows_nothing_of_itself() -> None:
    derived: ShortInviteKeys = SHORT.derived()
    for secret in (SHORT, derived):
        assert SHORT.key not in f"{secret!r} {secret}"
        for leak in (pickle.dumps, copy.copy):
            with pytest.raises(TypeError):
                leak(secret)
