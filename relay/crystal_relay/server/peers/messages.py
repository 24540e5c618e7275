"""What one relay process says to another, and how the other knows that it was one.

    POST /v2/peers/heard
    Authorization: Crystal-Peer <HMAC-SHA256 of the body, hex>

    {"origin", "to", "url", "sequence", "first", "last", "groups", "forget", "forget_all", "goodbye"}

The key is `r/secret/peers` in the store: a reader of that could read and write everything anyway. The message names
whom it is for (names are random and new at each start) and has a number of its own, so that one that was overheard is of
no use, neither there again nor anywhere else. The answer holds an HMAC over the request's: something else that happens
to listen at the address cannot pass for having heard.

Vault ids and times of writes can be read on the way, no key and no content.
"""

import hmac
from typing import Annotated

import msgspec

from crystal_relay.errors import BadRequest, Unauthorized
from crystal_relay.limits import KEY_CHARS_MAX, KIB

PATH = "/v2/peers/heard"
BODY_BYTES_MAX = 64 * KIB
GROUPS_BYTES_MAX = 40 * KIB
"""Of the groups in one message as JSON; the rest is room for the others."""
FORGET_MAX = 256
"""Vaults to forget in one message; beyond, everything is forgotten."""
URL_CHARS_MAX = 2048
AUTHORIZATION = "Crystal-Peer "
_NUMBER_MAX = 10**18 - 1
_NEWS = b"crystal-relay peers 1: news\n"
_HEARD = b"crystal-relay peers 1: heard\n"

Number = Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)]
ProcessName = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$", min_length=16, max_length=16)]
Vault = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$", min_length=32, max_length=32)]
Group = Annotated[str, msgspec.Meta(max_length=KEY_CHARS_MAX)]
Url = Annotated[str, msgspec.Meta(max_length=URL_CHARS_MAX)]


class News(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message. Unknown members are skipped: the processes of one store are not updated in one instant."""

    origin: ProcessName
    to: ProcessName
    sequence: Number
    """Grows with each message of `origin` to `to`."""
    first: Number = 1
    """`first` to `last`: the numbers of the writes this is about. None: `first` is `last` + 1."""
    last: Number = 0
    url: Url = ""
    """Where `origin` can be told things. Empty: it serves nobody and wrote nothing (an operator's command)."""
    groups: list[tuple[Group, Number]] = []
    """For each group of keys that was written to, the last of the writes. See `crystal_relay.notify`."""
    forget: Annotated[list[Vault], msgspec.Meta(max_length=FORGET_MAX)] = []
    """Vaults whose credentials changed."""
    forget_all: bool = False
    goodbye: bool = False
    """`origin` stops; this is its last message."""


class Heard(msgspec.Struct, frozen=True):
    """The answer."""

    heard: str


def sign(secret: bytes, body: bytes) -> str:
    """The message's authentication code, in hex."""
    return hmac.new(secret, _NEWS + body, "sha256").hexdigest()


def answer(secret: bytes, code: str) -> str:
    """What only a process with the secret can answer to a message with this code."""
    return hmac.new(secret, _HEARD + code.encode("ascii"), "sha256").hexdigest()


def read(secret: bytes, authorization: str | None, body: bytes) -> tuple[News, str]:
    """A message and its code. Raises Unauthorized, BadRequest."""
    code = (authorization or "").removeprefix(AUTHORIZATION)
    # §R10.1-1
    if authorization == code or not hmac.compare_digest(sign(secret, body).encode(), code.encode()):
        raise Unauthorized("the relay does not know these credentials")
    try:
        return msgspec.json.decode(body, type=News), code
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadRequest("not a message between relay processes") from None
