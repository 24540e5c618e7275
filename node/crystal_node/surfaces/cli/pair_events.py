"""A pairing for programs: each event is one line of JSON on standard output, with the event's name under ``event``.

What a person would type is read from standard input, one line each. The last line of a pairing that went well is ``paired``
on the inviting side and ``joined`` on the other; whatever went wrong is the usual error document on standard error.
"""

from pathlib import Path

from crystal_node.base.errors import Usage
from crystal_node.safekeeping.pairing.person import Machine, ShownInvite
from crystal_node.safekeeping.pairing.qr import write
from crystal_node.surfaces.cli.lines import InputLines
from crystal_node.surfaces.cli.output import emit_line


def described(machine: Machine) -> dict[str, object]:
    """A machine as every event names it."""
    return {"device": machine.device.hex() or None, "name": machine.name, "system": machine.system}


class JsonInviter:
    """Who invites."""

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
            raise Usage(
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
    """Who joins. ``yes``: nobody is asked. ``relay``: the address that this machine would use from then on, ``relay_now``: the
    one that it uses now, "" for none; where they differ, the invite moves it."""

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
