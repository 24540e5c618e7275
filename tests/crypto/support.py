"""Keys and headers that several tests of the byte formats share."""

from collections.abc import Callable
from typing import Final

from crystal_crypto.entry import Channel, Header, Kind
from crystal_crypto.hierarchy import GenerationKey, VaultSecret
from crystal_crypto.identity import SigningKey
from tests.vectors.craft import GENERATION_KEY, SEED, SENDER, VAULT, VAULT_SECRET, fixed

KEY: Final = GenerationKey(1, GENERATION_KEY)
SIGNER: Final = SigningKey(SEED)
SECRET: Final = VaultSecret(VAULT_SECRET)
SALT: Final = fixed("salt", 24)


def header(*, sequence: int = 41, epoch: int = 3, incarnation: bytes = b"incarnat") -> Header:
    return Header(
        kind=Kind.OFFER,
        channel=Channel.CONVERSATIONS,
        vault=VAULT,
        sender=SENDER,
        incarnation=incarnation,
        epoch=epoch,
        generation=1,
        log_head=fixed("log head", 32),
        sequence=sequence,
        previous=fixed("previous", 32),
    )


def counting(seed: str) -> Callable[[int], bytes]:
    """A source of randomness that gives the same bytes in each run and never the same twice in one."""
    calls = 0

    def random(size: int) -> bytes:
        nonlocal calls
        calls += 1
        return fixed(f"{seed} {calls}", size)

    return random
