"""The extensions that ship with the relay. Dropping one is dropping its folder, and its lines here and in `app` and `serve`."""

from crystal_prototype.relay.extension import PROTOTYPE
from crystal_relay.server.extension import Extension

EXTENSIONS: tuple[Extension, ...] = (PROTOTYPE,)
"""All of them: an operator can ask for what they do whether or not the relay serves their routes."""


def served(*, v1: bool) -> tuple[Extension, ...]:
    """Those whose routes a relay serves."""
    return (PROTOTYPE,) if v1 else ()
