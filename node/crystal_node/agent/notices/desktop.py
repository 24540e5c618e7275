"""Notices on this machine's desktop: by D-Bus where freedesktop.org's service answers, by osascript on macOS.

Every call is bounded in time and returns whether the notice was shown; no desktop is no failure. The text is passed as an
argument, never as part of a script or shell line.
"""

import subprocess
import sys
from typing import Protocol

APP_NAME = "Memory Crystal"
SECONDS_MAX = 5.0

_OSASCRIPT = "/usr/bin/osascript"
_SCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)
_NAME = "org.freedesktop.Notifications"
_PATH = "/org/freedesktop/Notifications"


class Desktop(Protocol):
    """Port of desktops. Calls block: make them in a thread."""

    def is_there(self) -> bool:
        """Whether notices can be shown."""
        ...

    def show(self, title: str, text: str) -> bool:
        """Shows it. False if that was not possible."""
        ...


class FreeDesktop:
    """The session bus of who runs this."""

    def is_there(self) -> bool:
        return self._call("GetServerInformation", "", ()) is not None

    def show(self, title: str, text: str) -> bool:
        # replaces none, no icon, no actions, no hints, until the desktop takes it away itself
        shown = self._call("Notify", "susssasa{sv}i", (APP_NAME, 0, "", title, _unmarked(text), [], {}, -1))
        return shown is not None

    def _call(self, method: str, signature: str, arguments: tuple[object, ...]) -> tuple[object, ...] | None:
        from jeepney import (
            DBusAddress,
            MessageType,
            new_method_call,  # pyright: ignore[reportUnknownVariableType]  jeepney has no types
        )
        from jeepney.io.blocking import open_dbus_connection

        address = DBusAddress(_PATH, bus_name=_NAME, interface=_NAME)
        try:
            connection = open_dbus_connection(bus="SESSION", auth_timeout=SECONDS_MAX)
            with connection:
                message = new_method_call(address, method, signature or None, arguments)
                reply = connection.send_and_get_reply(message, timeout=SECONDS_MAX)
        except Exception:  # noqa: BLE001  no bus, or one that answers strangely: there is no desktop then
            return None
        return None if reply.header.message_type is MessageType.error else tuple(reply.body)  # pyright: ignore[reportUnknownArgumentType]


class MacOs:
    """The notification centre of who is logged in."""

    def is_there(self) -> bool:
        return True

    def show(self, title: str, text: str) -> bool:
        try:
            done = subprocess.run(
                command(title, text),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS_MAX,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0


def command(title: str, text: str) -> list[str]:
    """What macOS is asked to run."""
    script = [part for line in _SCRIPT for part in ("-e", line)]
    return [_OSASCRIPT, *script, "--", title, text]


def desktop_here(platform: str = sys.platform) -> Desktop | None:
    """The desktop of this platform; None if it has none that we support."""
    if platform == "darwin":
        return MacOs()
    return FreeDesktop() if platform.startswith("linux") else None


def _unmarked(text: str) -> str:
    """``text`` with characters escaped that desktops take for markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
