"""``crystal search --json`` with plain arguments: programs ask often, and most time would go into the parser and the settings.

Where the agent answers, nothing of either is loaded; where it does not, the settings are, and this process searches. What is
not plain in the arguments is left to the command itself, which says it as it always does. Speaks what ``memory_client.wire``
describes, without loading it: tests hold both against each other.
"""

import json
import os
import socket
from collections.abc import Sequence
from typing import Any

from crystal_node.base.local_api import reached

CONNECT_SECONDS_MAX = 0.5
ANSWER_SECONDS_MAX = 630.0
"""As ``memory_client.asking`` waits."""
_GREETING = b"crystal-find/1"

_TEXTS = frozenset(
    {
        "agent",
        "project",
        "session",
        "role",
        "kind",
        "source",
        "since",
        "until",
        "category",
        "status",
        "intent",
    }
)
_NUMBERS = frozenset({"limit", "offset", "candidates"})
_SWITCHES: dict[str, dict[str, object]] = {
    "--json": {},
    "--fast": {"depth": "fast"},
    "--explain": {"explain": True},
}


def searched(arguments: Sequence[str], home: str) -> dict[str, object] | None:
    """The document that `search --json` prints; None if the command itself has to look at it. Raises what a search raises."""
    request = request_of(arguments)
    if request is None:
        return None
    try:
        return _without_gaps(json.loads(_asked(home, json.dumps(request).encode("ascii"))))
    except (OSError, ValueError, KeyError, TypeError):
        return _searched_here(request)


def _searched_here(request: dict[str, object]) -> dict[str, object] | None:
    from msgspec import ValidationError, convert, to_builtins

    from crystal_core.embed.session import PROCESS_ENVIRONMENT
    from crystal_node.base.settings import resolve
    from crystal_node.search.finding.client import memory_client
    from crystal_node.search.finding.documents import SearchRequest

    try:
        wanted = convert(request, SearchRequest)
    except ValidationError:
        return None
    os.environ.update(PROCESS_ENVIRONMENT)
    with memory_client(resolve()) as found:
        return _without_gaps(to_builtins(found.search(wanted)))


def _without_gaps(document: Any) -> dict[str, object]:
    """Without explanations where none was asked for. Raises KeyError, TypeError for what is no such document."""
    for part in (document, *document["results"]):
        if part["explain"] is None:
            del part["explain"]
    found: dict[str, object] = document
    return found


def request_of(arguments: Sequence[str]) -> dict[str, object] | None:
    """A ``SearchRequest`` of these arguments behind `search`, not checked yet; None for what is not plain."""
    request: dict[str, object] = {}
    words: list[str] = []
    if "--json" not in arguments:
        return None
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        if word in _SWITCHES:
            request |= _SWITCHES[word]
        elif not word.startswith("-"):
            words.append(word)
        else:
            option, given, value = word.partition("=")
            name = "limit" if word == "-n" else option.removeprefix("--")
            if not given:
                value = rest.pop(0) if rest else ""
            if name in _TEXTS and option.startswith("--") and value and not value.startswith("-"):
                request[name] = value
            elif name in _NUMBERS and value.isascii() and value.isdigit():
                request[name] = int(value)
            else:
                return None
    query = " ".join(words)
    return {"query": query, **request} if query.strip() else None


def _asked(home: str, body: bytes) -> bytes:
    """The agent's answer. Raises OSError, ValueError: there is no agent, or it has no result."""
    path = os.path.join(home, "state", "agent", "find.sock")  # noqa: PTH118  pathlib costs 5 ms
    if not hasattr(socket, "AF_UNIX"):
        raise ValueError("no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(CONNECT_SECONDS_MAX)
        with reached(path) as name:
            if name is None:
                raise ValueError("no socket")
            line.connect(name)
        line.settimeout(ANSWER_SECONDS_MAX)
        line.sendall(b"%s search %d\n" % (_GREETING, len(body)) + body)
        with line.makefile("rb") as file:
            answer = file.read()
    header, _, found = answer.partition(b"\n")
    if header.split(b" ") != [_GREETING, b"ok", b"%d" % len(found)]:
        raise ValueError("not understood")
    return found
