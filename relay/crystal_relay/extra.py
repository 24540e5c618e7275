"""The extra `relay`: packages that only some relays need, and that a device installs without."""

from importlib.util import find_spec

from crystal_relay.errors import Unusable


def require(package: str, purpose: str) -> None:
    """Checks that a package of the extra is installed. `purpose`: what needs it. Raises Unusable, which names the extra."""
    if find_spec(package) is None:
        raise Unusable(
            f"{purpose} needs the package {package}, which is not installed",
            hint="Install the extra: `uv tool install 'memory-crystal[relay]'`, or `pip install 'memory-crystal[relay]'`.",
        )
