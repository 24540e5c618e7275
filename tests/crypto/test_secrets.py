"""Key material stays where it is: not in a repr, a pickle, a copy or a comparison's time."""

import copy
import hmac
import pickle
from collections.abc import Callable

import pytest

from crystal_crypto.errors import Malformed
from crystal_crypto.hierarchy import GenerationKey, Root, VaultSecret, vault_id
from crystal_crypto.identity import DeviceIdentity, ExchangeKey, ExchangePublic, SigningKey, VerifyKey
from crystal_crypto.secret import Secret
from tests.crypto.support import counting
from tests.vectors.craft import fixed

MATERIAL = fixed("material", 32)
OTHER = fixed("other material", 32)

MAKERS: dict[str, Callable[[bytes], Secret]] = {
    "root": Root.from_bytes,
    "generation": lambda raw: GenerationKey(7, raw),
    "vault secret": VaultSecret.from_bytes,
    "signing key": SigningKey.from_bytes,
    "exchange key": ExchangeKey.from_bytes,
    "identity": lambda raw: DeviceIdentity(raw[:16], SigningKey(raw), ExchangeKey(raw)),
}
each = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


@each
def test_a_secret_is_never_shown(make: Callable[[bytes], Secret]) -> None:
    secret = make(MATERIAL)
    shown = f"{secret!r} {secret} {secret:>80} {[secret]}" + "%s" % secret  # noqa: UP031 - a way to print it
    assert "hidden" in shown
    for raw in (MATERIAL, MATERIAL[:16]):
        assert raw.hex() not in shown
        assert repr(raw)[2:-1] not in shown
        assert str(int.from_bytes(raw, "big")) not in shown


@each
def test_a_secret_is_never_pickled_or_copied(make: Callable[[bytes], Secret]) -> None:
    secret = make(MATERIAL)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(secret, protocol)
    with pytest.raises(TypeError, match="never pickled"):
        copy.copy(secret)
    with pytest.raises(TypeError, match="never pickled"):
        copy.deepcopy([secret])


@each
def test_secrets_are_compared_in_constant_time(
    make: Callable[[bytes], Secret], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make(MATERIAL) == make(MATERIAL)
    assert make(MATERIAL) != make(OTHER)
    assert make(MATERIAL) != MATERIAL
    with pytest.raises(TypeError):
        hash(make(MATERIAL))
    compared: list[int] = []
    original = hmac.compare_digest

    def watched(a: bytes, b: bytes) -> bool:
        compared.append(len(a))
        return original(a, b)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    assert make(MATERIAL) != make(OTHER)
    assert compared


@each
def test_another_length_is_no_secret(make: Callable[[bytes], Secret]) -> None:
    for raw in (b"", MATERIAL[:31], MATERIAL + b"\x00"):
        with pytest.raises(Malformed) as caught:
            make(raw)
        assert MATERIAL[:8].hex() not in str(caught.value)


def test_equal_material_of_another_kind_is_another_secret() -> None:
    made = [make(MATERIAL) for make in MAKERS.values()]
    assert sum(one == two for one in made for two in made) == len(made)
    assert GenerationKey(1, MATERIAL) != GenerationKey(2, MATERIAL)


def test_generated_keys_come_from_the_given_randomness() -> None:
    assert Root.generate(counting("a")) == Root.generate(counting("a"))
    assert Root.generate(counting("a")) != Root.generate(counting("b"))
    assert DeviceIdentity.generate(counting("a")) == DeviceIdentity.generate(counting("a"))
    assert GenerationKey.generate(1, counting("a")) == GenerationKey.generate(1, counting("a"))
    assert VaultSecret.generate() != VaultSecret.generate()
    assert ExchangeKey.generate() != ExchangeKey.generate()
    identity = DeviceIdentity.generate(counting("a"))
    assert identity.signing.to_bytes() != identity.exchange.to_bytes()


def test_a_device_identity_survives_storage_and_damage_is_noticed() -> None:
    identity = DeviceIdentity.generate(counting("stored"))
    stored = identity.to_bytes()
    assert DeviceIdentity.from_bytes(stored) == identity
    for at in range(len(stored)):
        with pytest.raises(Malformed):
            DeviceIdentity.from_bytes(stored[:at])
        damaged = stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :]
        with pytest.raises(Malformed):
            DeviceIdentity.from_bytes(damaged)


def test_a_roots_parts_are_all_different_and_none_is_the_root() -> None:
    root = Root(MATERIAL)
    parts = [
        root.to_bytes(),
        root.admin.to_bytes(),
        root.recovery.to_bytes(),
        root.relay_secret,
        root.admin.public.to_bytes(),
        root.recovery.public.to_bytes(),
    ]
    assert len(set(parts)) == len(parts)
    assert (len(root.vault), len(root.check_value)) == (16, 8)
    assert root.vault == vault_id(root.admin.public)
    assert root.vault != Root(OTHER).vault


def test_public_keys_are_values() -> None:
    signing, exchange = SigningKey(MATERIAL), ExchangeKey(MATERIAL)
    assert VerifyKey.from_bytes(signing.public.to_bytes()) == signing.public
    assert ExchangePublic.from_bytes(exchange.public.to_bytes()) == exchange.public
    assert len({signing.public, SigningKey(MATERIAL).public, SigningKey(OTHER).public}) == 2
    assert repr(signing.public) == f"VerifyKey({signing.public.to_bytes().hex()})"
    assert repr(exchange.public) == f"ExchangePublic({exchange.public.to_bytes().hex()})"
    with pytest.raises(Malformed):
        ExchangePublic.from_bytes(bytes(31))


def test_two_sides_of_an_exchange_agree() -> None:
    one, two = ExchangeKey(MATERIAL), ExchangeKey(OTHER)
    assert one.exchange(two.public) == two.exchange(one.public)


def test_a_generation_number_fits_in_32_bits() -> None:
    for number in (-1, 2**32):
        with pytest.raises(ValueError, match="32 bits"):
            GenerationKey(number, MATERIAL)
