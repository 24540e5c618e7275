"""Names of objects: only one spelling, nothing that climbs or needs an escape."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_relay.errors import BadRequest
from crystal_relay.keys import AFTER_ANY_KEY, check_key, check_prefix, check_vault
from crystal_relay.limits import KEY_CHARS_MAX
from crystal_relay.server.scopes import parse_place

ALPHABET = string.ascii_lowercase + string.digits + "._-"
segments = st.text(ALPHABET, min_size=1, max_size=20).filter(lambda segment: segment not in (".", ".."))
keys = st.lists(segments, min_size=1, max_size=8).map("/".join)


@given(keys)
def test_every_key_and_every_beginning_of_one_is_taken(key: str) -> None:
    assert check_key(key) == key
    for end in range(len(key) + 1):
        if key[:end].rpartition("/")[2] not in (".", ".."):
            check_prefix(key[:end])
    assert key < key + AFTER_ANY_KEY
    assert all(ord(character) < ord(AFTER_ANY_KEY) for character in key)


@given(st.text(max_size=40))
def test_what_is_taken_for_a_key_is_one(text: str) -> None:
    try:
        check_key(text)
    except BadRequest:
        return
    assert text.isascii()
    assert all(part not in ("", ".", "..") and set(part) <= set(ALPHABET) for part in text.split("/"))


def test_the_longest_key_is_taken_and_a_longer_one_is_not() -> None:
    check_key("k" * KEY_CHARS_MAX)
    for check in (check_key, check_prefix):
        with pytest.raises(BadRequest):
            check("k" * (KEY_CHARS_MAX + 1))


@pytest.mark.parametrize(
    "bad", ["a\n", "\na", "a/b\n", "a/..", "../a", "a/./b", "a//b", "/a", "a/", "A", "ſ", "a\u0338"]
)
def test_near_misses_are_refused_without_being_repeated(bad: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check_key(bad)
    assert bad not in str(caught.value)


@pytest.mark.parametrize(
    "bad", ["", "0" * 31, "0" * 33, "0" * 31 + "G", "A" * 32, "0" * 32 + "\n", "../" + "0" * 29]
)
def test_a_vault_is_thirty_two_hex_digits(bad: str) -> None:
    with pytest.raises(BadRequest):
        check_vault(bad)


DEVICE = "0123456789abcdef" * 2
INCARNATION = "0123456789abcdef"


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("devlog/0000000000000000", None),
        (f"conversations/{DEVICE}.{INCARNATION}/0000000000000007", DEVICE),
        ("mirror/0000000001/0000000000000007", None),
        (f"commands/{DEVICE}.{INCARNATION}/0000000000000007", DEVICE),
        (f"cursor/{DEVICE}", DEVICE),
        ("blob/" + "ab" * 32, None),
    ],
)
def test_the_channels_keys_name_their_owner(key: str, owner: str | None) -> None:
    assert parse_place(key).owner == owner


@pytest.mark.parametrize(
    "key",
    [
        "devlog",
        "devlog/0/0",
        "devlog/",
        f"conversations/{DEVICE}/0",
        f"conversations/{DEVICE}.{INCARNATION}",
        f"conversations/{DEVICE}.{INCARNATION}0/0",
        f"conversations/{DEVICE.upper()}.{INCARNATION}/0",
        f"cursor/{DEVICE}/x",
        f"cursor/{DEVICE}0",
        "mirror/0",
        "blob/a/b",
        "invite/a/b",
        "files/a",
        "r/vault/x/record",
        "x",
        "",
    ],
)
def test_keys_of_no_channel_are_refused(key: str) -> None:
    with pytest.raises(BadRequest):
        parse_place(key)
