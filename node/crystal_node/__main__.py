"""``python -P -m crystal_node`` is the ``crystal`` command.

Without ``-P``, Python puts the working directory first on its search path. It goes before anything else is imported: what is
imported later, and Crystal imports most things when they are needed, never comes from there.
"""

import os
import sys
from contextlib import suppress


def _leave_out_the_working_directory() -> None:
    with suppress(OSError):  # it was removed, and is not on the path
        if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109 - pathlib is not loaded yet
            del sys.path[0]


_leave_out_the_working_directory()

from crystal_node.surfaces.cli import main  # noqa: E402 - the path comes first

sys.exit(main())
