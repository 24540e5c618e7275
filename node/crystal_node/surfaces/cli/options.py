"""Options that several verbs share, so that they read and behave alike everywhere."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from getpass import getpass
from typing import Annotated, TextIO

import typer

from crystal_node.base.errors import Usage

SECRET_CHARS_MAX = 4096

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document; errors are JSON on standard error.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]
Relay = Annotated[
    str | None,
    typer.Option("--relay", metavar="URL", help="The relay's address, such as https://relay.example.org."),
]
Agent = Annotated[
    str | None, typer.Option("--agent", metavar="ID", help="The agent that the texts belong to.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the trace of an error.", hidden=True)]


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
        raise Usage(
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


def is_terminal(*, output: bool = False) -> bool:
    """Whether a person sits at standard input (and, with ``output``, looks at standard output)."""
    return _is_tty(sys.stdout) if output else _is_tty(sys.stdin)


def _is_tty(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


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
        raise Usage("not confirmed, nothing was done", hint=f"Type {expect}, or add --yes.")


def ask(question: str) -> bool:
    """A question that a person at a terminal may say yes to; anything else is no."""
    sys.stderr.write(question)
    sys.stderr.flush()
    answer = sys.stdin.readline(SECRET_CHARS_MAX) if sys.stdin is not None else ""
    return answer.strip().lower() in ("y", "yes")
