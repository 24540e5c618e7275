"""The recovery kit and the invite's text: what people copy and type, with their slips."""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_crypto import kit as kit_module
from crystal_crypto.errors import BadCode, Malformed, TooLarge
from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import ExchangePublic
from crystal_crypto.invite_code import InviteCode, InviteSecret, decode_invite, encode_invite
from crystal_crypto.kit import Kit, decode_kit, decode_line, encode_kit
from crystal_crypto.pairing import OfflineCode, decode, encode
from tests.crypto.independent_invite import crc16
from tests.vectors.craft import fixed

ROOT, VAULT = Root(fixed("root of a kit", 32)), fixed("vault", 16)
LINES = encode_kit(ROOT, VAULT)
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
CODE = InviteCode(
    VAULT,
    InviteSecret(fixed("secret", 16)),
    ExchangePublic.from_bytes(fixed("key", 32)),
    "https://relay.example.org:8443/crystal",
)
TEXT = encode_invite(CODE)

sixteen = st.binary(min_size=16, max_size=16)
thirty_two = st.binary(min_size=32, max_size=32)


# The kit


@given(thirty_two, sixteen, st.randoms(use_true_random=False), st.booleans())
def test_every_kit_comes_back_in_any_order_and_case(
    root: bytes, vault: bytes, chance: random.Random, numbered: bool
) -> None:
    lines = encode_kit(Root(root), vault)
    data = [decode_line(number, line) for number, line in enumerate(lines, start=1)]
    assert b"".join(data) == root + vault
    assert decode_kit("\n".join(lines)) == Kit(Root(root), vault)
    typed = list(lines)
    if numbered:
        chance.shuffle(typed)
    else:
        typed = [line[3:].replace("-", chance.choice(("", " ", "-"))) for line in typed]
    assert decode_kit("\n".join(typed).lower()) == Kit(Root(root), vault)


def test_every_slip_of_one_character_and_every_swap_of_two_is_found_at_its_line() -> None:
    slips = 0
    for number, line in enumerate(LINES, start=1):
        bare = line[3:].replace("-", "")
        typed = {bare[:at] + char + bare[at + 1 :] for at in range(16) for char in CROCKFORD}
        typed |= {bare[:at] + bare[at + 1] + bare[at] + bare[at + 2 :] for at in range(15)}
        typed |= {bare[:at] + bare[at : at + 3][::-1] + bare[at + 3 :] for at in range(14)}
        for wrong in typed - {bare}:
            with pytest.raises(BadCode, match=f"line {number} "):
                decode_line(number, wrong)
            slips += 1
    assert slips > 2900


def test_a_typed_line_says_what_is_wrong_with_it_and_is_never_quoted() -> None:
    third = LINES[2]
    cases = {
        "line 3 of the kit is too short by 2 characters": third[:-2],
        "line 3 of the kit is too short by 16 characters": "",
        "line 3 of the kit is too long by 1 characters": third + "7",
        "line 3 of the kit was mistyped": third[:-1] + ("Z" if third[-1] != "Z" else "Y"),
        "that is line 5 of the kit, not line 3": LINES[4],
        "that is line 1 of the kit": LINES[0][3:],
        "line 3 of the kit has the number 4 before it": "4" + third[1:],
        "place 2 that cannot occur": third[:4] + "u" + third[5:],
    }
    for said, typed in cases.items():
        with pytest.raises(BadCode) as caught:
            decode_line(3, typed)
        assert said in str(caught.value)
        assert caught.value.hint
        assert third[3:7] not in f"{caught.value} {caught.value.hint}"
    with pytest.raises(ValueError, match="1 to 6"):
        decode_line(7, LINES[0])


def test_a_kit_says_which_line_is_wrong() -> None:
    bare = [line[3:] for line in LINES]
    cases = {
        "line 4 of the kit is missing": "\n".join(LINES[:3] + LINES[4:]),
        "line 2 of the kit is too short by 1 characters": "\n".join([LINES[0], LINES[1][:-1], *LINES[2:]]),
        "line 6 of the kit is too short by 3 characters": "\n".join([*bare[:5], bare[5][:-3]]),
        "line 1 is there twice, and differently": "\n".join(
            [*LINES, encode_kit(Root(fixed("another", 32)), VAULT)[0]]
        ),
        "line 1 of the kit is missing": "only words\n1. Install Crystal.",
        "that is line 2 of the kit, not line 1": "\n".join(["1: " + bare[1], "2: " + bare[0], *LINES[2:]]),
    }
    for said, text in cases.items():
        with pytest.raises(BadCode) as caught:
            decode_kit(text)
        assert said in str(caught.value)
        assert caught.value.hint
        assert bare[0][:4] not in str(caught.value)


@given(st.text(max_size=200), st.integers(1, 6))
def test_any_text_as_a_kit_or_a_line_of_one(text: str, number: int) -> None:
    for prefix in ("", f"{number}: ", "mc1:", "mc3:", "\n".join(LINES[:5]) + "\n"):
        with pytest.raises(BadCode):
            decode_kit(prefix + text)
    with pytest.raises(BadCode):
        decode_line(number, text)


@given(st.binary(min_size=8, max_size=8))
def test_no_check_agrees_at_two_places(data: bytes) -> None:
    assert (
        len(
            {
                kit_module._check(number, data)  # pyright: ignore[reportPrivateUsage]
                for number in range(1, 7)
            }
        )
        == 6
    )
    assert crc16(b"123456789").hex() == "29b1"  # as published for CRC-16 with this polynomial and start


def test_a_kit_and_a_code_show_nothing_of_the_root() -> None:
    for shown in (repr(Kit(ROOT, VAULT)), str(OfflineCode(ROOT, VAULT))):
        assert ROOT.to_bytes().hex() not in shown
        assert repr(ROOT.to_bytes())[2:-1] not in shown
        assert "hidden" in shown


# The offline code that names a vault


@given(thirty_two, sixteen)
def test_a_code_names_the_vault_only_if_the_root_does_not_tell_it(raw: bytes, vault: bytes) -> None:
    root = Root(raw)
    assert "@" not in encode(root)
    assert encode(root, root.vault) == encode(root)
    assert decode(encode(root, root.vault)) == OfflineCode(root)
    assert decode(encode(root)).vault_id == root.vault
    named = decode(encode(root, vault))
    assert named == OfflineCode(root, vault)
    assert named.vault_id == vault
    assert decode_kit(encode(root, vault)) == Kit(root, vault)


def test_what_is_wrong_with_a_named_vault_is_said() -> None:
    text = encode(ROOT, VAULT)
    cases = {
        "by 31 characters, and there must be 32": text[:-1],
        "by 0 characters": text[:-32],
        f"at position {len(text)} that cannot occur in a vault's id": text[:-1] + "x",
    }
    for said, code in cases.items():
        with pytest.raises(BadCode) as caught:
            decode(code)
        assert said in str(caught.value)
    with pytest.raises(Malformed):
        encode(ROOT, VAULT[:15])


# The invite's text


@given(sixteen, sixteen, thirty_two, st.text(string.ascii_lowercase + "äß./:-", max_size=90))
def test_every_invite_survives_its_text(vault: bytes, secret: bytes, exchange: bytes, host: str) -> None:
    code = InviteCode(vault, InviteSecret(secret), ExchangePublic.from_bytes(exchange), f"https://{host}")
    text = encode_invite(code)
    assert set(text) <= set(string.ascii_uppercase + string.digits + ":")  # what a QR code holds best
    assert decode_invite(text) == code
    groups = " ".join(text[at : at + 5] for at in range(0, len(text), 5))
    assert decode_invite(f"\n {groups.lower()}\r\n") == code


def test_every_slip_of_one_character_every_cut_and_every_swap_of_an_invite_is_refused() -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    wrong = {TEXT[:at] + char + TEXT[at + 1 :] for at in range(4, len(TEXT)) for char in alphabet}
    wrong |= {TEXT[:at] for at in range(len(TEXT))}
    wrong |= {TEXT[:at] + TEXT[at + 1] + TEXT[at] + TEXT[at + 2 :] for at in range(4, len(TEXT) - 1)}
    for text in wrong - {TEXT}:
        with pytest.raises(BadCode):
            decode_invite(text)
    assert len(wrong) > 5000


def test_what_is_wrong_with_an_invite_is_said_with_the_fix_and_without_quoting_it() -> None:
    there = len(TEXT) - 4
    other = "B" if TEXT[60] == "A" else "A"
    cases = {
        "the invite is empty": " \n",
        f"{there - 3} characters after `MC2:`, and there must be {there}": TEXT[:-3],
        "cut short: 10 characters after `MC2:`, and there must be at least": TEXT[:14],
        "too long by 2 characters": TEXT + "AA",
        "a character at position 51 that cannot occur": TEXT[:50] + "1" + TEXT[51:],
        "was mistyped": TEXT[:60] + other + TEXT[61:],
        "of version 1, which is unknown here": "MC2:AE" + TEXT[6:],
        "an offline pairing code (mc3)": encode(ROOT),
        "this is an address": "https://relay.example.org",
        "does not begin with `MC2:`": TEXT[4:],
    }
    for said, text in cases.items():
        with pytest.raises(BadCode) as caught:
            decode_invite(text)
        assert said in str(caught.value), said
        assert caught.value.hint
        shown = f"{caught.value} {caught.value.hint}"
        assert not any(TEXT[at : at + 6] in shown for at in range(4, there))


@given(st.text(max_size=200), st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", max_size=400))
def test_any_text_as_an_invite(text: str, letters: str) -> None:
    for code in (text, "MC2:" + text, "mc2:" + letters, TEXT[:6] + letters):
        with pytest.raises(BadCode):
            decode_invite(code)


def test_an_invite_holds_no_address_that_is_too_long_or_none() -> None:
    def code(url: str) -> InviteCode:
        return InviteCode(VAULT, CODE.secret, CODE.exchange, url)

    assert decode_invite(encode_invite(code("https://" + "a" * 192))).url == "https://" + "a" * 192
    with pytest.raises(TooLarge, match="at most 200 bytes, not 201"):
        code("https://" + "a" * 193)
    for url in (
        "",
        "relay.example.org",
        "ftp://a",
        "https://a b",
        "https://a\n",
        "https://\u202ea",
        "https://\udcff",
    ):
        with pytest.raises(BadCode):
            code(url)
