"""The address of a broker, as an operator gives it and as it is shown."""

from urllib.parse import urlsplit

from crystal_relay.errors import BadRequest

SCHEMES = ("redis", "rediss", "unix")
_HINT = "Give redis://HOST:6379, rediss://HOST:6379 for TLS, or unix:///PATH; with a password in CRYSTAL_RELAY_BROKER alone."


def checked_broker(url: str) -> str:
    """The address of a broker, as it was given. Raises BadRequest, without the password in it."""
    try:
        parts = urlsplit(url)
        usable = (
            parts.scheme in SCHEMES and bool(parts.hostname or parts.scheme == "unix") and parts.port != 0
        )
    except ValueError:
        usable = False
    if not usable:
        raise BadRequest("the broker's address is none", hint=_HINT)
    return url


def shown_broker(url: str) -> str:
    """The address without user, password and options."""
    parts = urlsplit(url)
    return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"


def password_in(url: str) -> str:
    """Its password, which no log shows; "" without one."""
    return urlsplit(url).password or ""
