"""Unix sockets in a directory whose owner alone may use them.

The names of sockets are short: macOS allows 103 bytes, Linux 107. On Linux a longer one is named by its directory's descriptor.
"""

import os
import secrets
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from crystal_relay.errors import Unusable

PATH_BYTES_MAX = 100
_DESCRIPTORS = Path("/proc/self/fd")


def listen_at(path: Path, backlog: int) -> socket.socket:
    """A listening socket at `path` with mode 0600, replacing an old one. Raises OSError."""
    temporary = path.with_name(f"{path.name[:5]}.{secrets.token_hex(2)}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(temporary))
        try:
            # Set the mode before it listens, so that nobody connects earlier.
            temporary.chmod(0o600)
            listener.listen(backlog)
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


@contextmanager
def short_path(directory: Path, name: str) -> Generator[Path]:
    """The path of the socket `name`, short enough for an address while the context lasts. Raises Unusable, OSError."""
    path = directory / name
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield path
        return
    if not _DESCRIPTORS.is_dir():
        raise Unusable(
            f"the path of the socket has more than {PATH_BYTES_MAX} bytes",
            hint="Choose a directory with a shorter path.",
        )
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _DESCRIPTORS / str(descriptor) / name
    finally:
        os.close(descriptor)
