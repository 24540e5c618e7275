"""Messages between relay processes, and their authentication.

    POST /v2/peers/heard
    Authorization: Crystal-Peer <HMAC-SHA256 of the body, hex>

    {"origin", "to", "url", "sequence", "first", "last", "groups", "forget", "forget_all", "goodbye"}

The key is `r/secret/peers` in the store: a reader of that could read and write everything anyway. The message names its
recipient (names are random and new at each start) and has a sequence number, so a recorded message cannot be replayed, to
the same process or to another. The answer contains an HMAC over the request's: another program at the address cannot
pretend to have heard it.

An eavesdropper can read vault ids and times of writes, but no key and no content.
"""

import hmac
from typing import Annotated

import msgspec

from crystal_relay.errors import UNDECODABLE, BadRequest, Unauthorized
from crystal_relay.limits import KEY_CHARS_MAX, KIB

PATH = "/v2/peers/heard"
BODY_BYTES_MAX = 64 * KIB
GROUPS_BYTES_MAX = 40 * KIB
"""Size of the groups in one message as JSON; the rest of the body is for the other members."""
FORGET_MAX = 256
"""Vaults to forget in one message; beyond that all are forgotten."""
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
    """One message. Unknown members are skipped: the processes of one store may run different versions."""

    origin: ProcessName
    to: ProcessName
    sequence: Number
    """Increases with each message from `origin` to `to`."""
    first: Number = 1
    """`first` to `last`: the numbers of the writes reported. For no writes `first` is `last` + 1."""
    last: Number = 0
    url: Url = ""
    """Where `origin` is reached. Empty: it is an operator's command, which serves no requests and reports no writes."""
    groups: list[tuple[Group, Number]] = []
    """For each group of keys that was written to, the number of the last write. See `crystal_relay.notify`."""
    forget: Annotated[list[Vault], msgspec.Meta(max_length=FORGET_MAX)] = []
    """Vaults whose credentials changed."""
    forget_all: bool = False
    goodbye: bool = False
    """`origin` is stopping; this is its last message."""


class Heard(msgspec.Struct, frozen=True):
    """The answer."""

    heard: str


def sign(secret: bytes, body: bytes) -> str:
    """The message's authentication code, in hex."""
    return hmac.new(secret, _NEWS + body, "sha256").hexdigest()


def answer(secret: bytes, code: str) -> str:
    """The authentication code of the answer to a message with this code, in hex."""
    return hmac.new(secret, _HEARD + code.encode("ascii"), "sha256").hexdigest()


def read(secret: bytes, authorization: str | None, body: bytes) -> tuple[News, str]:
    """Verify and parse a message; return it and its code. Raises Unauthorized, BadRequest."""
    code = (authorization or "").removeprefix(AUTHORIZATION)
    # §R10.1-1
    if authorization == code or not hmac.compare_digest(sign(secret, body).encode(), code.encode()):
        raise Unauthorized("the relay does not know these credentials")
    try:
        return msgspec.json.decode(body, type=News), code
    except UNDECODABLE:
        raise BadRequest("not a message between relay processes") from None
