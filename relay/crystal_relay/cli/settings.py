"""What comes from the environment: secrets, which have no place in argv, where every user of the machine can read them."""

import os

from crystal_relay.errors import BadRequest

ENROLL_VARIABLE = "CRYSTAL_RELAY_ENROLL_TOKEN"


def enroll_token_of_environment() -> str | None:
    """The one enrolment token of this relay, if it was given one. Raises BadRequest."""
    return _secret(ENROLL_VARIABLE)


def _secret(variable: str) -> str | None:
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
