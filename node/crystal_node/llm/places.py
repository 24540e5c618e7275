"""Addresses on this machine, without a web client: whether one is its own, and whether anybody listens there."""

import re
import socket
from contextlib import suppress
from urllib.parse import urlsplit

MLX_URL = "http://127.0.0.1:8080/v1"
LISTEN_SECONDS_MAX = 0.25
_PORTS = {"http": 80, "https": 443}


def is_loopback(url: str) -> bool:
    """Whether an address is this machine's own."""
    with suppress(ValueError):
        host = (urlsplit(url).hostname or "").lower()
        return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None
    return False


def listens_here(url: str) -> bool:
    """Whether somebody on this machine takes connections at an address. Takes no more than ``LISTEN_SECONDS_MAX``, most often
    a tenth of a millisecond, and no import of a web client."""
    if not is_loopback(url):
        return False
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
        with socket.create_connection((parts.hostname or "", port), LISTEN_SECONDS_MAX):
            return True
    except (OSError, ValueError):
        return False
