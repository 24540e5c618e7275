"""What a person types: secrets, answers, confirmations, and lines that an event loop can wait for."""

import asyncio
import codecs
import io
import os
import select
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from getpass import getpass
from importlib.util import find_spec
from typing import TypeVar

from crystal_node.base.errors import UsageError, describe
from crystal_node.base.wording import printable
from crystal_node.surfaces.cli.console.output import note
from crystal_node.surfaces.cli.console.terminal import is_terminal

SECRET_CHARS_MAX = 4096
_END, _ESCAPE = "\x04", "\x1b"
_ERASE = ("\x7f", "\b")
_ERASE_ALL = ("\x15", "\x17")
"""What Ctrl-U and Ctrl-W send."""


def read_secret(prompt: str, *, what: str) -> str:
    """Read a secret: asked for without echo on a terminal until something is typed, else the first line of standard input.

    Raises:
        UsageError: standard input is at its end.
    """
    if is_terminal():
        try:
            while not (text := getpass(prompt)).strip():
                pass
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


def read_code(prompt: str, *, hidden: tuple[str, ...]) -> str:
    """Read a code: at a terminal as ``read_secret``, but shown while it is typed unless it begins with one of ``hidden``.

    Raises:
        UsageError: standard input is at its end.
    """
    if not is_terminal() or find_spec("termios") is None:
        return read_secret(prompt, what="code")
    text: str | None = ""
    while text is not None and not text.strip():
        text = _typed_code(prompt, hidden)
    if text is None:
        raise UsageError(
            "no code was given", hint="Type it at the prompt, or pipe it: the first line is read."
        )
    return text.strip()


def _typed_code(prompt: str, hidden: tuple[str, ...]) -> str | None:
    """A line from the terminal; None at its end. Nothing is shown of what may become a hidden one."""
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    keys = [*before[6]]
    keys[termios.VMIN], keys[termios.VTIME] = 1, 0
    silent = [*before[:3], before[3] & ~(termios.ECHO | termios.ICANON), *before[4:6], keys]
    termios.tcsetattr(descriptor, termios.TCSADRAIN, silent)
    line = _CodeLine(hidden)
    sys.stderr.write(prompt)
    sys.stderr.flush()
    try:
        while not line.ended:
            try:
                data = os.read(descriptor, 1)
            except OSError:  # the window was closed
                data = b""
            sys.stderr.write(line.take(data))
            sys.stderr.flush()
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stderr.write("\n")
    return line.text


class _CodeLine:
    """A line that is typed without the terminal's own editing. ``text`` is None once the input has ended."""

    def __init__(self, hidden: tuple[str, ...]) -> None:
        self.text: str | None = ""
        self.ended = False
        self._hidden = hidden
        self._shown = 0
        self._escape = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, data: bytes) -> str:
        """Takes one byte, b"" for the end of the input. Returns what the terminal is to show."""
        text = self.text or ""
        char = self._decoder.decode(data)
        if not data or (char == _END and not text):
            self.text, self.ended = None, True
        elif self._escape:
            self._escape = "" if char.isalpha() or char == "~" else self._escape + char
        elif char == _ESCAPE:
            self._escape = char
        elif char in ("\r", "\n"):
            self.ended = True
        elif char in _ERASE:
            self.text = text[:-1]
        elif char in _ERASE_ALL:
            self.text = ""
        elif char.isprintable() and len(text) < SECRET_CHARS_MAX:
            self.text = text + char
        return self._drawn()

    def _drawn(self) -> str:
        text = self.text or ""
        begins = text.lstrip().lower()
        secret = any(each.startswith(begins[: len(each)]) for each in self._hidden)
        want = text if not secret else text[: self._shown]
        erased = max(0, self._shown - len(want))
        drawn = "\b \b" * erased + want[self._shown :]
        self._shown = len(want)
        return drawn


T = TypeVar("T")


def until_right(work: Callable[[], T], wrong: tuple[type[Exception], ...]) -> T:
    """Repeat ``work``, which asks a person, until the answer is right. Says what was wrong with each answer.

    Raises:
        What ``work`` raises other than ``wrong``; UsageError at the end of standard input, and KeyboardInterrupt.
    """
    while True:
        try:
            return work()
        except wrong as error:
            tell_wrong(error)


def tell_wrong(error: Exception) -> None:
    """Say what was wrong with an answer, and what to do."""
    failure = describe(error)
    note(f"{printable(failure.message)}. {printable(failure.hint)}".strip())


@contextmanager
def unseen() -> Generator[Callable[[str], str | None]]:
    """Ask for lines on a terminal without echo; None when there are no more. Several lines may be pasted at once.

    Pasted lines beyond the last one asked for are dropped, so that no shell gets them.
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
    """Show ``about`` and have the person type ``expect``. With ``as_json`` and no terminal only the error is printed.

    Raises:
        UsageError: something else was typed, or nobody can type here.
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
    """Ask a yes-or-no question at a terminal; anything but yes is no."""
    sys.stderr.write(question)
    sys.stderr.flush()
    answer = sys.stdin.readline(SECRET_CHARS_MAX) if sys.stdin is not None else ""
    return answer.strip().lower() in ("y", "yes")


def typed_line(question: str, default: str) -> str:
    """Ask at a terminal. Enter is ``default``.

    Raises:
        UsageError: standard input is at its end.
    """
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline(SECRET_CHARS_MAX) if sys.stdin is not None else ""
    if not line:
        raise UsageError("nothing was typed", hint="Answer the question, or give the answer as an option.")
    return line.strip() or default


class InputLines:
    """Standard input line by line, for an event loop that can stop waiting. Nothing else may read it meanwhile.

    A thread that reads cannot be stopped, and must not outlive an invite that expires. So the loop itself reads terminals
    and pipes. A file or ``/dev/null`` is read directly, since it never blocks.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._ended = False
        try:
            self._descriptor = None if sys.stdin is None else sys.stdin.fileno()
        except (io.UnsupportedOperation, ValueError):
            self._descriptor = None

    def at_end(self) -> bool:
        """Whether no line will ever come, as far as is known without waiting: closed, or ``/dev/null``."""
        if self._descriptor is None:
            return sys.stdin is None
        if not self._buffer and select.select([self._descriptor], [], [], 0)[0]:
            data = os.read(self._descriptor, SECRET_CHARS_MAX)
            self._buffer += data
            self._ended = not data
        return self._ended and not self._buffer

    async def line(self) -> str | None:
        """The next line without its end; None at the end. May be cancelled."""
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
