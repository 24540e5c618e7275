"""``crystal search --json`` with plain arguments: programs ask often, and most time would go into the parser and the settings.

Where the background service answers, neither is loaded; where it does not, the settings are, and this process searches.
Arguments that are not plain are left to the command itself.
"""

import json
import os
from collections.abc import Sequence
from typing import Any

from crystal_node.base.local_api import SEARCH_SECONDS_MAX, ask

_TEXTS = frozenset(
    {
        "agent",
        "project",
        "session",
        "role",
        "kind",
        "source",
        "device",
        "since",
        "until",
        "category",
        "status",
        "by",
        "intent",
    }
)
_NUMBERS = frozenset({"limit", "offset", "candidates"})
_SWITCHES: dict[str, dict[str, object]] = {
    "--json": {},
    "--fast": {"depth": "fast"},
    "--thinking": {"thinking": True},
    "--explain": {"explain": True},
}


def searched(arguments: Sequence[str], home: str) -> dict[str, object] | None:
    """The document that `search --json` prints; None if the command itself has to look at it. Raises what a search raises."""
    request = request_of(arguments)
    if request is None:
        return None
    try:
        answer = ask(
            home, "POST", "/api/search", json.dumps(request).encode("ascii"), seconds=SEARCH_SECONDS_MAX
        )
        if answer.good:
            return _without_gaps(json.loads(answer.body))
    except (OSError, ValueError, KeyError, TypeError):
        pass
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
