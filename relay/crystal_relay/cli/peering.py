"""Where the other processes over the same bucket reach this one."""

import socket

from crystal_relay.address import check_relay_url
from crystal_relay.errors import BadRequest

_WILDCARDS = {"0.0.0.0": (socket.AF_INET, "192.0.2.1"), "::": (socket.AF_INET6, "2001:db8::1")}  # noqa: S104
"""Hosts that stand for all addresses, and for each kind one that is nobody's: to ask which of ours would be used."""
_DISCARD_PORT = 9


def peer_url_of(asked: str | None, listener: socket.socket) -> str:
    """The address that was asked for, else that of the listening socket. Raises BadRequest."""
    if asked is not None:
        return check_relay_url(asked, allow_insecure=True)
    host, port = listener.getsockname()[:2]
    if host in _WILDCARDS:
        host = _own_address(*_WILDCARDS[host])
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _own_address(family: socket.AddressFamily, nobody: str) -> str:
    """The address that this machine shows to others. Sends nothing."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((nobody, _DISCARD_PORT))
            return str(asking.getsockname()[0])
    except OSError:
        raise BadRequest(
            "this machine has no address that the other relay processes could use",
            hint="Name one: --peer-url http://10.0.0.5:18791",
        ) from None
