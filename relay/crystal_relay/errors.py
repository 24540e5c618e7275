"""The errors of a store, the same for all implementations.

Every failure of a `Store` is one of these, so that callers decide by class and never by text. `code` is the error's name on
the wire, `status` its HTTP status; `exit_code` and `hint` are for programs that show it. Messages never contain a token, a
secret or the bytes of an object.
"""

from typing import ClassVar, Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not of the asked type. The last two are not its own: a text that is not UTF-8, and
arrays in arrays without end, also in a field that it would skip."""


class RelayError(Exception):
    """Base of all errors of this package."""

    exit_code: ClassVar[int] = 1
    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"
    hint: str = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint


class StoreUnavailable(RelayError):
    """The store cannot be reached, or failed temporarily. Whether the request took effect is unknown."""

    exit_code = 4
    status = 503
    code = "unavailable"
    hint = "Is the relay running, and is its address right? Nothing on this device is lost: try again later."


class Closed(StoreUnavailable):
    """The store is closed or closing. Nothing was done; retrying does not help."""

    code = "closed"
    hint = "The program is ending. Run the command again."


class BadReply(StoreUnavailable):
    """The answer is not that of a relay of this protocol (a captive portal, another server, a broken proxy)."""

    code = "bad-reply"
    hint = "Check that the relay's address points at a Crystal relay."


class NoSuchRoute(BadReply):
    """The relay has no such route: it is older, or another server. Not "no such object"."""

    status = 404
    code = "no-such-route"
    hint = "The relay may be older than this program: check its address, and ask its operator to upgrade it."


class UntrustedCertificate(StoreUnavailable):
    """The server shows a certificate that this machine does not accept. Nothing was sent."""

    code = "certificate"


class Busy(RelayError):
    """Overloaded, or another process holds a needed resource. Nothing was done; retry later."""

    exit_code = 4
    status = 503
    code = "busy"
    hint = "Try again in a moment."


class InUse(Busy):
    """Another process holds the store's directory, or listens on the port."""

    exit_code = 9
    code = "in-use"


class TooManyRequests(Busy):
    """The rate limit of the device or the address is exceeded. Nothing was done."""

    status = 429
    code = "too-many-requests"

    def __init__(self, message: str, *, retry_after: float = 1.0, hint: str | None = None) -> None:
        """`retry_after`: seconds until a request may succeed."""
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class Unusable(StoreUnavailable):
    """The store's directory cannot be used."""

    exit_code = 8
    code = "unusable"
    hint = "Check that the directory exists or can be created, and its permissions."


class StoreFull(RelayError):
    """No space for the object. Nothing was stored; reading still works."""

    exit_code = 8
    status = 507
    code = "full"
    hint = "Free space on the relay's disk."


class QuotaExceeded(StoreFull):
    """The vault has reached its quota. Other vaults are not affected."""

    code = "quota"
    hint = "Ask the relay's operator for a larger quota. Devices keep their data and send it later."


class RelayAtCap(StoreFull):
    """All vaults together have reached the bytes that the operator allows. Nothing was stored; reading still works."""

    code = "cap"
    hint = "Tell the relay's operator. Devices keep their data and send it later."


class StoreDamaged(RelayError):
    """The stored data is damaged or was changed by another program. Retrying does not help."""

    exit_code = 8
    status = 500
    code = "damaged"
    hint = "Restore the relay's directory from a backup; devices upload again what they still hold."


class Unauthorized(RelayError):
    """Missing, unknown or revoked credentials."""

    exit_code = 5
    status = 401
    code = "unauthorized"
    hint = "The relay does not know this device's token: it was revoked, or the relay lost it. `crystal doctor` says more."


class RecoveryReplaced(Unauthorized):
    """A recovery secret that has been replaced."""

    code = "recovery-replaced"
    hint = "Use the vault's newest recovery kit."


class Forbidden(RelayError):
    """Valid credentials without permission for this."""

    exit_code = 5
    status = 403
    code = "forbidden"
    hint = "This device's token does not allow that."


class VaultClosed(Forbidden):
    """The vault is closed to all of its devices. Base of the reasons."""


class VaultDropped(VaultClosed):
    """The operator has dropped the vault: it is closed, and deleted after a grace period."""

    code = "dropped"
    hint = "The relay's operator can restore it until then."


class VaultDeleted(VaultDropped):
    """The vault was deleted, or is being deleted, because its owner asked for it."""

    code = "deleted"
    hint = (
        "The memory on your devices is not affected. `crystal init --role core --relay URL --enroll-token -` on the Core "
        "registers the vault at a relay again."
    )


class VaultSuspended(VaultClosed):
    """The operator has suspended the vault: nothing in it can be read or written until he resumes it."""

    code = "suspended"
    hint = "Ask the relay's operator. What your devices hold is not affected."


class VaultReadOnly(Forbidden):
    """The operator has made the vault read-only. Nothing was stored or deleted; reading still works."""

    code = "read-only"
    hint = "Ask the relay's operator. Devices keep what is new, and send it later."


class EnrollmentClosed(Forbidden):
    """The relay takes no new vaults at present. Those that it has are not affected."""

    code = "enrollment-closed"
    hint = "Ask the relay's operator when it is open again, or use another relay."


class InviteOver(RelayError):
    """The invite is over. Nothing was done."""

    exit_code = 5
    status = 410
    code = "invite-over"
    hint = "Make a new invite."

    def __init__(self, message: str, *, seconds_ago: int = 0, hint: str | None = None) -> None:
        """`seconds_ago`: seconds since its end, by the relay's clock."""
        super().__init__(message, hint=hint)
        self.seconds_ago = seconds_ago


class InviteExpired(InviteOver):
    """The ten minutes of the invite are over."""

    code = "invite-expired"


class InviteUsed(InviteOver):
    """The invite has added a device."""

    code = "invite-used"


class InviteClosed(InviteOver):
    """The inviting device withdrew the invite, or burnt it after too many wrong digits."""

    code = "invite-closed"


class TooManyInvites(RelayError):
    """The vault has reached its limit of invites. Nothing was done."""

    exit_code = 5
    status = 409
    code = "too-many-invites"
    hint = "Withdraw one of them, or wait at most ten minutes until one has expired."


class WrongNumber(RelayError):
    """The number of a recovery secret is not the next one: another replacement was first. Nothing was done."""

    exit_code = 5
    status = 409
    code = "wrong-number"
    hint = "Ask for the current number, and start again from it."


class NotFound(RelayError):
    """There is no such object."""

    exit_code = 10
    status = 404
    code = "not-found"


class AlreadyExists(RelayError):
    """The key is taken; the stored object is untouched. It may be one's own, from a try whose reply was lost."""

    status = 412
    code = "exists"


class BadRequest(RelayError):
    """An invalid request: a bad key, size or parameter."""

    exit_code = 2
    status = 400
    code = "bad-request"


class SizeMismatch(BadRequest):
    """The body is longer or shorter than its declared size. Nothing was stored."""

    code = "size-mismatch"


class LengthRequired(BadRequest):
    """A body without a declared size."""

    status = 411
    code = "length-required"


class BadRange(BadRequest):
    """The range begins beyond the end of the object."""

    status = 416
    code = "bad-range"


class TooSlow(BadRequest):
    """The request's body did not arrive in time."""

    status = 408
    code = "too-slow"


class BodyTooLarge(RelayError):
    """More bytes than allowed here. Nothing was stored."""

    exit_code = 2
    status = 413
    code = "too-large"
