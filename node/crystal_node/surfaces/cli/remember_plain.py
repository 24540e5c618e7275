"""``crystal remember`` with plain arguments, where the background service does it: neither parser nor settings are loaded.

Arguments that are not plain, a terminal at which a person may be asked, and what the service refuses are left to the command
itself. Doing it twice is harmless: the same words are one memory.
"""

import json
import os
import sys
from collections.abc import Sequence
from io import StringIO

from crystal_node.base.local_api import ask
from crystal_node.surfaces.cli.console.output import emit
from crystal_node.surfaces.cli.console.remembered import show_remembered

_SECONDS_MAX = 10.0
PIECE_CHARS_MAX = 64 * 1024
"""As many characters of standard input are read as a memory may have bytes, and one more, so that longer ones are refused."""
_TEXTS = frozenset({"category", "scope"})


def remembered(arguments: Sequence[str], home: str) -> bool:
    """Have the service keep it, and print what `remember` prints; False if the command itself has to look at it."""
    request, as_json = request_of(arguments)
    if request is None or (sys.stdin.isatty() and not as_json):
        return False
    if request["text"] == "-":
        text = sys.stdin.read(PIECE_CHARS_MAX + 1)
        sys.stdin = StringIO(text)  # the command itself reads it where the service does not keep it
        request["text"] = text
    body = json.dumps(request).encode("ascii")
    try:
        answer = ask(home, "POST", "/api/memories", body, seconds=_SECONDS_MAX)
    except (OSError, ValueError):
        return False
    if not answer.good:
        return False
    document = json.loads(answer.body)
    if as_json:
        emit(document)
    else:
        show_remembered(document, asked=False)
    return True


def request_of(arguments: Sequence[str]) -> tuple[dict[str, object] | None, bool]:
    """What the service is asked for arguments behind `remember`, not checked yet, and whether JSON is wanted; None for what is
    not plain."""
    request: dict[str, object] = {}
    as_json = False
    words: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        if word == "--json":
            as_json = True
        elif word == "--keep-both":
            request["keep_both"] = True
        elif word == "-" or not word.startswith("-"):
            words.append(word)
        else:
            option, given, value = word.partition("=")
            name = option.removeprefix("--")
            if not given:
                value = rest.pop(0) if rest else ""
            if name not in _TEXTS or not value:
                return None, as_json
            request[name] = value
    if len(words) != 1 or not words[0]:
        return None, as_json
    try:
        folder = os.getcwd()  # noqa: PTH109 - pathlib costs 5 ms
    except OSError:
        return None, as_json
    return {"text": words[0], "folder": folder, **request}, as_json
