"""Errors of pairing: each says what happened and what to do next.

Nothing is left half done unless the message says so. A newcomer keeps its keys, so that a second attempt is by the same device.
"""

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import ExitCode

_ANEW = "Make a new invite: `crystal pair` on the machine that showed this one."


class PairingFailed(CrystalError):
    """The two machines did not come together."""

    exit_code = ExitCode.WRONG_KEY
    hint = _ANEW


class Expired(PairingFailed):
    """The invite's ten minutes are over, by the relay's clock."""


class Used(PairingFailed):
    """Another machine was first with this invite."""

    hint = (
        "If that was no machine of yours, somebody has seen the code: it adds nobody without the six digits. "
        "Answer no there, and make a new invite with `crystal pair`."
    )


class Withdrawn(PairingFailed):
    """The inviting machine called it off."""


class DigitsDiffer(PairingFailed):
    """Three times other digits than the newcomer shows: the invite is burnt."""

    hint = (
        "Nobody was added. If you typed what the new machine shows, somebody is between the two: "
        "try another network, then make a new invite with `crystal pair`."
    )


class TooManyOpen(PairingFailed):
    """The vault has as many invites open as it may."""

    exit_code = ExitCode.RELAY_REFUSED
    hint = "Stop a `crystal pair` that is still open somewhere, or wait until one has expired: ten minutes at most."


class NobodyWaiting(PairingFailed):
    """The invite is there, and the machine that made it does not answer."""

    exit_code = ExitCode.NOT_FOUND
    hint = "Leave `crystal pair` running on the machine that shows the code until both are done, and make a new invite there."


class NobodyCame(PairingFailed):
    """The invite expired, and no newcomer had come."""

    exit_code = ExitCode.NOT_FOUND
    hint = "Make a new invite with `crystal pair`, and give its code on the new machine within ten minutes."


class UnknownInvite(PairingFailed):
    """The relay has no such invite (any more)."""

    exit_code = ExitCode.NOT_FOUND
    hint = "Check that the relay is the right one (--relay URL), or make a new invite with `crystal pair`."


class RelayOfTheCode(PairingFailed):
    """The relay that the code names cannot be reached from here."""

    exit_code = ExitCode.RELAY_UNREACHABLE
    hint = (
        "Check the network. If this machine reaches the relay by another address, give it: --relay URL. "
        "The invite is not used up."
    )


class StrangeNewcomer(PairingFailed):
    """A message in the mailbox cannot come from a machine that holds the code."""

    hint = (
        "Nobody was added. The relay, or somebody who saw the code, wrote into the mailbox: "
        "make a new invite with `crystal pair`."
    )


class StrangeInviter(PairingFailed):
    """A message in the mailbox cannot come from the machine that made the invite."""

    hint = "Nothing was set up here. The relay changed what it carries: try another network, and make a new invite."


class RevokedBefore(PairingFailed):
    """The newcomer was a device of this vault and was revoked: its id never comes back."""

    hint = (
        "Nothing was added. Make a new invite: if that machine is not set up, it comes as a new device by itself; "
        "else run `crystal pair --new-keys --code -` there."
    )


class RevokedHere(PairingFailed):
    """This machine was a device of the vault, and was revoked."""

    hint = "To come back as a new device: a new invite there, and `crystal pair --new-keys --code -` here."


class InviteDeclined(PairingFailed):
    """The person at the inviting machine does not know the newcomer."""

    exit_code = ExitCode.USAGE
    hint = "Nobody was added, and the invite is burnt. If you showed the code to nobody else, make a new one out of sight."


class NotAdded(PairingFailed):
    """The inviting machine could not or would not add this one."""

    hint = "What it shows says why. Nothing was set up here."


class NewcomerLeft(PairingFailed):
    """The new machine ended the pairing."""

    hint = "Nobody was added. Make a new invite with `crystal pair` when both are ready."


class NotConfirmed(PairingFailed):
    """The person at the newcomer did not confirm that their own machine had added it."""

    exit_code = ExitCode.USAGE
    hint = "Nothing was set up here. If you do not know the machine that invited, do not use that code again."


class NotInTheLog(PairingFailed):
    """The relay shows a device log in which this machine is not what the inviting machine said."""

    exit_code = ExitCode.RELAY_MISBEHAVES
    hint = (
        "Nothing was set up here. Do not trust this relay; try again over another network with a new invite."
    )


class RelayLost(PairingFailed):
    """The relay was away until the invite expired, or refused. Has the exit code of its error."""

    exit_code = ExitCode.RELAY_UNREACHABLE
    hint = "Check the network and the relay, then make a new invite with `crystal pair`."

    @classmethod
    def by(cls, cause: CrystalError, outcome: str, hint: str) -> "RelayLost":
        """``outcome``: what the pairing came to. ``hint``: for a relay that is away, or an error without a hint."""
        away = cause.exit_code == ExitCode.RELAY_UNREACHABLE
        error = cls(f"{outcome}: {cause}", hint=hint if away or not cause.hint else cause.hint)
        error.exit_code = ExitCode(cause.exit_code)
        return error


class LastStepFailed(PairingFailed):
    """The newcomer is in the device log and could not be told."""

    hint = (
        "Pair it again with a new invite: it keeps its keys and is not added twice. "
        "To take it out instead: `crystal devices revoke`."
    )


FOR_THE_NEWCOMER = (
    Expired,
    Used,
    Withdrawn,
    DigitsDiffer,
    NobodyWaiting,
    UnknownInvite,
    RelayOfTheCode,
    NotAdded,
    RelayLost,
)
"""Failures at the joining machine that another code, or the same one again, may fix."""
FOR_THE_INVITER = (NobodyCame, Expired, NewcomerLeft, RevokedBefore, LastStepFailed, RelayLost)
"""Failures that another invite may fix. After the others somebody else may have the code: a person starts again on purpose."""
