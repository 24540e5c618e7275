"""The JSON that relay and client exchange.

Requests are parsed strictly: unknown members are refused. Unknown members of replies are skipped, so that a newer relay may
send more. No reply contains a token, a secret or a hash of one.
"""

import re
from enum import Enum
from typing import Annotated, Any, TypeVar

import msgspec

from crystal_relay import errors
from crystal_relay.errors import UNDECODABLE, InviteOver, RelayError, TooManyRequests
from crystal_relay.invites import InviteState
from crystal_relay.keys import vault_prefix
from crystal_relay.limits import (
    BATCH_OBJECT_BYTES_MAX,
    BATCH_OBJECTS_MAX,
    BLOB_BYTES_MAX,
    CONDEMNED_KEYS_MAX,
    FOUNDING_ROOT_BYTES_MAX,
    FOUNDING_ROOTS_MAX,
    KEY_CHARS_MAX,
    SHORT_INVITE_BYTES_MAX,
    VAULT_DEVICES_MAX,
)
from crystal_relay.tokens import Preset

SERVICE = "crystal-relay"
V1_SERVICE = "memory-crystal-relay"
"""The service name of a relay that also serves the published prototype, whose devices check it."""
V1_MODE = "ephemeral"
PROTOCOL = 2
"""The version in the routes (`/v2/…`)."""
REQUEST_JSON_BYTES_MAX = 4096
ERROR_JSON_BYTES_MAX = 16 * 1024
"""Bytes of an error's body that a client reads."""
_SAID_CHARS_MAX = 300
"""Characters of each string in it that a client shows."""
_WHOLE_SECONDS = re.compile(r"[0-9]{1,5}\Z")


def _hex(digits: int, description: str) -> msgspec.Meta:
    # The pattern alone would let a trailing newline pass.
    return msgspec.Meta(
        pattern=f"^[0-9a-f]{{{digits}}}$", min_length=digits, max_length=digits, description=description
    )


VaultId = Annotated[str, _hex(32, "A vault's id: 16 bytes in lower-case hex.")]
DeviceId = Annotated[str, _hex(32, "A device's id: 16 bytes in lower-case hex.")]
PlaceId = Annotated[str, _hex(32, "Where a short invite lies: 16 bytes in lower-case hex.")]
MailboxId = Annotated[str, _hex(32, "An invite's mailbox: 16 bytes in lower-case hex.")]
Hash = Annotated[str, _hex(64, "A SHA-256 in lower-case hex.")]
BlobKey = Annotated[
    str,
    msgspec.Meta(
        pattern="^blob/[a-z0-9._-]*[a-z0-9_-][a-z0-9._-]*$",
        min_length=len("blob/") + 1,
        max_length=KEY_CHARS_MAX - len(vault_prefix("0" * 32)),
        description="A blob's key within its vault.",
    ),
]
ObjectKey = Annotated[
    str,
    msgspec.Meta(
        pattern="^[a-z0-9._/-]+$",
        min_length=1,
        max_length=KEY_CHARS_MAX - len(vault_prefix("0" * 32)),
        description="A key within its vault, or the beginning of some.",
    ),
]
BlobSize = Annotated[int, msgspec.Meta(ge=0, le=BLOB_BYTES_MAX, description="Bytes.")]


RootEntry = Annotated[
    str,
    msgspec.Meta(
        pattern="^[A-Za-z0-9+/]+={0,2}$",
        min_length=4,
        max_length=FOUNDING_ROOT_BYTES_MAX // 3 * 4,
        description="A root's entry in the device log without its body, in base64.",
    ),
]


class RootProof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Proof that the sender has the vault's root. `admin`: the first root's admin key; `roots`: the entries of all later
    roots; `signature`: the newest one's."""

    admin: Annotated[str, _hex(64, "An Ed25519 public key in lower-case hex. The vault's id is its hash.")]
    roots: Annotated[list[RootEntry], msgspec.Meta(max_length=FOUNDING_ROOTS_MAX)]
    signature: Annotated[str, _hex(128, "An Ed25519 signature in lower-case hex.")]


class VaultCreation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Create a vault with its first device, whose token gets the preset `lead`. Clients of before there were proofs send
    none."""

    vault: VaultId
    recovery_hash: Hash
    device: DeviceId
    token_hash: Hash
    proof: RootProof | None = None


class DeletionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Have the vault deleted at `due`, in Unix seconds. `proof`: of the root, for the deletion of this number."""

    due: Annotated[int, msgspec.Meta(ge=0, le=1 << 40, description="Unix seconds.")]
    proof: RootProof


class TokenRegistration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Register a device's token."""

    device: DeviceId
    token_hash: Hash
    preset: Preset


class Devices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All devices of the vault: the tokens of any others are revoked, and for a device in `tokens` all except that one. With
    `leads`, only these devices lead."""

    devices: Annotated[list[DeviceId], msgspec.Meta(min_length=1, max_length=VAULT_DEVICES_MAX)]  # §R4.4-1
    tokens: Annotated[dict[DeviceId, Hash], msgspec.Meta(max_length=VAULT_DEVICES_MAX)] = {}
    leads: Annotated[list[DeviceId], msgspec.Meta(max_length=VAULT_DEVICES_MAX)] | None = None


class RecoveryReplacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hash of the new recovery secret."""

    recovery_hash: Hash


class InviteCreation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Open a mailbox to the holder of the secret with this hash."""

    mailbox: MailboxId
    access_hash: Hash


class ShortInviteCreation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keep the sealed bytes of an invite at a place, while it is open."""

    place: PlaceId
    sealed: Annotated[
        bytes, msgspec.Meta(min_length=1, max_length=SHORT_INVITE_BYTES_MAX, description="Base64.")
    ]


class Condemnation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Objects to delete: either `keys`, or all keys that begin with `prefix`, up to `through`."""

    keys: Annotated[list[ObjectKey], msgspec.Meta(min_length=1, max_length=CONDEMNED_KEYS_MAX)] | None = None
    prefix: ObjectKey | None = None
    through: ObjectKey | None = None


class CondemnedReply(msgspec.Struct, frozen=True):
    """The relay has recorded the condemnation under this id, and will carry it out."""

    id: str


class Direction(Enum):
    """Direction of a transfer, seen from the device."""

    PUT = "put"
    GET = "get"


class TransferRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for a signed request to the bucket. `size` and `md5` describe the body of a put."""

    key: BlobKey
    direction: Direction
    size: BlobSize = 0
    md5: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{32})?$", max_length=32)] = ""


class TransferDone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Report a direct put: does the object exist, with this receipt?"""

    key: BlobKey
    size: BlobSize
    receipt: Annotated[str, msgspec.Meta(pattern="^[0-9a-zA-Z._-]{1,128}$", min_length=1, max_length=128)]


class TransferReply(msgspec.Struct, frozen=True):
    """A signed request to the bucket (`direct`), or the reply that the object goes through the relay.

    `offered` is false if the relay never signs requests in this direction. Address and headers are secrets.
    """

    direct: bool
    offered: bool
    method: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    expires_seconds: int = 0
    size: int = 0
    """Of the whole object."""
    receipt: str = ""

    def __repr__(self) -> str:
        return f"TransferReply(direct={self.direct}, offered={self.offered}, size={self.size})"


class TransferDoneReply(msgspec.Struct, frozen=True):
    """The object is durable in the bucket, and is the one that was put."""

    size: int


class ListedObject(msgspec.Struct, frozen=True):
    """A key within the vault and the size of its object in bytes."""

    key: str
    size: int


class ListReply(msgspec.Struct, frozen=True):
    """A page of keys in byte order. `more` says that there may be further ones."""

    entries: list[ListedObject]
    more: bool


class KeysRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which objects to read, and how large each may be. A larger one is not sent."""

    keys: Annotated[list[ObjectKey], msgspec.Meta(min_length=1, max_length=BATCH_OBJECTS_MAX)]
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=BATCH_OBJECT_BYTES_MAX)]


class WrittenReply(msgspec.Struct, frozen=True):
    """For each object, whether it was created; false: its key is taken."""

    created: list[bool]


class WaitReply(msgspec.Struct, frozen=True):
    """The token for the next wait. It differs from the one sent if something may have been written."""

    token: str


class VaultReply(msgspec.Struct, frozen=True):
    """The created vault."""

    vault: str


class TokenReply(msgspec.Struct, frozen=True):
    """The device whose token was registered, or whose tokens were revoked."""

    device: str


class DevicesReply(msgspec.Struct, frozen=True):
    """How many tokens this request revoked."""

    shut_out: int


class RecoveryReply(msgspec.Struct, frozen=True):
    """The number of the current recovery secret: how often it was replaced."""

    number: int


class DeletionReply(msgspec.Struct, frozen=True):
    """`number`: how often the vault's deletion was asked for. `asked`, `due`: of the one that waits, in Unix seconds; 0 if none
    does. `seconds_min`, `seconds_max`: the waiting times that the relay accepts."""

    number: int
    asked: int
    due: int
    seconds_min: int
    seconds_max: int


class InviteReply(msgspec.Struct, frozen=True):
    """The state of an invite; seconds until it expires, seconds since its end."""

    state: InviteState
    expires_in: int
    expired_ago: int


class SealedInviteReply(msgspec.Struct, frozen=True):
    """The sealed bytes of an invite, as base64; seconds until it expires."""

    sealed: Annotated[bytes, msgspec.Meta(max_length=SHORT_INVITE_BYTES_MAX, description="Base64.")]
    expires_in: int


class HealthReply(msgspec.Struct, frozen=True):
    """`ok`, and the relay's protocol version. `mode` is set only if the prototype's routes are served."""

    ok: bool
    service: str
    protocol: int
    version: str
    mode: str | msgspec.UnsetType = msgspec.UNSET


class StateReply(msgspec.Struct, frozen=True):
    """The state asked about holds; otherwise the reply is an error. `full`: why new objects are refused, `disk` or `cap`."""

    ok: bool
    full: str | msgspec.UnsetType = msgspec.UNSET


class ErrorReply(msgspec.Struct, frozen=True):
    """An error: a stable code, a sentence for people, and a hint, which may be empty."""

    error: str
    message: str
    hint: str = ""
    seconds_ago: int | msgspec.UnsetType = msgspec.UNSET
    """Seconds since the end of an invite."""


Reply = TypeVar("Reply", bound=msgspec.Struct)

_DECODERS: dict[type[msgspec.Struct], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (
        CondemnedReply,
        DeletionReply,
        DevicesReply,
        ErrorReply,
        HealthReply,
        InviteReply,
        ListReply,
        RecoveryReply,
        SealedInviteReply,
        TokenReply,
        TransferDoneReply,
        TransferReply,
        VaultReply,
        WaitReply,
        WrittenReply,
    )
}
"""Made at import: when two threads decode a type for the first time at once, msgspec 0.22 crashes the process."""


def reply_of(body: bytes, kind: type[Reply]) -> Reply:
    """A reply's body as a ``kind`` of this module. Raises one of ``UNDECODABLE``."""
    reply: Reply = _DECODERS[kind].decode(body)
    return reply


_BY_CODE: dict[str, type[RelayError]] = {
    kind.code: kind
    for kind in (
        errors.RelayError,
        errors.StoreUnavailable,
        errors.NoSuchRoute,
        errors.Busy,
        errors.TooManyRequests,
        errors.StoreFull,
        errors.QuotaExceeded,
        errors.RelayAtCap,
        errors.StoreDamaged,
        errors.Unauthorized,
        errors.RecoveryReplaced,
        errors.Forbidden,
        errors.VaultDropped,
        errors.VaultDeleted,
        errors.VaultSuspended,
        errors.VaultReadOnly,
        errors.EnrollmentClosed,
        errors.InviteOver,
        errors.InviteExpired,
        errors.InviteUsed,
        errors.InviteClosed,
        errors.TooManyInvites,
        errors.WrongNumber,
        errors.NotFound,
        errors.AlreadyExists,
        errors.BadRequest,
        errors.SizeMismatch,
        errors.LengthRequired,
        errors.BadRange,
        errors.TooSlow,
        errors.BodyTooLarge,
    )
}


def error_of_reply(status: int, body: bytes, *, retry_after: str | None = None) -> RelayError:
    """The error for a response with this status, body and Retry-After header.

    The relay's error code decides, or the status if there is none (a proxy answered). Anything else is StoreUnavailable, so
    that it is retried and never taken for success.
    """
    error = _error_of_reply(status, body)
    if isinstance(error, TooManyRequests) and retry_after and _WHOLE_SECONDS.match(retry_after):
        error.retry_after = float(retry_after)
    return error


def _error_of_reply(status: int, body: bytes) -> RelayError:
    try:
        reply = reply_of(body, ErrorReply)
    except UNDECODABLE:
        return _error_of_status(status)
    kind = _BY_CODE.get(reply.error)
    if kind is None or kind.status != status:  # §R8-2
        return _error_of_status(status)
    if kind is RelayError:
        return errors.StoreUnavailable(f"the relay failed: {_shown(reply.message)}")
    error = kind(_shown(reply.message), hint=_shown(reply.hint) or None)
    if isinstance(error, InviteOver) and isinstance(reply.seconds_ago, int):
        error.seconds_ago = max(0, reply.seconds_ago)
    return error


def _shown(text: str) -> str:
    """The relay's text, shortened and without control characters for a terminal."""
    return "".join(char if char.isprintable() else " " for char in text[:_SAID_CHARS_MAX])


def _error_of_status(status: int) -> RelayError:
    said = f"the relay's address answered with HTTP status {status}"
    match status:
        case 401:
            return errors.Unauthorized(said)
        case 403:
            return errors.Forbidden(said)
        case 413:
            return errors.BodyTooLarge(said)
        case 429:
            return errors.TooManyRequests(said)
        case 503:
            return errors.Busy(said)
        case 507:
            return errors.StoreFull(said)
        case 408 | 500 | 502 | 504:
            return errors.StoreUnavailable(said)
        case _:
            # 404 and 412 without the relay's own words must not pass for "no such object" and "already there".
            return errors.BadReply(said)
