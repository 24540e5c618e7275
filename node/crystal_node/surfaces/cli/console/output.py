"""What commands print: JSON documents for programs, plain sentences for people.

JSON is UTF-8 in every locale; sentences are encoded for the terminal, with replacements.
"""

import json
import re
import sys
from collections.abc import Mapping

_COMMANDS = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What JSON may hold as it is and a terminal takes for a command: a name from another device may hold such."""


def json_line(document: Mapping[str, object]) -> str:
    """One JSON document over several lines, in a stable order, with every character readable."""
    return _json(document, indent=2)


class ReaderGone(Exception):
    """Standard output was closed by its reader (`crystal search … | head`)."""


def emit(document: Mapping[str, object]) -> None:
    """Print a result for programs. Raises ReaderGone."""
    _write(json_line(document).encode("utf-8", "backslashreplace"))


def emit_line(document: Mapping[str, object]) -> None:
    """Print an event for programs that follow: one document on one line. Raises ReaderGone."""
    _write(_json(document).encode("utf-8", "backslashreplace"))


def say(text: str = "") -> None:
    """Print one line for people. Raises ReaderGone."""
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
    """Print progress or a remark to standard error. Names in it may come from anywhere, so that it is made printable."""
    from crystal_node.base.wording import printable

    sys.stderr.write("\n".join(printable(line) for line in text.split("\n")) + "\n")
    sys.stderr.flush()
