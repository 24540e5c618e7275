"""Checks of settings: each returns the canonical text of a value, or raises BadConfig with a message that names its origin.

Nothing here reads the environment or a file.
"""

import re
from urllib.parse import urlsplit

from crystal_node.base.errors import BadConfig

URL_CHARS_MAX = 2048
LOCAL_RELAY = "local"
"""In place of the relay's address: a relay in the home, for one machine."""
TIMEOUT_SECONDS_MAX = 600
KIB = 1024
BANDWIDTH_KIB_MIN = 16
"""KiB a second. A relay aborts a body that comes at less than half of that."""
BANDWIDTH_KIB_MAX = 16 * 1024 * 1024
NAME_CHARS_MAX = 100
OPTION_CHARS_MAX = 2000
FILE_PATTERN_CHARS_MAX = 200
FILE_RULES_MAX = 200
"""Limits of what a person excludes or allows among the home's files (``base.file_rules``)."""
"""Of an option's text."""

_YES = frozenset({"1", "yes", "true", "on"})
_NO = frozenset({"0", "no", "false", "off"})
_TOOL = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY_STORES = ("auto", "keyring", "file")
_PIN = re.compile(r"pin=[a-z2-7]{26}")
"""The fingerprint of a relay's certificate (`crystal_relay.address`)."""
_DENIAL = re.compile(r"(\*|[0-9a-f]{8,32}):(\*|[a-z][a-z-]{0,30})")


def checked_url(value: str, origin: str) -> str:
    """The relay's address without a slash at its end; "" for none; ``LOCAL_RELAY``, which only ``config.json`` may say."""
    if value == "" or (value == LOCAL_RELAY and origin == "config.json"):
        return value
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
        whole = f"https://{value}" if value and "://" not in value and value.isprintable() else ""
        raise BadConfig(
            f"{where} is no http or https address",
            hint=f"Write it whole: {whole}" if whole else "It looks like https://relay.example.org:18791.",
        )
    if parts.username or parts.password or parts.query:
        raise BadConfig(
            f"{where} has a user name or a query in it",
            hint="Give the plain address; tokens are kept apart.",
        )
    if parts.fragment and (parts.scheme != "https" or not _PIN.fullmatch(parts.fragment)):
        raise BadConfig(
            f"what follows the # in {where} is no certificate's fingerprint",
            hint="Copy the address again, from https:// to its end.",
        )
    plain, mark, pin = value.partition("#")
    return plain.rstrip("/") + mark + pin


def checked_timeout(value: str, origin: str) -> str:
    """A number of seconds, as it was written."""
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


def checked_agent(value: str, origin: str) -> str:
    """An agent's id."""
    if not _AGENT.fullmatch(value):
        raise BadConfig(
            f"the agent id from {origin} cannot be used",
            hint="Use 1 to 64 letters, digits, dots, underscores and hyphens, a letter or digit first.",
        )
    return value


def checked_key_store(value: str, origin: str) -> str:
    """A place for keys."""
    if value not in _KEY_STORES:
        raise BadConfig(f"there is no key store {value!r} (from {origin})", hint="Use auto, keyring or file.")
    return value


def clean_name(name: str) -> str:
    """A device's name without characters that cannot be shown."""
    return "".join(char if char.isprintable() else " " for char in name).strip()[:NAME_CHARS_MAX] or "device"


def yes(value: str) -> bool:
    """Whether a switch is on; its text was checked before."""
    return value.lower() in _YES


def checked_switch(name: str, value: str, origin: str) -> str:
    """yes or no."""
    if value.lower() not in _YES | _NO:
        raise BadConfig(f"{name} from {origin} is neither yes nor no", hint="Use yes or no.")
    return "yes" if yes(value) else "no"


def checked_choice(choices: tuple[str, ...], name: str, value: str, origin: str) -> str:
    """One of several words."""
    if value.lower() not in choices:
        raise BadConfig(
            f"{name} from {origin} is none of its values", hint=f"Use one of: {', '.join(choices)}."
        )
    return value.lower()


def checked_number(bounds: tuple[int, int], name: str, value: str, origin: str) -> str:
    """A whole number."""
    number = int(value) if value.isascii() and value.isdigit() and len(value) < 16 else -1
    if not bounds[0] <= number <= bounds[1]:
        raise BadConfig(
            f"{name} from {origin} is no number that can be used",
            hint=f"Use a whole number from {bounds[0]:,} to {bounds[1]:,}.",
        )
    return str(number)


def checked_text(name: str, value: str, origin: str) -> str:
    """Text on one line."""
    if len(value) > OPTION_CHARS_MAX or not value.isprintable():
        raise BadConfig(f"{name} from {origin} is too long, or has characters that cannot be shown")
    return value.strip()


def checked_folder(name: str, value: str, origin: str) -> str:
    """A folder by its absolute path, or one below the person's home (``~/…``)."""
    text = checked_text(name, value, origin)
    if text and not text.startswith("/") and text != "~" and not text.startswith("~/"):
        raise BadConfig(f"{name} from {origin} is no absolute path", hint="Begin it with / or ~/.")
    return text


def checked_address(name: str, value: str, origin: str) -> str:
    """An http or https address, without a slash at its end; "" for none."""
    text = checked_text(name, value, origin)
    try:
        parts = urlsplit(text)
        valid = not text or (parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0)
    except ValueError:
        valid, parts = False, urlsplit("")
    if not valid:
        raise BadConfig(
            f"{name} from {origin} is no http or https address", hint="It looks like http://127.0.0.1:8080."
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise BadConfig(
            f"{name} from {origin} has a user name, query or fragment in it",
            hint="It is shown in many places: give the plain address. A key goes into CRYSTAL_LLM_API_KEY.",
        )
    return text.rstrip("/")


def checked_names(name: str, value: str, origin: str) -> str:
    """Names of tools, between commas."""
    names = [part.strip().lower() for part in value.split(",") if part.strip()]
    if len(value) > OPTION_CHARS_MAX or not all(_TOOL.fullmatch(each) for each in names):
        raise BadConfig(
            f"{name} from {origin} is no list of names", hint="Put commas between them: codex,gemini-cli."
        )
    return ",".join(dict.fromkeys(names))


def checked_zone(name: str, value: str, origin: str) -> str:
    """A time zone of the IANA's list; "" for the system's."""
    text = checked_text(name, value, origin)
    if text:
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            ZoneInfo(text)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise BadConfig(
                f"{name} from {origin} is no time zone that is known here",
                hint="It looks like Europe/Berlin.",
            ) from error
    return text


def checked_denials(name: str, value: str, origin: str) -> str:
    """``DEVICE:ACTION`` between commas; either may be ``*``, a device is 8 or more digits of its id."""
    denials = [part.strip().lower() for part in value.split(",") if part.strip()]
    if len(value) > OPTION_CHARS_MAX or not all(_DENIAL.fullmatch(each) for each in denials):
        raise BadConfig(
            f"{name} from {origin} is no list of DEVICE:ACTION",
            hint="`crystal commands deny DEVICE ACTION` writes it for you.",
        )
    return ",".join(dict.fromkeys(denials))
