"""Files that are read again when they change: tokens and the certificate of a relay that runs on.

A file that cannot be used after its change leaves what was read before, and is looked at again at its next change.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from crystal_relay.errors import RelayError

LOOK_SECONDS = 5.0
"""Between two looks at the files."""

_log = logging.getLogger("crystal_relay.server")


@asynccontextmanager
async def renewed(
    files: Mapping[Path, Callable[[], None]], *, look_seconds: float = LOOK_SECONDS
) -> AsyncGenerator[None]:
    """Call what belongs to a file, in a thread, each time that it has changed. It raises RelayError, OSError, ssl.SSLError."""
    seen = {file: _signature(file) for file in files}
    task = asyncio.create_task(_look(files, seen, look_seconds)) if files else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _look(
    files: Mapping[Path, Callable[[], None]], seen: dict[Path, object], look_seconds: float
) -> None:
    while True:
        await asyncio.sleep(look_seconds)
        for file, read in files.items():
            signature = _signature(file)
            if signature == seen[file]:
                continue
            seen[file] = signature
            try:
                await asyncio.to_thread(read)
            except (RelayError, OSError, ssl.SSLError) as error:
                _log.warning("%s has changed and is not used: %s", file.name, error)
            else:
                _log.warning("%s was read again", file.name)


def _signature(file: Path) -> object:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
