"""What commands print: JSON documents for programs, plain sentences and tables for people.

JSON goes out as UTF-8 whatever the locale says; sentences as well as the terminal can show them.
"""

import json
import sys
from collections.abc import Mapping


def json_line(document: Mapping[str, object]) -> str:
    """One JSON document on lines of its own, stable in its order, with every character readable."""
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def emit(document: Mapping[str, object]) -> None:
    """Prints a result for programs."""
    text = json_line(document)
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


def say(text: str = "") -> None:
    """Prints one line for people."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding) + "\n")


def note(text: str) -> None:
    """Prints a line about the work (not its result) to standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
