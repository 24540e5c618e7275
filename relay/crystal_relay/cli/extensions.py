"""The extensions that ship with the relay. To drop one, delete its folder and its lines here, in `app` and in `serve`."""

from crystal_prototype.relay.extension import PROTOTYPE, expiring
from crystal_relay.server.extension import Extension

EXTENSIONS: tuple[Extension, ...] = (PROTOTYPE,)
"""All extensions: their operator's commands work whether or not the relay serves their routes."""


def served(*, v1: bool, v1_expire_hours: int = 0) -> tuple[Extension, ...]:
    """The extensions whose routes a relay serves."""
    return (expiring(v1_expire_hours),) if v1 else ()
