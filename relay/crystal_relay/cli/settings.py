"""What comes from the environment: secrets, which have no place in argv, where every user of the machine can read them."""

import os
from pathlib import Path

from crystal_relay.errors import BadRequest

ENROLL_VARIABLE = "CRYSTAL_RELAY_ENROLL_TOKEN"
METRICS_VARIABLE = "CRYSTAL_RELAY_METRICS_TOKEN"
_FILE_CHARS_MAX = 1024
_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")


def secret_of_environment(variable: str) -> str | None:
    """The token in that variable, or in the file that `<variable>_FILE` names. Raises BadRequest, which does not repeat it."""
    from crystal_relay.server.authorization import ENROLL_TOKEN

    # Taken out, so that it is not in the environment of anything started from here.
    token = os.environ.pop(variable, "")
    file = os.environ.pop(f"{variable}_FILE", "")
    if token and file:
        raise BadRequest(f"{variable} and {variable}_FILE are both set", hint="Set one of them.")
    if file:
        token = _token_in(Path(file), f"{variable}_FILE")
    elif not token:
        return None
    if ENROLL_TOKEN.match(token) is None:
        raise BadRequest(
            f"{variable}{'_FILE' if file else ''} holds no usable token",
            hint="It has 16 to 256 visible ASCII characters. `openssl rand -hex 32` makes a good one.",
        )
    return token


def _token_in(file: Path, variable: str) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(_FILE_CHARS_MAX).strip()
    except OSError as error:
        raise BadRequest(
            f"the file that {variable} names cannot be read ({error.strerror})",
            hint="It has to be readable by the user that the relay runs as.",
        ) from None


def secrets_of_environment() -> tuple[str, ...]:
    """What others read from the environment, for the log never to hold it."""
    return tuple(value for name in _SECRET_VARIABLES if (value := os.environ.get(name)))
