"""The people at both ends, as ports: what each is shown, and what each is asked.

The command line implements them: for a person at a terminal, and for programs with a line of JSON for each event. Codes and
digits go to the screen and nowhere else. Names and systems come from the other machine and are made printable before they are
shown.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ShownInvite:
    """What the inviting machine shows. ``seconds`` are the relay's.

    ``short``: the same to be typed; "" if the relay keeps none.
    """

    text: str
    short: str
    relay: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine at the other end, as it describes itself. ``device`` is empty where it is not known yet.

    ``called``: its name in the vault if another device has the one that it asked for; else "".
    """

    name: str
    system: str
    device: bytes = b""
    called: str = ""


class Confirmation(StrEnum):
    """What became of a newcomer after it was added."""

    CONFIRMED = "confirmed"
    SILENT = "silent"
    """It did not answer in time: it may be set up, or not."""


@dataclass(frozen=True, slots=True)
class Invited:
    """The outcome of a successful invite. ``again``: the machine was a member before, and got a new token."""

    machine: Machine
    slot: int
    again: bool
    grant: bool
    confirmation: Confirmation


class InviterPerson(Protocol):
    """The person at the machine that invites."""

    def show(self, invite: ShownInvite) -> None:
        """The code, to be brought to the new machine."""
        ...

    def remind(self, machine: Machine) -> None:
        """An earlier pairing broke off after that machine had been added."""
        ...

    def waiting(self, seconds_left: float) -> None:
        """Nobody has come yet. Called about every second."""
        ...

    def arrived(self, machine: Machine) -> None:
        """A machine has come; the digits are asked for next."""
        ...

    async def digits(self, machine: Machine, tries_left: int) -> str | None:
        """What the person types; None: that is no machine of theirs. May be cancelled. Raises Usage if nobody can type."""
        ...

    def wrong(self, tries_left: int) -> None:
        """Those were not the digits; none left means that the invite is burnt."""
        ...

    def unreadable(self) -> None:
        """The input was not six digits; it does not count."""
        ...

    def added(self, machine: Machine) -> None:
        """The machine is in the device log; its confirmation is waited for."""
        ...

    def settling(self, seconds_left: float) -> None:
        """It has not confirmed yet. Called about every second."""
        ...

    def away(self, gone: bool) -> None:
        """The relay cannot be reached, or can be again: it is tried as long as the invite lives."""
        ...

    def ended(self) -> None:
        """It is over: an unfinished line on the screen is ended before anything else is written."""
        ...

    def withdrawn(self, *, added: bool | None) -> None:
        """The person stopped it. ``added``: whether the newcomer is a device of the vault; None where nobody can know."""
        ...


class NewcomerPerson(Protocol):
    """The person at the machine that joins."""

    def met(self, inviter_name: str, vault: bytes) -> None:
        """The invite was found, and who made it says this name."""
        ...

    def digits(self, digits: str, machine: Machine, seconds_left: float) -> None:
        """Six digits, to be typed at the inviting machine."""
        ...

    def waiting(self, seconds_left: float) -> None:
        """They have not been typed yet. Called about every second."""
        ...

    async def confirms(self, machine: Machine, vault: bytes) -> bool:
        """Whether that machine said that it added this one. May be cancelled."""
        ...

    def ended(self) -> None:
        """As for ``InviterPerson``."""
        ...

    def away(self, gone: bool) -> None:
        """As for ``InviterPerson``."""
        ...

    def left(self, listed: bytes) -> None:
        """The person stopped it: nothing was set up. ``listed``: this device's id, if the vault's list has it still."""
        ...
