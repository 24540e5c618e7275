"""Attacks on an invite pairing, each by what the attacker has: the code, a middle place, the relay."""

# The attacker's tools are our own two sides, bent.
# pyright: reportPrivateUsage=false

import hashlib
from collections.abc import Callable

import pytest

from crystal_crypto import invite, labels
from crystal_crypto.errors import BadJoin, BadMessage
from crystal_crypto.identity import ExchangeKey
from crystal_crypto.invite import EndReason, Inviter, Joiner
from crystal_crypto.invite_code import InviteCode
from crystal_crypto.invite_messages import (
    InviteKeys,
    InviteSlot,
    OfferBody,
    RevealBody,
    body_of,
    content_of,
)
from tests.crypto.invite_support import URL, a_joiner, an_inviter, shown, whole
from tests.vectors.craft import SENDER, VAULT, fixed

TRIES = 4000


def _digits_of(side: Inviter | Joiner) -> str:
    return side._keys.digits(side._transcript, int(vars(invite)["DIGITS_CHARS"]))


# A photographed invite: the attacker has the whole text, and reads the mailbox.


def test_a_photographed_invite_opens_nothing_that_follows_the_offer() -> None:
    pairing = whole()
    photographed = pairing.inviter.code
    spy = ExchangeKey.generate()
    known = [
        InviteKeys(photographed),
        InviteKeys(photographed, joiner=pairing.messages["join"][1:33]),
        InviteKeys(photographed, shared=bytes(32), joiner=pairing.messages["join"][1:33]),
        InviteKeys(photographed, shared=spy.exchange(photographed.exchange), joiner=spy.public.to_bytes()),
    ]
    transcript = pairing.joiner._transcript
    for keys in known:
        assert keys.digits(transcript, 6) != pairing.joiner.digits
        for slot in (InviteSlot.JOIN, InviteSlot.REVEAL, InviteSlot.WELCOME, InviteSlot.DONE):
            for salt in (b"", transcript):
                with pytest.raises(BadMessage):
                    keys.open(
                        slot,
                        pairing.messages[slot.value],
                        transcript=salt,
                        skip=32 if slot is InviteSlot.JOIN else 0,
                    )


def test_a_photographed_invite_cannot_make_the_digits_of_the_honest_newcomer() -> None:
    """The photographer and the relay together put another join under the inviter's eyes: the newcomer shows no digits."""
    inviter = an_inviter()
    honest, thief = a_joiner(inviter.code, "honest"), a_joiner(inviter.code, "thief", name="laptop")
    for side in (honest, thief):
        side.open_offer(inviter.offer())
    honest_join = honest.join()
    inviter.open_join(thief.join())
    thief.open_reveal(inviter.reveal())
    with pytest.raises(BadMessage):
        honest.open_reveal(inviter.reveal())
    with pytest.raises(ValueError, match="no digits before"):
        _ = honest.digits
    # The inviter has its newcomer: the honest one comes too late, and learns it from the relay.
    with pytest.raises(ValueError, match="has its newcomer"):
        inviter.open_join(honest_join)


def test_a_photographed_invite_cannot_pose_as_the_inviter() -> None:
    inviter = an_inviter()
    thief = ExchangeKey.generate()
    posing = Inviter(
        InviteCode(VAULT, inviter.code.secret, thief.public, URL),
        thief,
        bytes(32),
        device=SENDER,
        name="desk",
        system="Linux",
    )
    honest = a_joiner(inviter.code)
    with pytest.raises(BadMessage):
        honest.open_offer(posing.offer())
    # The offer is sealed by the code alone, so this the thief can write; what follows needs the inviter's key.
    forged = InviteKeys(inviter.code).seal(InviteSlot.OFFER, content_of(OfferBody(bytes(32), "desk")))
    honest.open_offer(forged)
    honest.join()
    for forged_reveal in (posing.offer(), inviter.offer(), forged):
        with pytest.raises(BadMessage):
            honest.open_reveal(forged_reveal)
    # The true inviter's reveal does not keep a promise that the thief made.
    inviter.open_join(honest.join())
    with pytest.raises(BadMessage, match="promised"):
        honest.open_reveal(inviter.reveal())


def test_an_end_by_whoever_has_the_code_ends_and_adds_nobody() -> None:
    pairing = shown()
    keys = InviteKeys(pairing.inviter.code)
    forged = keys.seal(InviteSlot.END, b"\x00\x08\x91\xa6digits" + bytes(246))
    assert pairing.joiner.open_end(forged) is EndReason.DIGITS
    assert not pairing.inviter.check("")


# A phished invite: the newcomer was given the attacker's code. The attacker sits between two sessions.


class Middleman:
    """Joins the true invite as a newcomer, and invites the victim with an invite of its own.

    It needs the same digits in both: then the person types the victim's, and the inviter adds the middleman.
    """

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.true = an_inviter(f"true {seed}")
        self.mine = an_inviter(f"middleman {seed}", name="desk")
        self.victim = a_joiner(self.mine.code, f"victim {seed}")
        self.posing = a_joiner(self.true.code, f"posing {seed}")

    def wanted(self) -> str:
        """Goes through the true session first: from here its digits are fixed."""
        self.posing.open_offer(self.true.offer())
        self.true.open_join(self.posing.join())
        self.posing.open_reveal(self.true.reveal())
        return self.posing.digits

    def search(self, wanted: str, vary: Callable[[int], tuple[bytes, str]]) -> bytes | None:
        """The victim's session up to its join, then reveals until one gives the wanted digits."""
        self.victim.open_offer(self.mine.offer())
        join = self.victim.join()
        for n in range(TRIES):
            nonce, system = vary(n)
            tried = Inviter(
                self.mine.code, self.mine._ephemeral, nonce, device=SENDER, name="desk", system=system
            )
            tried._offer = self.mine.offer()
            tried.open_join(join)
            if _digits_of(tried) == wanted:
                return tried.reveal()
        return None


def _other_nonces(n: int) -> tuple[bytes, str]:
    return fixed(f"tried nonce {n}", 32), "Linux"


def _other_names(middleman: Middleman) -> Callable[[int], tuple[bytes, str]]:
    promised = body_of(InviteSlot.REVEAL, middleman.mine._revealed, RevealBody)
    return lambda n: (promised.nonce, f"Linux {n}")


def _commits_to_nothing(_: bytes) -> bytes:
    return bytes(32)


def _commits_to_the_nonce(reveal: bytes) -> bytes:
    return hashlib.sha256(
        labels.INVITE_COMMIT + body_of(InviteSlot.REVEAL, reveal, RevealBody).nonce
    ).digest()


def _attack(middleman: Middleman, vary: Callable[[int], tuple[bytes, str]]) -> bool:
    """Whether the person, who types what the victim shows, lets the middleman in."""
    found = middleman.search(middleman.wanted(), vary)
    assert found is not None, "a search over so many reveals finds three equal digits"
    middleman.victim.open_reveal(found)
    return middleman.true.check(middleman.victim.digits)


def test_a_phished_invite_with_a_middleman_cannot_search_for_equal_digits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(invite, "DIGITS_CHARS", 3)  # a thousand times easier, and still nothing
    by_nonce, by_name = Middleman("by nonce"), Middleman("by name")
    for middleman, vary in ((by_nonce, _other_nonces), (by_name, _other_names(by_name))):
        with pytest.raises(BadMessage, match="promised"):
            _attack(middleman, vary)
        with pytest.raises(ValueError, match="no digits before"):
            _ = middleman.victim.digits


def test_without_the_commitment_the_middleman_would_find_equal_digits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mistake put back on purpose: it shows that the search above is a real one."""
    monkeypatch.setattr(invite, "DIGITS_CHARS", 3)
    monkeypatch.setattr(invite, "commitment", _commits_to_nothing)
    assert _attack(Middleman("by nonce"), _other_nonces)


def test_a_commitment_to_the_nonce_alone_would_leave_the_names_to_search_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mistake put back on purpose: all that is revealed must be promised, for all of it is in the digits."""
    monkeypatch.setattr(invite, "DIGITS_CHARS", 3)
    monkeypatch.setattr(invite, "commitment", _commits_to_the_nonce)
    by_nonce, by_name = Middleman("by nonce"), Middleman("by name")
    with pytest.raises(BadMessage, match="promised"):
        _attack(by_nonce, _other_nonces)
    assert _attack(by_name, _other_names(by_name))


def test_a_middleman_cannot_choose_its_join_after_it_knows_the_inviters_nonce() -> None:
    """The other order: the victim's digits first, then a join for the true session that gives the same."""
    middleman = Middleman("other order")
    middleman.victim.open_offer(middleman.mine.offer())
    middleman.mine.open_join(middleman.victim.join())
    middleman.victim.open_reveal(middleman.mine.reveal())
    middleman.posing.open_offer(middleman.true.offer())
    # Before its join the offer says nothing of what is revealed: two that promise the same length look the same.
    offered = body_of(
        InviteSlot.OFFER,
        InviteKeys(middleman.true.code).open(InviteSlot.OFFER, middleman.true.offer()),
        OfferBody,
    )
    assert middleman.true._revealed not in offered.commitment + middleman.true.offer()
    with pytest.raises(ValueError, match="before a newcomer"):
        middleman.true.reveal()
    middleman.true.open_join(middleman.posing.join())
    for n in range(3):
        other = a_joiner(middleman.true.code, f"another join {n}")
        other.open_offer(middleman.true.offer())
        with pytest.raises(ValueError, match="has its newcomer"):
            middleman.true.open_join(other.join())


def test_a_middleman_who_does_not_search_has_equal_digits_by_chance_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(invite, "DIGITS_CHARS", 1)
    rounds = 300
    equal = 0
    for n in range(rounds):
        middleman = Middleman(f"chance {n}")
        middleman.wanted()
        middleman.victim.open_offer(middleman.mine.offer())
        middleman.mine.open_join(middleman.victim.join())
        middleman.victim.open_reveal(middleman.mine.reveal())
        equal += middleman.true.check(middleman.victim.digits)
    # One in ten with one digit (four standard deviations to either side); one in a million with six.
    assert 9 < equal < 51


# A relay that replays, swaps, and reads along.


def test_a_relay_that_replays_or_swaps_messages_learns_nothing_and_is_noticed() -> None:
    sessions = [whole(f"session {n}", name="a name to look for", system="a system too") for n in range(2)]
    everything = b"".join(message for pairing in sessions for message in pairing.messages.values())
    for secret in (
        b"a name to look for",
        b"a system too",
        SENDER,
        VAULT,
        sessions[0].inviter.code.secret.to_bytes(),
        sessions[0].joiner.digits.encode(),
    ):
        assert secret not in everything
    for victim, other in (sessions, reversed(sessions)):
        seed = f"session {sessions.index(victim)}"
        for slot in ("offer", "join", "reveal", "welcome", "done", "end"):
            for name, message in [*victim.messages.items(), *other.messages.items()]:
                if message == victim.messages[slot]:
                    continue
                with pytest.raises(BadMessage):
                    _read(seed, slot, message)
                assert name in victim.messages


def _read(seed: str, slot: str, message: bytes) -> object:
    """What the side of the session that waits for this slot makes of the message."""
    names = {"name": "a name to look for", "system": "a system too"}
    inviter = an_inviter(f"inviter {seed}", **names)
    joiner = a_joiner(inviter.code, f"joiner {seed}", **names)
    if slot == "offer":
        return joiner.open_offer(message)
    joiner.open_offer(inviter.offer())
    if slot == "end":
        return joiner.open_end(message)
    if slot == "join":
        return inviter.open_join(message)
    inviter.open_join(joiner.join())
    if slot == "reveal":
        return joiner.open_reveal(message)
    joiner.open_reveal(inviter.reveal())
    return inviter.open_done(message) if slot == "done" else joiner.open_welcome(message)


def test_a_relay_that_changes_any_earlier_message_changes_the_digits() -> None:
    pairing = shown()
    keys = pairing.inviter._keys
    messages = [pairing.messages[slot] for slot in ("offer", "join", "reveal")]
    digits = {keys.digits(keys.transcript(*messages), 6)}
    for n in range(3):
        changed = list(messages)
        changed[n] = changed[n][:-1] + bytes([changed[n][-1] ^ 1])
        digits.add(keys.digits(keys.transcript(*changed), 6))
    # Bytes that move over a message's boundary are another transcript too.
    moved = [messages[0] + messages[1][:1], messages[1][1:], messages[2]]
    digits.add(keys.digits(keys.transcript(*moved), 6))
    assert len(digits) == 5


def test_the_lengths_of_messages_tell_nothing_of_names() -> None:
    short, long = whole("short", name="a", system="b"), whole("long", name="a" * 60, system="b" * 24)
    for slot in ("offer", "reveal", "welcome", "end", "done"):
        assert len(short.messages[slot]) == len(long.messages[slot])
    longest = whole("longest", name="\U0001f4bb" * 200, system="\U0001f4bb" * 200)
    assert max(map(len, longest.messages.values())) <= 4096


def test_a_join_for_one_vault_is_none_for_another() -> None:
    """The same secret and key under another vault's id: nothing fits, from the mailbox on."""
    inviter = an_inviter()
    elsewhere = InviteCode(fixed("another vault", 16), inviter.code.secret, inviter.code.exchange, URL)
    assert elsewhere.mailbox != inviter.code.mailbox
    assert elsewhere.access != inviter.code.access
    joiner = a_joiner(elsewhere)
    with pytest.raises(BadMessage):
        joiner.open_offer(inviter.offer())
    joiner.open_offer(InviteKeys(elsewhere).seal(InviteSlot.OFFER, content_of(OfferBody(bytes(32), "desk"))))
    with pytest.raises(BadJoin):
        inviter.open_join(joiner.join())
