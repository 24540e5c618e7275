"""Values of settings, checked: what a person or an invite wrote, against what can be used.

Each raises BadConfig with a message that names the setting's origin. Nothing here reads the environment or a file.
"""

from urllib.parse import urlsplit

from crystal_node.errors import BadConfig

URL_CHARS_MAX = 2048
TIMEOUT_SECONDS_MAX = 600
KIB = 1024
BANDWIDTH_KIB_MIN = 16
"""KiB a second. A relay gives a body up that comes with less than half of that."""
BANDWIDTH_KIB_MAX = 16 * 1024 * 1024
NAME_CHARS_MAX = 100


def checked_url(value: str, origin: str) -> str:
    """The relay's address without a slash at its end."""
    where = f"the relay's address from {origin}"
    if len(value) > URL_CHARS_MAX:
        raise BadConfig(f"{where} is over {URL_CHARS_MAX} characters")
    try:
        parts = urlsplit(value)
        valid = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        valid = False
        parts = urlsplit("")
    if not valid:
        raise BadConfig(
            f"{where} is no http or https address", hint="It looks like https://relay.example.org:8787."
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadConfig(
            f"{where} has a user name, query or fragment in it",
            hint="Give the plain address; tokens are kept apart.",
        )
    return value.rstrip("/")


def checked_timeout(value: str, origin: str) -> str:
    """A number of seconds."""
    try:
        fits = 1 <= float(value) <= TIMEOUT_SECONDS_MAX
    except ValueError:
        fits = False
    if not fits:
        raise BadConfig(
            f"relay_timeout from {origin} is no number of seconds",
            hint=f"Use a number from 1 to {TIMEOUT_SECONDS_MAX}.",
        )
    return value


def checked_bandwidth(name: str, value: str, origin: str) -> str:
    """A whole number of KiB a second, 0 for no limit."""
    number = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else -1
    if number != 0 and not BANDWIDTH_KIB_MIN <= number <= BANDWIDTH_KIB_MAX:
        raise BadConfig(
            f"{name} from {origin} is no number of KiB a second that can be kept to",
            hint=f"Use a whole number from {BANDWIDTH_KIB_MIN} to {BANDWIDTH_KIB_MAX}, or 0 for no limit.",
        )
    return str(number)


def clean_name(name: str) -> str:
    """A device's name as it can be shown anywhere."""
    return "".join(char if char.isprintable() else " " for char in name).strip()[:NAME_CHARS_MAX] or "device"
