"""Which tests are quick: those that `make check` runs, beside the linters, in under three minutes on two cores.

Not slow, in folders that need no server and no browser, and founding no vault at a relay in a process of its own.
"""

from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parents[1]

FOLDERS = frozenset({"core", "crypto", "house", "mirror", "node", "prototype", "relay"})
_PROCESSES = frozenset({"machine", "moto_server", "rclone_server", "rgw_server", "swift_server", "vault"})
"""Fixtures that start processes, or of machines whose commands do."""
_ON_PROCESSES = frozenset({"node", "prototype"})
"""Folders whose fixture `relay` is a process too. That of tests/relay is a server in the test's own loop."""


def mark(items: list[pytest.Item]) -> None:
    """Give the quick ones their marker."""
    for item in items:
        if is_quick(item):
            item.add_marker(pytest.mark.quick)


def is_quick(item: pytest.Item) -> bool:
    folder = item.path.relative_to(_TESTS).parts[0]
    if folder not in FOLDERS or item.get_closest_marker("slow") is not None:
        return False
    fixtures: set[str] = set(getattr(item, "fixturenames", ()))
    return not fixtures & _PROCESSES and not (folder in _ON_PROCESSES and "relay" in fixtures)
