"""What commands print: JSON documents for programs, plain sentences and tables for people.

JSON goes out as UTF-8 whatever the locale says; sentences as well as the terminal can show them.
"""

import json
import re
import sys
from collections.abc import Mapping

_COMMANDS = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What JSON may hold as it is and a terminal takes for a command: a name from another device may hold such."""


def json_line(document: Mapping[str, object]) -> str:
    """One JSON document on lines of its own, stable in its order, with every character readable."""
    return _json(document, indent=2)


class ReaderGone(Exception):
    """Whoever read standard output has closed it (`crystal search … | head`): there is nobody left to talk to."""


def emit(document: Mapping[str, object]) -> None:
    """Prints a result for programs. Raises ReaderGone."""
    _write(json_line(document).encode("utf-8", "backslashreplace"))


def emit_line(document: Mapping[str, object]) -> None:
    """Prints an event for programs that follow along: one document on one line. Raises ReaderGone."""
    _write(_json(document).encode("utf-8", "backslashreplace"))


def say(text: str = "") -> None:
    """Prints one line for people. Raises ReaderGone."""
    _write((text + "\n").encode(sys.stdout.encoding or "utf-8", "replace"))


def _json(document: Mapping[str, object], indent: int | None = None) -> str:
    text = json.dumps(document, ensure_ascii=False, indent=indent) + "\n"
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _write(data: bytes) -> None:
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise ReaderGone from error


def note(text: str) -> None:
    """Prints a line about the work (not its result) to standard error. Names in it may be anybody's: of files, of devices."""
    from crystal_node.base.wording import printable

    sys.stderr.write("\n".join(printable(line) for line in text.split("\n")) + "\n")
    sys.stderr.flush()
