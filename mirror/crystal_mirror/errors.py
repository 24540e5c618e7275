"""Errors of the protocol, apart from damaged bytes (``crystal_crypto.errors``) and an absent store.

Each error carries the exit code and the hint that the command line shows.
"""

from crystal_crypto.errors import CrystalError


class ProtocolError(CrystalError):
    """What another device or the relay did does not follow the protocol."""

    exit_code = 6
    hint = "Run `crystal status` for what is known; nothing was lost here."


class NotAMember(ProtocolError):
    """This device is not in the vault's device log."""

    exit_code = 7
    hint = "Join the vault with `crystal pair --code -`; `crystal pair` on the Core shows the code."


class NameTaken(ProtocolError):
    """Another device of the vault has that name."""

    exit_code = 2


class WrongVault(ProtocolError):
    """The code's root does not belong to the vault that the relay shows."""

    exit_code = 7
    hint = "Check that the code and the relay belong to the same vault."


class RelayMisbehaves(ProtocolError):
    """The relay shows something that an honest one cannot: a fork, a rollback, foreign bytes."""

    hint = "Do not trust this relay with more until you know why; every device keeps what it has and what it made."


class LogForked(RelayMisbehaves):
    """The relay's device log differs from the one that was verified here."""


class LogDamaged(ProtocolError):
    """The relay's copy of the device log is damaged, or not shown whole, so that it cannot be read to its end."""

    hint = (
        "Run `crystal repair` on the Core, or on another machine that keeps the root: it puts the damaged entry back. Then run "
        "this again."
    )


class Superseded(ProtocolError):
    """Another device is the Core now."""

    exit_code = 9
    hint = "Nothing to do: this device goes on as a Node."


class BehindTheFloor(ProtocolError):
    """The relay shows less of the log than this device has verified before, and this device's own copy is older too."""

    hint = "Sync another device that is further first; it brings the missing entries back."


class Unready(ProtocolError):
    """The operation needs a vault that has a Core."""

    exit_code = 3
    hint = "Set up a Core first: `crystal init --role core` on the machine that shall embed."


class TransactionStale(ProtocolError):
    """Another process changed the database between planning and committing; repeat the step."""

    exit_code = 9


class NotAllowed(ProtocolError):
    """This device does not have the right to do that in its vault."""

    exit_code = 7
    hint = "Do it on the Core (`crystal devices` names it), or on a device that holds the root."


def frozen_vault(what: str) -> NotAllowed:
    """The error for a device that would do what only a Core does, in a vault without a Core."""
    return NotAllowed(
        f"this machine cannot {what}: nobody leads this vault, it is frozen",
        hint="Make a machine the Core with `crystal promote`, and do it there.",
    )


class Revoked(ProtocolError):
    """This device was revoked: it can read what it has, and takes part in nothing."""

    exit_code = 7
    hint = (
        "What is here stays searchable. To bring this machine back in, as another device: "
        "`crystal pair --new-keys --code -`."
    )


class KeysWithheld(ProtocolError):
    """The newest generation's keys in the device log do not open here, so nothing new can be sealed."""

    exit_code = 7
    hint = "Renew the keys on the Core (`crystal devices renew-keys`), or pair this machine again."


class RootHeld(ProtocolError):
    """The device had the root: the root must be replaced before the device can be revoked."""

    exit_code = 7
    hint = "Give the recovery kit, so that the root can be replaced first."
