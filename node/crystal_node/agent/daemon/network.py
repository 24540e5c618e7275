"""Which network this machine is on, without sending anything, and whether that is paid for by volume.

A changed network is seen by the addresses that this machine would send from, and on Linux by its gateways. NetworkManager says
whether a connection is metered; where it does not run, or does not know, it is not.
"""

import socket
import sys
from contextlib import suppress
from pathlib import Path

ROUTES = Path("/proc/net/route")
ASK_SECONDS_MAX = 2.0
_ANYWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses for documentation. Connecting a datagram socket sends nothing: the system only chooses the way."""
_METERED = (1, 3)
"""NetworkManager's NM_METERED_YES and NM_METERED_GUESS_YES."""


def network(routes: Path = ROUTES) -> tuple[str, ...]:
    """What changes when the network does; () without any."""
    return (*_sources(), *_gateways(routes))


def is_metered() -> bool:
    """Asks NetworkManager, where there is one. Blocks for moments: call it in a thread."""
    if not sys.platform.startswith("linux"):
        return False
    from jeepney import DBusAddress, Properties
    from jeepney.io.blocking import open_dbus_connection

    manager = DBusAddress(
        "/org/freedesktop/NetworkManager", "org.freedesktop.NetworkManager", "org.freedesktop.NetworkManager"
    )
    # No bus, no NetworkManager on it, or one that answers something else: all of them mean "not known".
    with suppress(Exception), open_dbus_connection(bus="SYSTEM", auth_timeout=ASK_SECONDS_MAX) as connection:
        reply = connection.send_and_get_reply(Properties(manager).get("Metered"), timeout=ASK_SECONDS_MAX)
        answer: tuple[str, object] = reply.body[0]  # pyright: ignore[reportUnknownVariableType]  jeepney has no types
        return answer[1] in _METERED
    return False


def _sources() -> list[str]:
    found: list[str] = []
    for family, address in _ANYWHERE:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            found.append(str(probe.getsockname()[0]))
    return found


def _gateways(routes: Path) -> list[str]:
    """Interface and gateway of each default route."""
    try:
        lines = routes.read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []
    fields = [line.split() for line in lines]
    return sorted(
        f"{each[0]} {each[2]}" for each in fields if len(each) > 7 and each[1] == each[7] == "00000000"
    )
