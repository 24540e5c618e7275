"""What a person types: secrets, answers, confirmations, and lines that an event loop can give up on."""

import asyncio
import io
import os
import select
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from getpass import getpass

from crystal_node.base.errors import UsageError
from crystal_node.surfaces.cli.console.terminal import is_terminal

SECRET_CHARS_MAX = 4096


def read_secret(prompt: str, *, what: str) -> str:
    """A secret from standard input: asked for without echo on a terminal, else its first line.

    Raises:
        Usage: standard input is at its end.
    """
    if is_terminal():
        try:
            text = getpass(prompt)
        except EOFError:
            text = ""
    else:
        text = sys.stdin.readline(SECRET_CHARS_MAX) if sys.stdin is not None else ""
    if not text.strip():
        raise UsageError(
            f"no {what} was given",
            hint="Type it at the prompt, or pipe it: the first line is read.",
        )
    return text.strip()


@contextmanager
def unseen() -> Generator[Callable[[str], str | None]]:
    """Asks for lines at a terminal that are not shown; several may be pasted at once. None when there are no more.

    What was pasted beyond the last line that was asked for is dropped: no shell shall get it.
    """
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]

    def ask_line(prompt: str) -> str | None:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        line = sys.stdin.readline(SECRET_CHARS_MAX)
        sys.stderr.write("\n")
        return line.rstrip("\r\n") if line else None

    termios.tcsetattr(descriptor, termios.TCSADRAIN, silent)
    try:
        yield ask_line
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


def confirm(question: str, *, expect: str, about: str = "", as_json: bool = False) -> None:
    """Has the person type ``expect``, who is told ``about`` before. A program that wants JSON is told nothing but the error.

    Raises:
        Usage: something else was typed, or nobody can type here.
    """
    spoken = is_terminal() or not as_json
    if spoken:
        sys.stderr.write(f"{about.rstrip()}\n{question}" if about else question)
        sys.stderr.flush()
    answer = sys.stdin.readline(SECRET_CHARS_MAX) if sys.stdin is not None else ""
    if spoken and not is_terminal():
        sys.stderr.write("\n")
    if answer.strip().lower() != expect:
        raise UsageError("not confirmed, nothing was done", hint=f"Type {expect}, or add --yes.")


def ask(question: str) -> bool:
    """A question that a person at a terminal may say yes to; anything else is no."""
    sys.stderr.write(question)
    sys.stderr.flush()
    answer = sys.stdin.readline(SECRET_CHARS_MAX) if sys.stdin is not None else ""
    return answer.strip().lower() in ("y", "yes")


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
