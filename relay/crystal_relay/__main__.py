"""`python -P -m crystal_relay`: the same as `crystal-relay`. Without `-P`, the working directory leaves the search path first."""

import os
import sys
from contextlib import suppress

with suppress(OSError):  # the working directory was removed, and is not on the path
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109 - pathlib is not loaded yet
        del sys.path[0]

from crystal_relay.cli import main

if __name__ == "__main__":
    main()
