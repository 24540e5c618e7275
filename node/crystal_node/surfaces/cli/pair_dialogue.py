"""The dialogue of a pairing: sentences for people, events for programs.

For people the code and the digits go to standard output, everything else to standard error; a terminal that takes control
sequences gets one line that counts down, any other a line at the beginning and near the end. For programs each event is one
line of JSON, with its name under ``event``; answers are read from standard input, one line each. The last event is
``paired`` on the inviting side and ``joined`` on the other.
"""

import asyncio
import sys
from pathlib import Path

from crystal_node.base.errors import UsageError
from crystal_node.base.wording import one_line
from crystal_node.safekeeping.pairing.person import Machine, ShownInvite
from crystal_node.safekeeping.pairing.qr import write
from crystal_node.surfaces.cli.console.output import emit_line, note, say
from crystal_node.surfaces.cli.console.prompts import InputLines
from crystal_node.surfaces.cli.console.terminal import can_move, is_terminal, screen, show_code

_NAME_CHARS_MAX = 60
_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no", "q", "quit"})
_LOCAL = ("//127.", "//localhost", "//[::1]")
_LAST_CALLS_SECONDS = (60, 300)
_AWAY = "The relay cannot be reached. Trying again as long as the invite is good."
_BACK = "The relay is back."


def shown(machine: Machine) -> str:
    """A machine as it describes itself, made printable."""
    system = one_line(machine.system, _NAME_CHARS_MAX)
    return one_line(machine.name, _NAME_CHARS_MAX) + (f" ({system})" if system else "")


def minutes(seconds: float) -> str:
    """The time left: "9 min 58 s"."""
    whole = int(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"


def fitting(text: str, left: str) -> str:
    """Both in one line of this terminal, since a wrapped line cannot be redrawn in place."""
    room = screen().columns - len(left) - 2
    return f"{text if len(text) <= room else text[: max(room - 3, 0)] + '...'} {left}"


class _Countdown:
    """A line that counts down."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._moves = sys.stderr is not None and sys.stderr.isatty() and can_move()
        self._open = False
        self._calls: list[int] | None = None

    def tick(self, seconds_left: float) -> None:
        if self._moves:
            sys.stderr.write(f"\r\x1b[K{fitting(self._text, f'({minutes(seconds_left)} left)')}")
            sys.stderr.flush()
            self._open = True
            return
        if self._calls is None:
            self._calls = [call for call in _LAST_CALLS_SECONDS if call < seconds_left]
        elif not self._calls or seconds_left > self._calls[-1]:
            return
        else:
            self._calls.pop()
        note(f"{self._text} ({minutes(seconds_left)} left)")

    def end(self) -> None:
        if self._open:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._open = False


class TerminalInviter:
    """The inviting side, for a person."""

    def __init__(self, lines: InputLines, qr: Path | None) -> None:
        self._lines = lines
        self._qr = qr
        self._asked = False
        self._waiting = _Countdown("Waiting for the new machine")
        self._settling = _Countdown(
            "Waiting until it says that it is set up: answer there. Ctrl-C leaves it as it is"
        )
        self._machine: Machine | None = None

    def show(self, invite: ShownInvite) -> None:
        if any(local in invite.relay for local in _LOCAL):
            note(
                f"The code names the relay {invite.relay}, which only this machine reaches. "
                "Another one needs its address from there: --relay URL"
            )
        note(
            "On the new machine, install Crystal, run `crystal up` (or only `crystal pair --code -`), and give it this code."
        )
        note(f"It is good for one machine and {minutes(invite.seconds)}.")
        show_code(invite.text, self._qr, short=invite.short)

    def remind(self, machine: Machine) -> None:
        note(
            f"An earlier pairing broke off after {shown(machine)} had been added. If it is not set up, pair it again: "
            f"it is not added twice. To take it out: crystal devices revoke {machine.device.hex()[:8]}"
        )

    def waiting(self, seconds_left: float) -> None:
        self._waiting.tick(seconds_left)

    def arrived(self, machine: Machine) -> None:
        self._machine = machine
        self._waiting.end()
        note(f"{shown(machine)} wants to join. It shows six digits: type them here, or no.")
        if machine.called:
            called = one_line(machine.called, _NAME_CHARS_MAX)
            note(f"Another device of this vault has that name, so it will be called {called}.")

    async def digits(self, machine: Machine, tries_left: int) -> str | None:
        sys.stderr.write("Digits: ")
        sys.stderr.flush()
        self._asked = True
        typed = await self._lines.line()
        if not is_terminal():
            self.ended()  # nobody's return key does it
        self._asked = False
        if typed is None:
            raise UsageError(
                "no digits were given: nobody was added",
                hint="Type the six digits of the new machine, or pipe them in once it shows them.",
            )
        return None if typed.strip().lower() in _NO else typed

    def wrong(self, tries_left: int) -> None:
        if tries_left:
            note(f"Those are not its digits. {tries_left} {'try' if tries_left == 1 else 'tries'} left.")

    def unreadable(self) -> None:
        note("Six digits, please; that did not count.")

    def added(self, machine: Machine) -> None:
        note(f"{shown(machine)} is added.")

    def settling(self, seconds_left: float) -> None:
        self._settling.tick(seconds_left)

    def away(self, gone: bool) -> None:
        asked = self._asked
        self.ended()
        note(_AWAY if gone else _BACK)
        if asked:
            sys.stderr.write("Digits: ")
            sys.stderr.flush()
            self._asked = True

    def ended(self) -> None:
        self._waiting.end()
        self._settling.end()
        if self._asked:
            note("")
        self._asked = False

    def withdrawn(self, *, added: bool | None) -> None:
        self._waiting.end()
        self._settling.end()
        self._asked = False
        note("")
        if added is False or self._machine is None:
            note("The invite is withdrawn; nobody was added.")
            return
        name, device = shown(self._machine), self._machine.device.hex()[:8]
        note(
            f"{name} stays added. If it is not set up, pair it again: it is not added twice. To take it out: "
            f"crystal devices revoke {device}"
            if added
            else f"Whether {name} was added is not known: once the relay is there, `crystal sync` and `crystal devices` tell."
        )


class TerminalNewcomer:
    """The joining side, for a person. ``yes``: ask nothing."""

    def __init__(self, lines: InputLines, *, yes: bool) -> None:
        self._lines = lines
        self._yes = yes
        self._waiting = _Countdown("Waiting for the digits to be typed there")

    def met(self, inviter_name: str, vault: bytes) -> None:
        note(
            f"The invite is from {one_line(inviter_name, _NAME_CHARS_MAX)}, of vault {vault.hex()[:8]}. Answering it."
        )

    def digits(self, digits: str, machine: Machine, seconds_left: float) -> None:
        note(f"Type these digits on {shown(machine)}:")
        say(f"{digits[:3]} {digits[3:]}")

    def waiting(self, seconds_left: float) -> None:
        self._waiting.tick(seconds_left)

    async def confirms(self, machine: Machine, vault: bytes) -> bool:
        self._waiting.end()
        if self._yes:
            return True
        note(
            "This machine would send what it records to that vault. Answer yes only for a machine of your own."
        )
        sys.stderr.write(f"Did {shown(machine)} say that it added this machine? [yes/no] ")
        sys.stderr.flush()
        while True:
            typed = await self._lines.line()
            if typed is None:  # the window was closed: nobody said no, so it is a stop
                raise asyncio.CancelledError
            if typed.strip().lower() in _YES:
                return True
            if typed.strip().lower() in _NO:
                return False
            sys.stderr.write("Please type yes or no: ")
            sys.stderr.flush()

    def ended(self) -> None:
        self._waiting.end()

    def away(self, gone: bool) -> None:
        self._waiting.end()
        note(_AWAY if gone else _BACK)

    def left(self, listed: bytes) -> None:
        self._waiting.end()
        note("")
        note("Stopped: nothing was set up here.")
        if listed:
            note(
                "The vault lists this machine still. Run this again with a new invite, or take it out on the inviting one: "
                f"crystal devices revoke {listed.hex()[:8]}"
            )


def described(machine: Machine) -> dict[str, object]:
    """A machine as events describe it."""
    called = {"called": machine.called} if machine.called else {}
    return {"device": machine.device.hex() or None, "name": machine.name, "system": machine.system, **called}


class JsonInviter:
    """The inviting side, for a program."""

    def __init__(self, lines: InputLines, qr: Path | None) -> None:
        self._lines = lines
        self._qr = qr

    def show(self, invite: ShownInvite) -> None:
        if self._qr is not None:
            write(invite.text, self._qr)
        emit_line(
            {
                "event": "invite",
                "code": invite.text,
                "short": invite.short or None,
                "relay": invite.relay,
                "expires_in": int(invite.seconds),
                "qr": str(self._qr) if self._qr else None,
            }
        )

    def remind(self, machine: Machine) -> None:
        emit_line({"event": "interrupted-before", **described(machine)})

    def waiting(self, seconds_left: float) -> None:
        """A program counts by itself."""

    def arrived(self, machine: Machine) -> None:
        emit_line({"event": "newcomer", **described(machine)})

    async def digits(self, machine: Machine, tries_left: int) -> str | None:
        emit_line({"event": "digits-wanted", "tries": tries_left})
        typed = await self._lines.line()
        if typed is None:
            raise UsageError(
                "no digits were given: nobody was added",
                hint="Write the newcomer's six digits to standard input.",
            )
        return None if typed.strip().lower() == "no" else typed

    def wrong(self, tries_left: int) -> None:
        emit_line({"event": "digits-wrong", "tries": tries_left})

    def unreadable(self) -> None:
        emit_line({"event": "digits-unreadable"})

    def added(self, machine: Machine) -> None:
        emit_line({"event": "added", **described(machine)})

    def settling(self, seconds_left: float) -> None:
        """A program counts by itself."""

    def away(self, gone: bool) -> None:
        _tell_away(gone)

    def ended(self) -> None:
        """Events are whole lines."""

    def withdrawn(self, *, added: bool | None) -> None:
        emit_line({"event": "stopped", "added": added})


class JsonNewcomer:
    """The joining side, for a program. ``yes``: ask nothing.

    ``relay`` is the address that this machine would use, ``relay_now`` the one that it uses now, "" for none. If they
    differ, the invite moves it.
    """

    def __init__(self, lines: InputLines, *, yes: bool, relay: str, relay_now: str) -> None:
        self._lines = lines
        self._yes = yes
        self._relays = {"relay": relay, "relay_now": relay_now or None}

    def met(self, inviter_name: str, vault: bytes) -> None:
        emit_line({"event": "met", "inviter": inviter_name, "vault": vault.hex(), **self._relays})

    def digits(self, digits: str, machine: Machine, seconds_left: float) -> None:
        emit_line(
            {
                "event": "digits",
                "digits": digits,
                "inviter": described(machine),
                "expires_in": int(seconds_left),
            }
        )

    def waiting(self, seconds_left: float) -> None:
        """A program counts by itself."""

    async def confirms(self, machine: Machine, vault: bytes) -> bool:
        if self._yes:
            return True
        emit_line({"event": "confirm", "inviter": described(machine), "vault": vault.hex(), **self._relays})
        typed = await self._lines.line()
        return typed is not None and typed.strip().lower() in ("y", "yes")

    def ended(self) -> None:
        """Events are whole lines."""

    def away(self, gone: bool) -> None:
        _tell_away(gone)

    def left(self, listed: bytes) -> None:
        emit_line({"event": "stopped", "added": bool(listed), **({"device": listed.hex()} if listed else {})})


def _tell_away(gone: bool) -> None:
    emit_line({"event": "relay-away" if gone else "relay-back"})
