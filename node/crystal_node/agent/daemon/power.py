"""Battery and metered networks, for settings that make heavy jobs wait. What is unknown counts as neither."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

POWER_SUPPLIES = Path("/sys/class/power_supply")
_PMSET = ("/usr/bin/pmset", "-g", "batt")
_ASK_SECONDS_MAX = 5.0
_BUS_SECONDS_MAX = 2.0
_METERED = (1, 3)
"""NetworkManager's NM_METERED_YES and NM_METERED_GUESS_YES."""


def on_battery(supplies: Path = POWER_SUPPLIES) -> bool:
    """Whether this machine runs on its battery. Call it in a thread: on macOS it starts a process."""
    return _macos() if sys.platform == "darwin" else _linux(supplies)


def is_metered() -> bool:
    """Whether the connection is paid by volume, as NetworkManager says; False where it is not known. Call it in a thread."""
    if not sys.platform.startswith("linux"):
        return False
    # D-Bus is loaded only where a person wants heavy work to wait for the network
    from jeepney import DBusAddress, Properties
    from jeepney.io.blocking import open_dbus_connection

    manager = DBusAddress(
        "/org/freedesktop/NetworkManager", "org.freedesktop.NetworkManager", "org.freedesktop.NetworkManager"
    )
    # No bus, no NetworkManager on it, or one that answers something else: all of them mean "not known".
    with suppress(Exception), open_dbus_connection(bus="SYSTEM", auth_timeout=_BUS_SECONDS_MAX) as connection:
        reply = connection.send_and_get_reply(Properties(manager).get("Metered"), timeout=_BUS_SECONDS_MAX)
        answer: tuple[str, object] = reply.body[0]  # pyright: ignore[reportUnknownVariableType]  jeepney has no types
        return answer[1] in _METERED
    return False


def _linux(supplies: Path) -> bool:
    """False if a supply is plugged in; else whether a battery of the machine (not of a mouse) discharges."""
    draining = False
    try:
        found = sorted(supplies.iterdir())
    except OSError:
        return False
    for supply in found:
        kind = _read(supply / "type")
        if kind in ("Mains", "USB", "Wireless") and _read(supply / "online") == "1":
            return False
        if kind == "Battery" and _read(supply / "scope") != "Device":
            draining |= _read(supply / "status") == "Discharging"
    return draining


def _macos() -> bool:
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            _PMSET, capture_output=True, encoding="utf-8", timeout=_ASK_SECONDS_MAX, check=False
        )
        return "'Battery Power'" in done.stdout
    return False


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
