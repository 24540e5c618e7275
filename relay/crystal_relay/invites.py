"""Invites, as relay and client both see them: a mailbox of six slots in a vault, open for ten minutes and for one newcomer.

    open --close(used)-------> used
    open --close(withdrawn)--> withdrawn
    open --close(burnt)------> burnt
    open --ten minutes-------> expired --close(...)--> used, withdrawn, burnt

While it is open, the relay may keep the sealed bytes of its text at a place of 16 bytes, for somebody who was given a short
invite: to be fetched by place, without credentials.

Time is the relay's. The state of an invite is kept for a day. The inviting device has a token; the newcomer has a credential
for this mailbox alone, `Authorization: Crystal-Invite <mailbox>.<access secret, hex>`; the relay keeps the
secret's SHA-256.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from crystal_relay.errors import BadRequest
from crystal_relay.keys import check_vault, vault_prefix
from crystal_relay.tokens import DEVICE, SECRET_BYTES

CREDENTIAL = "Crystal-Invite"


class InviteState(StrEnum):
    """State of an invite; the module's docstring has the transitions."""

    OPEN = "open"
    USED = "used"
    WITHDRAWN = "withdrawn"
    BURNT = "burnt"
    EXPIRED = "expired"


class CloseReason(StrEnum):
    """Why the inviting device closes an invite."""

    USED = "used"
    WITHDRAWN = "withdrawn"
    BURNT = "burnt"


class MailboxSlot(StrEnum):
    """The slots of a mailbox. Each is written once."""

    OFFER = "offer"
    JOIN = "join"
    REVEAL = "reveal"
    WELCOME = "welcome"
    END = "end"
    DONE = "done"


NEWCOMER_SLOTS = frozenset({MailboxSlot.JOIN, MailboxSlot.DONE})
"""Written only by the newcomer; the others only by the inviting device."""


@dataclass(frozen=True, slots=True)
class InviteInfo:
    """State of an invite, with seconds by the relay's clock. One of the two times is 0."""

    state: InviteState
    expires_in: int
    """Seconds until it expires."""
    expired_ago: int
    """Seconds since its end."""


def check_mailbox(mailbox: bytes | str) -> str:
    """A mailbox's name as 32 lower-case hex digits. Raises BadRequest for anything else."""
    text = mailbox if isinstance(mailbox, str) else mailbox.hex()
    if DEVICE.match(text) is None:
        raise BadRequest("a mailbox's name is 32 lower-case hex digits")
    return text


def check_place(place: bytes | str) -> str:
    """A short invite's place as 32 lower-case hex digits. Raises BadRequest for anything else."""
    text = place if isinstance(place, str) else place.hex()
    if DEVICE.match(text) is None:
        raise BadRequest("a short invite's place is 32 lower-case hex digits")
    return text


def mailbox_prefix(vault: bytes | str, mailbox: bytes | str) -> str:
    """The prefix of the full keys of a mailbox's slots."""
    name = vault if isinstance(vault, str) else vault.hex()
    return f"{vault_prefix(check_vault(name))}invite/{check_mailbox(mailbox)}/"


def slot_key(vault: bytes | str, mailbox: bytes | str, slot: MailboxSlot | str) -> str:
    """A slot's full key, for `HttpStore`'s `put_new`, `get`, `wait`."""
    return mailbox_prefix(vault, mailbox) + MailboxSlot(slot).value


def access_hash(access: bytes) -> str:
    """The hash of an access secret, which is all that the relay keeps. Raises BadRequest for another size."""
    return hashlib.sha256(_checked(access)).hexdigest()  # §R2-2


def invite_credential(mailbox: bytes | str, access: bytes) -> str:
    """The newcomer's Authorization header. A secret."""
    return f"{CREDENTIAL} {check_mailbox(mailbox)}.{_checked(access).hex()}"


def _checked(access: bytes) -> bytes:
    if len(access) != SECRET_BYTES:
        raise BadRequest(f"an invite's access secret is {SECRET_BYTES} bytes")
    return access
