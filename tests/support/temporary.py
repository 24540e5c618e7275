"""Where the tests' temporary directories lie: in memory where the system offers enough of it, else where pytest puts them.

A home in memory is founded four times as fast as one on a disk. `pytest.mark.disk` gives a test a `tmp_path` on the disk.
"""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "PYTEST_DEBUG_TEMPROOT"
"""pytest's own: the directory below which it makes its temporary ones. Who sets it has decided."""

_MEMORY = Path("/dev/shm")
_FREE_BYTES_MIN = 3 * 1024**3
"""Three times what a whole run has been seen to hold at one time."""


def use_memory() -> None:
    """Have this run's temporary directories in memory if there is enough, and nobody has said where they belong."""
    if VARIABLE not in os.environ and (folder := memory()) is not None:
        os.environ[VARIABLE] = str(folder)


def memory() -> Path | None:
    """A writable directory in memory with enough free space. None where there is none: containers often have 64 MB."""
    if not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK):
        return None
    return _MEMORY if shutil.disk_usage(_MEMORY).free >= _FREE_BYTES_MIN else None


@contextmanager
def on_disk(name: str) -> Generator[Path]:
    """A directory on the disk, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"{name[:30]}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()
