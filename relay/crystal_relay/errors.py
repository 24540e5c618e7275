"""What can go wrong with a store, whichever implementation it is.

Every failure of a `Store` is one of these, so that callers decide by class and never by text. `code` is the error's name
on the wire, `status` its HTTP status, `exit_code` and `hint` are for whoever shows it to a person. Messages never hold a
token, a secret or the bytes of an object.
"""

from typing import ClassVar


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
    """The store cannot be reached, or failed in a way that may pass. Whether the request took effect is unknown."""

    exit_code = 4
    status = 503
    code = "unavailable"
    hint = "Is the relay running, and is its address right? Nothing that is here is lost: run it again later."


class Closed(StoreUnavailable):
    """The store was closed, or is being closed. Nothing was done, and trying again does not help."""

    code = "closed"


class BadReply(StoreUnavailable):
    """Something answered that is not a relay of this protocol (a captive portal, another server, a broken proxy)."""

    code = "bad-reply"
    hint = "Check that the relay's address points at a Crystal relay."


class Busy(RelayError):
    """Too much at once, or another process holds what is needed. Nothing was done; try again later."""

    exit_code = 4
    status = 503
    code = "busy"
    hint = "Try again in a moment."


class InUse(Busy):
    """Another process holds the store's directory, or listens on the port."""

    exit_code = 9
    code = "in-use"


class TooManyRequests(Busy):
    """More requests than this device or this address may make. Nothing was done."""

    status = 429
    code = "too-many-requests"

    def __init__(self, message: str, *, retry_after: float = 1.0, hint: str | None = None) -> None:
        """`retry_after`: seconds until the next request has a chance."""
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class Unusable(StoreUnavailable):
    """The store's directory cannot be used at all."""

    exit_code = 8
    code = "unusable"
    hint = "Check that the directory exists or can be made, and who may write there."


class StoreFull(RelayError):
    """No room for the object. Nothing was stored; the store goes on serving what it has."""

    exit_code = 8
    status = 507
    code = "full"
    hint = "Make room on the relay's disk."


class QuotaExceeded(StoreFull):
    """The vault has as much as this relay allows it. Other vaults are not affected."""

    code = "quota"
    hint = "Ask whoever runs the relay for more room. Devices keep what they have and send it later."


class StoreDamaged(RelayError):
    """What the store holds is damaged or was changed behind its back. Repeating the request does not help."""

    exit_code = 8
    status = 500
    code = "damaged"
    hint = "Restore the relay's directory from a backup; devices put back what they still hold."


class Unauthorized(RelayError):
    """No credentials, or credentials that nobody registered (or that were revoked)."""

    exit_code = 5
    status = 401
    code = "unauthorized"
    hint = "The relay does not know this device's token."


class RecoveryReplaced(Unauthorized):
    """A recovery secret that counted once: another one was put in its place."""

    code = "recovery-replaced"
    hint = "Use the vault's newest recovery kit."


class Forbidden(RelayError):
    """Valid credentials that do not allow this."""

    exit_code = 5
    status = 403
    code = "forbidden"
    hint = "This device's token does not allow that."


class VaultDropped(Forbidden):
    """Whoever runs the relay has dropped the vault: closed now, deleted after a time of grace."""

    code = "dropped"
    hint = "Whoever runs the relay can restore it until then."


class InviteOver(RelayError):
    """The invite is not open any more. Nothing was done."""

    exit_code = 5
    status = 410
    code = "invite-over"
    hint = "Make a new invite."

    def __init__(self, message: str, *, seconds_ago: int = 0, hint: str | None = None) -> None:
        """`seconds_ago`: since its end, by the relay's clock."""
        super().__init__(message, hint=hint)
        self.seconds_ago = seconds_ago


class InviteExpired(InviteOver):
    """Its ten minutes are over."""

    code = "invite-expired"


class InviteUsed(InviteOver):
    """A device was added by it."""

    code = "invite-used"


class InviteClosed(InviteOver):
    """Whoever opened it withdrew it, or burnt it after too many wrong digits."""

    code = "invite-closed"


class TooManyInvites(RelayError):
    """The vault has as many invites as it may. Nothing was done."""

    exit_code = 5
    status = 409
    code = "too-many-invites"
    hint = "Withdraw one of them, or wait until one has expired: that takes ten minutes at most."


class WrongNumber(RelayError):
    """The vault's recovery secret was replaced meanwhile, or fewer times than the request assumes. Nothing was done."""

    exit_code = 5
    status = 409
    code = "wrong-number"
    hint = "Ask for the number that counts now, and begin from there."


class NotFound(RelayError):
    """There is no such object."""

    exit_code = 10
    status = 404
    code = "not-found"


class AlreadyExists(RelayError):
    """The key is taken. The stored object was not touched. It may be one's own, of a try whose reply was lost."""

    status = 412
    code = "exists"


class BadRequest(RelayError):
    """A request that no store would take: a bad key, a bad size, a bad parameter."""

    exit_code = 2
    status = 400
    code = "bad-request"


class SizeMismatch(BadRequest):
    """The body's bytes are more or fewer than its declared size. Nothing was stored."""

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
