"""The two sides of an invite pairing: what they agree on, in which order, and that they keep their secrets."""

import copy
import hmac
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_crypto.errors import BadCode, BadJoin, BadMessage, Malformed
from crystal_crypto.identity import DeviceIdentity, ExchangeKey, ExchangePublic
from crystal_crypto.invite import EndReason, Inviter, InviterInfo, Joiner, OfferInfo, Welcome
from crystal_crypto.invite_code import InviteCode, InviteSecret
from crystal_crypto.invite_messages import InviteKeys
from crystal_crypto.limits import INVITE_MESSAGE_BYTES_MAX
from crystal_crypto.secret import Secret
from tests.crypto.invite_support import (
    ENTRY_HASH,
    HEAD,
    TOKEN_HASH,
    URL,
    a_joiner,
    an_inviter,
    shown,
    whole,
)
from tests.crypto.support import counting
from tests.vectors.craft import SENDER, VAULT, fixed

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(names, names, names, names)
def test_both_sides_agree_on_keys_names_and_digits(
    desk: str, desk_system: str, laptop: str, laptop_system: str
) -> None:
    inviter = an_inviter(name=desk, system=desk_system)
    joiner = a_joiner(inviter.code, name=laptop, system=laptop_system)
    identity = DeviceIdentity.generate(counting("joiner"))
    assert joiner.open_offer(inviter.offer()) == OfferInfo(desk)
    newcomer = inviter.open_join(joiner.join())
    assert (newcomer.name, newcomer.system, newcomer.token_hash) == (laptop, laptop_system, TOKEN_HASH)
    assert (newcomer.device, newcomer.signing) == (identity.id, identity.signing.public)
    assert newcomer.exchange == identity.exchange.public
    assert joiner.open_reveal(inviter.reveal()) == InviterInfo(SENDER, desk, desk_system)
    assert len(joiner.digits) == 6
    assert joiner.digits.isdigit()
    assert inviter.check(joiner.digits)
    welcome = inviter.welcome(7, ENTRY_HASH, HEAD, 2)
    assert joiner.open_welcome(welcome) == Welcome(7, ENTRY_HASH, HEAD, 2)
    assert inviter.open_done(joiner.done(True))
    assert all(
        len(message) <= INVITE_MESSAGE_BYTES_MAX for message in (inviter.offer(), joiner.join(), welcome)
    )


def test_digits_are_taken_as_people_type_them_and_what_is_not_six_digits_is_no_try() -> None:
    pairing = shown()
    digits = pairing.joiner.digits
    for typed in ("", "12345", "1234567", "abcdef", "\u0661\u0662\u0663\u0664\u0665\u0666", "12 34"):
        assert not pairing.inviter.check(typed)
    assert pairing.inviter.tries_left == 3
    for typed in (digits, f" {digits[:3]} {digits[3:]}\n", f"{digits[:3]}-{digits[3:]}"):
        assert pairing.inviter.check(typed)


def test_after_three_wrong_tries_no_digits_are_right() -> None:
    pairing = shown()
    digits = pairing.joiner.digits
    wrong = f"{(int(digits) + 1) % 10**6:06d}"
    assert [pairing.inviter.check(wrong) for _ in range(3)] == [False] * 3
    assert pairing.inviter.tries_left == 0
    assert not pairing.inviter.check(digits)
    with pytest.raises(ValueError, match="nobody is welcomed"):
        pairing.inviter.welcome(7, ENTRY_HASH, HEAD, 0)


def test_a_wrong_try_does_not_spoil_the_right_one() -> None:
    pairing = shown()
    wrong = f"{(int(pairing.joiner.digits) + 1) % 10**6:06d}"
    assert not pairing.inviter.check(wrong)
    assert pairing.inviter.check(pairing.joiner.digits)
    assert pairing.inviter.tries_left == 2


def test_wrong_digits_take_as_long_as_right_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    pairing = shown()
    digits = pairing.joiner.digits
    compared: list[tuple[int, int]] = []
    original = hmac.compare_digest

    def watched(a: str, b: str) -> bool:
        compared.append((len(a), len(b)))
        return original(a, b)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    first, last = f"{(int(digits[0]) + 1) % 10}{digits[1:]}", f"{digits[:5]}{(int(digits[5]) + 1) % 10}"
    assert [pairing.inviter.check(typed) for typed in (first, last, digits)] == [False, False, True]
    assert compared == [(6, 6)] * 3


def test_steps_out_of_order_are_mistakes_of_the_caller() -> None:
    inviter = an_inviter()
    joiner = a_joiner(inviter.code)
    too_early: list[Callable[[], object]] = [
        inviter.reveal,
        lambda: inviter.check("000000"),
        lambda: inviter.welcome(7, ENTRY_HASH, HEAD, 0),
        lambda: inviter.open_done(b""),
        joiner.join,
        lambda: joiner.open_reveal(b""),
        lambda: joiner.digits,
        lambda: joiner.open_welcome(b""),
        lambda: joiner.done(True),
    ]
    for step in too_early:
        with pytest.raises(ValueError, match=r"."):
            step()
    pairing = shown()
    for twice in (
        lambda: pairing.inviter.open_join(pairing.messages["join"]),
        lambda: pairing.joiner.open_offer(pairing.messages["offer"]),
        lambda: pairing.joiner.open_reveal(pairing.messages["reveal"]),
    ):
        with pytest.raises(ValueError, match=r"."):
            twice()


def test_a_slot_is_sealed_once_so_that_no_nonce_serves_two_contents() -> None:
    pairing = whole()
    inviter, joiner, messages = pairing.inviter, pairing.joiner, pairing.messages
    assert inviter.offer() == messages["offer"]
    assert joiner.join() == messages["join"]
    assert inviter.reveal() == messages["reveal"]
    assert inviter.welcome(7, ENTRY_HASH, HEAD, 0) == messages["welcome"]
    assert inviter.end(EndReason.FAILED) == messages["end"]
    assert joiner.done(True) == messages["done"]
    other_things: list[Callable[[], bytes]] = [
        lambda: inviter.welcome(8, ENTRY_HASH, HEAD, 0),
        lambda: inviter.end(EndReason.DIGITS),
        lambda: joiner.done(False),
    ]
    for differently in other_things:
        with pytest.raises(ValueError, match="differently"):
            differently()


@pytest.mark.parametrize("reason", EndReason)
def test_an_end_can_be_read_before_anything_else_was(reason: EndReason) -> None:
    inviter = an_inviter()
    assert a_joiner(inviter.code).open_end(inviter.end(reason)) is reason


def test_a_refusal_is_told() -> None:
    pairing = shown()
    assert pairing.inviter.open_done(pairing.joiner.done(False)) is False


def _readers(seed: str) -> dict[str, tuple[Callable[[bytes], object], type[BadMessage]]]:
    """For each slot a side that waits for its message, as it would in the pairing `shown(seed)`."""
    inviter, full = an_inviter(f"inviter {seed}"), whole(seed)
    waiting = a_joiner(inviter.code, f"joiner {seed}")
    joined = a_joiner(inviter.code, f"joiner {seed}")
    joined.open_offer(full.messages["offer"])
    joined.join()
    return {
        "offer": (waiting.open_offer, BadMessage),
        "join": (inviter.open_join, BadJoin),
        "reveal": (joined.open_reveal, BadMessage),
        "welcome": (full.joiner.open_welcome, BadMessage),
        "end": (full.joiner.open_end, BadMessage),
        "done": (full.inviter.open_done, BadMessage),
    }


SLOTS = ("offer", "join", "reveal", "welcome", "end", "done")
READERS = _readers("any bytes")


@pytest.mark.parametrize("slot", SLOTS)
def test_every_flipped_bit_of_every_message_is_noticed(slot: str) -> None:
    data = whole("flipped").messages[slot]
    read, error = _readers("flipped")[slot]
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(error):
            read(bytes(changed))
    read(data)


@pytest.mark.parametrize("slot", SLOTS)
def test_every_cut_and_every_addition_is_noticed(slot: str) -> None:
    data = whole("cut").messages[slot]
    read, error = _readers("cut")[slot]
    for wrong in (*(data[:at] for at in range(len(data))), data + b"\x00", data + data, b"\x00" + data):
        with pytest.raises(error) as caught:
            read(wrong)
        assert caught.value.hint
    read(data)


@given(st.binary(max_size=600), st.sampled_from(SLOTS), st.booleans())
def test_any_bytes_as_any_message(data: bytes, slot: str, versioned: bool) -> None:
    read, error = READERS[slot]
    with pytest.raises(error):
        read(b"\x02" * versioned + data)


def test_a_message_over_the_limit_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> bytes:
        raise AssertionError("keys were derived for a message of no possible length")

    monkeypatch.setattr(InviteKeys, "_once", never)
    for read, error in READERS.values():
        for data in (b"", b"\x02" + bytes(INVITE_MESSAGE_BYTES_MAX), b"\x03" + bytes(300)):
            with pytest.raises(error):
                read(data)


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31)])
def test_an_ephemeral_key_of_low_order_is_refused(point: bytes) -> None:
    inviter = an_inviter()
    joiner = a_joiner(inviter.code)
    joiner.open_offer(inviter.offer())
    with pytest.raises(BadJoin):
        inviter.open_join(b"\x02" + point + joiner.join()[33:])
    code = InviteCode(VAULT, InviteSecret(fixed("secret", 16)), ExchangePublic.from_bytes(point), URL)
    with pytest.raises(BadCode):
        a_joiner(code)


def test_a_side_refuses_what_no_message_can_hold() -> None:
    inviter, identity = an_inviter(), DeviceIdentity.generate()
    for name in ("a" * 201, "\udcff"):
        with pytest.raises(Malformed):
            an_inviter(name=name)
        with pytest.raises(Malformed):
            a_joiner(inviter.code, system=name)
    for token_hash in ("", "00" * 31, "00" * 33, "zz" * 32):
        with pytest.raises(Malformed):
            Joiner.begin(inviter.code, identity, name="", system="", token_hash=token_hash)
    with pytest.raises(Malformed):
        Inviter(inviter.code, ExchangeKey.generate(), bytes(32), device=SENDER, name="", system="")
    pairing = shown()
    assert pairing.inviter.check(pairing.joiner.digits)
    with pytest.raises(Malformed):
        pairing.inviter.welcome(7, ENTRY_HASH[:31], HEAD, 0)


def test_neither_side_shows_or_gives_away_its_secrets() -> None:
    pairing = shown()
    keys = InviteKeys(pairing.inviter.code)
    secrets: list[Secret] = [pairing.inviter, pairing.joiner, pairing.inviter.code, keys]
    secrets.append(pairing.inviter.code.secret)
    material = pairing.inviter.code.secret.to_bytes()
    for secret in secrets:
        text = f"{secret!r} {secret} {[secret]} {secret:>80}"
        assert "hidden" in text
        assert material.hex() not in text
        assert repr(material)[2:-1] not in text
        assert pairing.joiner.digits not in text
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(secret)
        with pytest.raises(TypeError, match="never pickled"):
            copy.copy(secret)


def test_errors_quote_nothing_of_a_message() -> None:
    pairing = whole("quoted", name="a name to look for")
    for slot, (read, error) in _readers("other").items():
        with pytest.raises(error) as caught:
            read(pairing.messages[slot])
        assert "a name to look for" not in f"{caught.value} {caught.value.hint}"
        assert caught.value.__cause__ is None
