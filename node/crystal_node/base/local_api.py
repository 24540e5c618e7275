"""The agent's socket by a name that the system takes: a path may be longer than a socket's name. Loads next to nothing."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

NAME_BYTES_MAX = 100
"""Of 104 (macOS) to 108 (Linux)."""


@contextmanager
def reached(path: str) -> Generator[str | None]:
    """A name for the socket at ``path``, good within the context; None where there is none.

    On Linux what is too long is named by its folder, opened. Raises OSError: there is no such folder.
    """
    if len(os.fsencode(path)) <= NAME_BYTES_MAX:
        yield path
        return
    if not sys.platform.startswith("linux"):
        yield None
        return
    folder, name = os.path.split(path)
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{name}"
    finally:
        os.close(opened)
