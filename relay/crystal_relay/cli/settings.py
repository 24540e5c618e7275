"""What comes from the environment: secrets, which have no place in argv, where every user of the machine can read them."""

import os

from crystal_relay.errors import BadRequest

ENROLL_VARIABLE = "CRYSTAL_RELAY_ENROLL_TOKEN"
METRICS_VARIABLE = "CRYSTAL_RELAY_METRICS_TOKEN"
_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")


def secret_of_environment(variable: str) -> str | None:
    """The token in that variable, if there is one. Raises BadRequest, which does not repeat it."""
    from crystal_relay.server.authorization import ENROLL_TOKEN

    # Taken out, so that it is not in the environment of anything started from here.
    token = os.environ.pop(variable, "")
    if not token:
        return None
    if ENROLL_TOKEN.match(token) is None:
        raise BadRequest(
            f"{variable} holds no usable token",
            hint="It has 16 to 256 visible ASCII characters. `openssl rand -hex 32` makes a good one.",
        )
    return token


def secrets_of_environment() -> tuple[str, ...]:
    """What others read from the environment, for the log never to hold it."""
    return tuple(value for name in _SECRET_VARIABLES if (value := os.environ.get(name)))
