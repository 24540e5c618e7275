"""`python -P -m crystal_relay`: the same as `crystal-relay`.

Without `-P`, the working directory leaves the search path first.
"""

import os
import sys
from contextlib import suppress


def _leave_out_the_working_directory() -> None:
    with suppress(OSError):  # it was removed, and is not on the path
        if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109 - pathlib is not loaded yet
            del sys.path[0]


_leave_out_the_working_directory()

from crystal_relay.cli import main  # noqa: E402 - the path comes first

if __name__ == "__main__":
    main()
