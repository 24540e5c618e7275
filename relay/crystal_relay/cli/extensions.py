"""The extensions that ship with the relay. To drop one, delete its folder and its lines here, in `app` and in `serve`."""

from crystal_prototype.relay.extension import PROTOTYPE
from crystal_relay.server.extension import Extension

EXTENSIONS: tuple[Extension, ...] = (PROTOTYPE,)
"""All extensions: their operator's commands work whether or not the relay serves their routes."""


def served(*, v1: bool) -> tuple[Extension, ...]:
    """The extensions whose routes a relay serves."""
    return (PROTOTYPE,) if v1 else ()
