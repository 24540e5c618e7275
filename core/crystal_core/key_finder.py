"""How the keys of encrypted databases are found: said once by the composition root, asked at an opening that needs one.

It imports nothing at run time, because hooks load it that mostly open no database.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FindKey = Callable[["Path", str], bytes]
"""Returns the key of that id for the databases in a folder. Raises DatabaseKeyMissing, or why it cannot be read."""


def _nowhere(folder: "Path", wanted: str) -> bytes:
    from crystal_core.errors import DatabaseKeyMissing

    raise DatabaseKeyMissing(
        f"the databases in {folder} are encrypted with key {wanted[:8]}, and this program has no key store"
    )


_find: FindKey = _nowhere


def use(find: FindKey) -> None:
    """Set how all openings of this process find keys."""
    global _find  # noqa: PLW0603  a process has one key store, as it has one environment
    _find = find


def find(folder: "Path", wanted: str) -> bytes:
    """Return a key. Raises DatabaseKeyMissing, or why the key store cannot be read."""
    return _find(folder, wanted)
