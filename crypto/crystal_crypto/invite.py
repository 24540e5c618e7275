"""The two sides of an invite pairing, over bytes: no clock, no network, no waiting.

    Inviter                          mailbox                         Joiner
    WAITING    -- offer ---------------->  ------------------------> open_offer   (promise of what `reveal` says)
    open_join  <------------------------   <---------------- join -- OFFERED      (its keys, its nonce)
    JOINED
    reveal     ------------------------->  ------------------------> open_reveal  (the promise is compared)
    REVEALED       the person reads six digits here and types them there          REVEALED
    check: right
    CONFIRMED      the device log gets the newcomer
    welcome    ------------------------->  ------------------------> open_welcome
    WELCOMED                                                         WELCOMED
    open_done  <------------------------   <---------------- done -- (accepted or refused)
               -- end, at any time ------>  -----------------------> open_end

Rules:
- The inviter commits to all of `reveal` before it sees the newcomer's nonce, and the newcomer sends its nonce before it sees
  the inviter's: a middleman has to fix its part of both sessions before it learns what the digits depend on.
- `reveal` goes to one newcomer only: once a `join` was opened, no other is.
- The welcome comes after the right digits; after three wrong tries no digits are accepted any more.
- Each side is made for one pairing. Calls out of order are mistakes of the caller: ValueError.
"""

import hmac
import os
from dataclasses import dataclass
from enum import IntEnum

from crystal_crypto.errors import BadCode, BadJoin, BadMessage, Malformed
from crystal_crypto.identity import DeviceIdentity, ExchangeKey, ExchangePublic, Random, VerifyKey
from crystal_crypto.invite_code import InviteCode, InviteSecret
from crystal_crypto.invite_messages import (
    DoneBody,
    EndBody,
    EndReason,
    InviteKeys,
    InviteSlot,
    JoinBody,
    OfferBody,
    RevealBody,
    WelcomeBody,
    body_of,
    check_frame,
    commitment,
    content_of,
)
from crystal_crypto.limits import (
    DEVICE_BYTES,
    DIGITS_CHARS,
    DIGITS_TRIES_MAX,
    HASH_BYTES,
    INVITE_NAME_CHARS_MAX,
    INVITE_NONCE_BYTES,
    KEY_BYTES,
)
from crystal_crypto.secret import Secret, exactly

__all__ = ["EndReason", "InviteSlot", "Inviter", "InviterInfo", "Joiner", "Newcomer", "OfferInfo", "Welcome"]


@dataclass(frozen=True, slots=True)
class Newcomer:
    """The device that wants to join. ``token_hash``: 64 hex digits, the hash of its token that the relay keeps."""

    device: bytes
    signing: VerifyKey
    exchange: ExchangePublic
    name: str
    system: str
    token_hash: str


@dataclass(frozen=True, slots=True)
class OfferInfo:
    """What a newcomer may show while it waits. Unproven until the digits were typed."""

    name: str


@dataclass(frozen=True, slots=True)
class InviterInfo:
    """The inviting device, as the digits confirm it."""

    device: bytes
    name: str
    system: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The slot of the newcomer's entry in the device log, the log's head after it, and how often the root was replaced."""

    slot: int
    entry_hash: bytes
    head: bytes
    root_number: int


class InviteStage(IntEnum):
    """How far a side has come; see the drawing above."""

    WAITING = 0
    OFFERED = 1
    JOINED = 2
    REVEALED = 3
    CONFIRMED = 4
    WELCOMED = 5


class Inviter(Secret):
    """The inviting device. Make it with `begin`; `code` is what its person shows."""

    def __init__(
        self, code: InviteCode, ephemeral: ExchangeKey, nonce: bytes, *, device: bytes, name: str, system: str
    ) -> None:
        """Raises Malformed for a wrong length, a name that is too long, or a code of another ephemeral key."""
        if code.exchange != ephemeral.public:
            raise Malformed("the invite's code was made with another ephemeral key")
        reveal = RevealBody(
            exactly(nonce, INVITE_NONCE_BYTES, "an invite's nonce"),
            exactly(device, DEVICE_BYTES, "a device id"),
            _name(name),
            _name(system),
        )
        self.code = code
        self.stage = InviteStage.WAITING
        self.tries_left = DIGITS_TRIES_MAX
        self._ephemeral = ephemeral
        self._revealed = content_of(reveal)
        self._first = InviteKeys(code)
        self._offer = self._first.seal(
            InviteSlot.OFFER, content_of(OfferBody(commitment(self._revealed), reveal.name))
        )
        self._sealed: dict[InviteSlot, tuple[bytes, bytes]] = {}

    @classmethod
    def begin(
        cls, *, vault: bytes, url: str, device: bytes, name: str, system: str, random: Random = os.urandom
    ) -> "Inviter":
        """A fresh invite. Raises TooLarge or BadCode for an address that an invite cannot hold."""
        ephemeral = ExchangeKey.generate(random)
        code = InviteCode(vault, InviteSecret.generate(random), ephemeral.public, url)
        return cls(code, ephemeral, random(INVITE_NONCE_BYTES), device=device, name=name, system=system)

    def offer(self) -> bytes:
        """The first message; put it before the code is shown."""
        return self._offer

    def open_join(self, data: bytes) -> Newcomer:
        """Raises BadJoin. Once a join was opened, no other is."""
        if self.stage is not InviteStage.WAITING:
            raise ValueError("this invite has its newcomer")  # §21.4-1
        try:
            check_frame(InviteSlot.JOIN, data, KEY_BYTES)
            joiner = data[1 : 1 + KEY_BYTES]
            shared = self._ephemeral.exchange(ExchangePublic.from_bytes(joiner))
            keys = InviteKeys(self.code, shared=shared, joiner=joiner)
            body = body_of(InviteSlot.JOIN, keys.open(InviteSlot.JOIN, data, skip=KEY_BYTES), JoinBody)
            newcomer = _newcomer(body, self._ephemeral)
        except (BadMessage, Malformed) as error:
            raise BadJoin(str(error), hint=error.hint or None) from None
        self._keys = keys
        self._reveal = keys.seal(InviteSlot.REVEAL, self._revealed)
        self._transcript = keys.transcript(self._offer, data, self._reveal)
        self.stage = InviteStage.JOINED
        return newcomer

    def reveal(self) -> bytes:
        """The answer to the join that was opened."""
        if self.stage < InviteStage.JOINED:
            raise ValueError("nothing is revealed before a newcomer has joined")
        self.stage = max(self.stage, InviteStage.REVEALED)
        return self._reveal

    def check(self, digits: str) -> bool:
        """Whether the person typed the newcomer's six digits. Input that is not six digits does not count as a try."""
        if self.stage not in (InviteStage.REVEALED, InviteStage.CONFIRMED):
            raise ValueError("there are no digits to check")
        typed = "".join(char for char in digits if not char.isspace() and char != "-")
        if len(typed) != DIGITS_CHARS or not (typed.isascii() and typed.isdigit()):
            return False
        if self.tries_left == 0:  # §21.4-3
            return False
        right = hmac.compare_digest(typed, self._keys.digits(self._transcript, DIGITS_CHARS))  # §21.4-3
        if right:
            self.stage = InviteStage.CONFIRMED
        else:
            self.tries_left -= 1
        return right

    def welcome(self, slot: int, entry_hash: bytes, head: bytes, root_number: int) -> bytes:
        """Tells the newcomer that it was added, once the device log and the relay know it."""
        if self.stage < InviteStage.CONFIRMED:  # §21.4-4
            raise ValueError("nobody is welcomed before the digits were right")
        body = WelcomeBody(
            slot,
            exactly(entry_hash, HASH_BYTES, "an entry's hash"),
            exactly(head, HASH_BYTES, "a log head"),
            root_number,
        )
        message = _once(self._sealed, self._keys, InviteSlot.WELCOME, content_of(body), self._transcript)
        self.stage = InviteStage.WELCOMED
        return message

    def end(self, reason: EndReason) -> bytes:
        """Tells why the pairing ends. Only one reason can be given."""
        return _once(self._sealed, self._first, InviteSlot.END, content_of(EndBody(reason)))

    def open_done(self, data: bytes) -> bool:
        """Whether the newcomer took the welcome. Raises BadMessage."""
        if self.stage < InviteStage.REVEALED:
            raise ValueError("there is nothing that a newcomer could have taken")
        content = self._keys.open(InviteSlot.DONE, data, transcript=self._transcript)
        return body_of(InviteSlot.DONE, content, DoneBody).accepted

    def _material(self) -> bytes:
        return self._revealed + self._ephemeral.to_bytes()


class Joiner(Secret):
    """The device that has a code and wants to join. Make it with `begin`."""

    def __init__(
        self,
        code: InviteCode,
        identity: DeviceIdentity,
        *,
        name: str,
        system: str,
        token_hash: str,
        ephemeral: ExchangeKey,
        nonce: bytes,
    ) -> None:
        """Raises BadCode for a code with an unusable key, Malformed for a wrong length or a name that is too long."""
        try:
            shared = ephemeral.exchange(code.exchange)
        except Malformed:
            raise BadCode(
                "the invite holds a key that is of no use", hint="Make a new invite on the other device"
            ) from None
        self.code = code
        self.stage = InviteStage.WAITING
        self._ephemeral = ephemeral
        joiner = ephemeral.public.to_bytes()
        self._first = InviteKeys(code)
        self._keys = InviteKeys(code, shared=shared, joiner=joiner)
        body = JoinBody(
            identity.id,
            identity.signing.public.to_bytes(),
            identity.exchange.public.to_bytes(),
            _name(name),
            _name(system),
            _token_hash(token_hash),
            exactly(nonce, INVITE_NONCE_BYTES, "an invite's nonce"),
        )
        self._join = self._keys.seal(InviteSlot.JOIN, content_of(body), before=joiner)
        self._sealed: dict[InviteSlot, tuple[bytes, bytes]] = {}

    @classmethod
    def begin(
        cls,
        code: InviteCode,
        identity: DeviceIdentity,
        *,
        name: str,
        system: str,
        token_hash: str,
        random: Random = os.urandom,
    ) -> "Joiner":
        return cls(
            code,
            identity,
            name=name,
            system=system,
            token_hash=token_hash,
            ephemeral=ExchangeKey.generate(random),
            nonce=random(INVITE_NONCE_BYTES),
        )

    def open_offer(self, data: bytes) -> OfferInfo:
        """Raises BadMessage."""
        if self.stage is not InviteStage.WAITING:
            raise ValueError("the offer was opened before")
        body = body_of(InviteSlot.OFFER, self._first.open(InviteSlot.OFFER, data), OfferBody)
        self._offer, self._promise = bytes(data), body
        self.stage = InviteStage.OFFERED
        return OfferInfo(body.name)

    def join(self) -> bytes:
        """This device's keys and nonce; the same bytes at each call."""
        if self.stage < InviteStage.OFFERED:
            raise ValueError("the offer comes before the join")
        self.stage = max(self.stage, InviteStage.JOINED)
        return self._join

    def open_reveal(self, data: bytes) -> InviterInfo:
        """Raises BadMessage, also if the inviter does not reveal what its offer committed to."""
        if self.stage is not InviteStage.JOINED:
            raise ValueError("a reveal answers a join, once")
        content = self._keys.open(InviteSlot.REVEAL, data)
        if not hmac.compare_digest(commitment(content), self._promise.commitment):  # §21.4-2
            raise BadMessage(
                "the inviting device did not reveal what it had promised: somebody is in between"
            )
        body = body_of(InviteSlot.REVEAL, content, RevealBody)
        if body.name != self._promise.name:  # §21.4-2
            raise BadMessage("the inviting device changed its name in the middle of the pairing")
        self._transcript = self._keys.transcript(self._offer, self._join, data)
        self.stage = InviteStage.REVEALED
        return InviterInfo(body.device, body.name, body.system)

    @property
    def digits(self) -> str:
        """The six digits that the person types into the inviting device."""
        if self.stage < InviteStage.REVEALED:
            raise ValueError("there are no digits before the reveal")
        return self._keys.digits(self._transcript, DIGITS_CHARS)

    def open_welcome(self, data: bytes) -> Welcome:
        """Raises BadMessage."""
        if self.stage < InviteStage.REVEALED:
            raise ValueError("there is no welcome before the reveal")
        content = self._keys.open(InviteSlot.WELCOME, data, transcript=self._transcript)
        body = body_of(InviteSlot.WELCOME, content, WelcomeBody)
        self.stage = InviteStage.WELCOMED
        return Welcome(body.slot, body.entry_hash, body.head, body.root_number)

    def open_end(self, data: bytes) -> EndReason:
        """Why the inviter gave up. Raises BadMessage. Everyone with the code can write one: it is a reason to stop, not a
        proof."""
        return body_of(InviteSlot.END, self._first.open(InviteSlot.END, data), EndBody).reason

    def done(self, accepted: bool) -> bytes:
        """Tells the inviter how it ended. Only one answer can be given."""
        if self.stage < InviteStage.REVEALED:
            raise ValueError("there is nothing to answer before the reveal")
        return _once(
            self._sealed, self._keys, InviteSlot.DONE, content_of(DoneBody(accepted)), self._transcript
        )

    def _material(self) -> bytes:
        return self._ephemeral.to_bytes() + self._join


def _once(
    sealed: dict[InviteSlot, tuple[bytes, bytes]],
    keys: InviteKeys,
    slot: InviteSlot,
    content: bytes,
    transcript: bytes = b"",
) -> bytes:
    """Seals one content per slot: a second one would reuse the nonce. The same content gives the same bytes."""
    said, message = sealed.get(slot, (content, b""))
    if said != content:  # §21.2-3
        raise ValueError(f"`{slot.value}` was said already, and differently")
    message = message or keys.seal(slot, content, transcript=transcript)
    sealed[slot] = (content, message)
    return message


def _newcomer(body: JoinBody, probe: ExchangeKey) -> Newcomer:
    if body.device == bytes(DEVICE_BYTES):
        raise Malformed("a device's id must not be zero, which stands for the root")
    exchange = ExchangePublic.from_bytes(body.exchange)
    # §21.3-4
    probe.exchange(exchange)  # refuses keys of low order: nothing could be sealed to them later
    return Newcomer(
        device=body.device,
        signing=VerifyKey.from_bytes(body.signing),  # §21.3-4
        exchange=exchange,
        name=body.name,
        system=body.system,
        token_hash=body.token_hash.hex(),
    )


def _name(text: str) -> str:
    if len(text) > INVITE_NAME_CHARS_MAX:
        raise Malformed(f"a device's name is at most {INVITE_NAME_CHARS_MAX} characters, not {len(text)}")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise Malformed("a device's name must be text that UTF-8 can hold")
    return text


def _token_hash(text: str) -> bytes:
    try:
        return exactly(bytes.fromhex(text), HASH_BYTES, "a token's hash")
    except ValueError:
        raise Malformed("a token's hash must be 64 hex digits") from None
