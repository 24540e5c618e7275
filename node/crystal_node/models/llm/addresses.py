"""Addresses of this machine, without a web client: whether one is local, whether somebody listens there, and who."""

import os
import re
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

MLX_URL = "http://127.0.0.1:8080/v1"
LISTEN_SECONDS_MAX = 0.25
_PORTS = {"http": 80, "https": 443}
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENING = "0A"
_HERE = frozenset(("00000000", "0100007F", "0" * 32, "0" * 24 + "01000000", "0" * 16 + "FFFF00000100007F"))
"""The wildcard and loopback addresses of both families, as Linux writes them."""
_PEOPLE = range(1000, 61184)
"""User ids of people. Below are the system's services, above systemd's dynamic users."""


def is_loopback(url: str) -> bool:
    """Whether an address is a loopback address."""
    with suppress(ValueError):
        host = (urlsplit(url).hostname or "").lower()
        return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None
    return False


def listens_here(url: str) -> bool:
    """Whether a local address accepts connections, and not from another person's program (``is_strangers``). Takes at most
    ``LISTEN_SECONDS_MAX``, usually a tenth of a millisecond."""
    if not is_loopback(url) or is_strangers(url):
        return False
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
        with socket.create_connection((parts.hostname or "", port), LISTEN_SECONDS_MAX):
            return True
    except (OSError, ValueError):
        return False


def is_strangers(url: str) -> bool:
    """Whether another person's program listens at that port, where it could pose as a model. Only Linux tells."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return False
    for table in _TABLES:
        with suppress(OSError), table.open() as file:
            if any(_strangers(line, port) for line in file):
                return True
    return False


def _strangers(line: str, port: int) -> bool:
    fields = line.split()
    if len(fields) < 8 or fields[3] != _LISTENING:
        return False
    address, _, number = fields[1].partition(":")
    if address not in _HERE or int(number, 16) != port:
        return False
    user = int(fields[7])
    return user in _PEOPLE and user != os.geteuid()
