"""Keeps other programs of the same user out of this process's memory, where keys are.

On Linux a process that is not dumpable leaves no core, not even to a crash handler that core files are piped to, and only root
may trace it or read `/proc/PID/mem` (prctl(2), PR_SET_DUMPABLE; ptrace(2)). Programs that it starts are
dumpable again. Other systems have nothing that a process can ask for by itself.
"""

import sys

_PR_SET_DUMPABLE = 4


def keep_others_out() -> None:
    """Called before a process has its first key. Idempotent; a debugger without root's rights cannot be attached afterwards."""
    if sys.platform != "linux":
        return
    import ctypes  # lazy: takes 2 ms

    # It fails for no process: the value is valid, and no right is needed.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
