"""Lines from standard input that an event loop can wait for and give up on.

A thread that reads cannot be stopped, and an invite that expires must not leave one behind; so terminals and pipes are
read by the loop itself, byte by byte as they come. What is neither (a file, ``/dev/null``) never makes anybody wait.
"""

import asyncio
import io
import os
import select
import sys

from crystal_node.surfaces.cli.options import SECRET_CHARS_MAX


class InputLines:
    """Standard input, one line after the other. Nobody else may read it meanwhile."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._ended = False
        try:
            self._descriptor = None if sys.stdin is None else sys.stdin.fileno()
        except (io.UnsupportedOperation, ValueError):
            self._descriptor = None

    def at_end(self) -> bool:
        """Whether nothing will ever be typed here, as far as can be known without waiting: closed, or ``/dev/null``."""
        if self._descriptor is None:
            return sys.stdin is None
        if not self._buffer and select.select([self._descriptor], [], [], 0)[0]:
            data = os.read(self._descriptor, SECRET_CHARS_MAX)
            self._buffer += data
            self._ended = not data
        return self._ended and not self._buffer

    async def line(self) -> str | None:
        """The next line without its end; None when there is none any more. May be cancelled."""
        if self._descriptor is None:
            text = "" if sys.stdin is None else sys.stdin.readline(SECRET_CHARS_MAX)
            return text.rstrip("\r\n") if text else None
        while b"\n" not in self._buffer and not self._ended and len(self._buffer) < SECRET_CHARS_MAX:
            await self._readable(self._descriptor)
            data = os.read(self._descriptor, SECRET_CHARS_MAX)
            self._buffer += data
            self._ended = not data
        if not self._buffer:
            return None
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer[:] = rest
        return line.decode("utf-8", "replace").rstrip("\r")

    async def _readable(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(descriptor, ready.set)
        except PermissionError:  # epoll takes no files: those are always readable
            return
        try:
            await ready.wait()
        finally:
            loop.remove_reader(descriptor)
