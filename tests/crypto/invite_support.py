"""A pairing between two honest sides, and its messages, for the tests of invites."""

from dataclasses import dataclass
from typing import Final

from crystal_crypto.identity import DeviceIdentity, Random
from crystal_crypto.invite import EndReason, Inviter, Joiner
from crystal_crypto.invite_code import InviteCode
from tests.crypto.support import counting
from tests.vectors.craft import SENDER, VAULT, fixed

URL: Final = "https://relay.example.org"
TOKEN_HASH: Final = fixed("hash of a token", 32).hex()
ENTRY_HASH, HEAD = fixed("entry hash", 32), fixed("head", 32)


def an_inviter(seed: str = "inviter", *, name: str = "desk", system: str = "Linux") -> Inviter:
    return Inviter.begin(vault=VAULT, url=URL, device=SENDER, name=name, system=system, random=counting(seed))


def a_joiner(
    code: InviteCode, seed: str = "joiner", *, name: str = "laptop", system: str = "Darwin"
) -> Joiner:
    random: Random = counting(seed)
    identity = DeviceIdentity.generate(random)
    return Joiner.begin(code, identity, name=name, system=system, token_hash=TOKEN_HASH, random=random)


@dataclass
class Pairing:
    """Both sides after the digits were shown, with all that went through the mailbox so far."""

    inviter: Inviter
    joiner: Joiner
    messages: dict[str, bytes]


def shown(seed: str = "", **names: str) -> Pairing:
    """Both sides up to the digits."""
    inviter = an_inviter(f"inviter {seed}", **names)
    joiner = a_joiner(inviter.code, f"joiner {seed}", **names)
    messages = {"offer": inviter.offer()}
    joiner.open_offer(messages["offer"])
    messages["join"] = joiner.join()
    inviter.open_join(messages["join"])
    messages["reveal"] = inviter.reveal()
    joiner.open_reveal(messages["reveal"])
    return Pairing(inviter, joiner, messages)


def whole(seed: str = "", **names: str) -> Pairing:
    """Both sides to the end, and an `end` besides."""
    pairing = shown(seed, **names)
    assert pairing.inviter.check(pairing.joiner.digits)
    pairing.messages["welcome"] = pairing.inviter.welcome(7, ENTRY_HASH, HEAD, 0)
    pairing.messages["done"] = pairing.joiner.done(True)
    pairing.messages["end"] = pairing.inviter.end(EndReason.FAILED)
    return pairing
