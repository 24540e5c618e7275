"""``crystal search`` with plain arguments: it is called often, and most time would go into the parser and the settings.

Where the background service answers, neither is loaded; where it does not, the settings are, and this process searches.
Arguments that are not plain are left to the command itself. What people read is drawn as the command draws it.
"""

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crystal_node.base.local_api import SEARCH_SECONDS_MAX, ask
from crystal_node.surfaces.cli.console.output import emit

if TYPE_CHECKING:
    from crystal_node.search.finding.documents import SearchDocument, SearchRequest

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


def searched(arguments: Sequence[str], home: str) -> bool:
    """Search and print what `search` prints; False if the command itself has to look at it. Raises what a search raises."""
    request = request_of(arguments)
    if request is None:
        return False
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return _emitted(request, home) if "--json" in options else _shown(request, home)


def _emitted(request: dict[str, object], home: str) -> bool:
    body = _answer(request, home)
    try:
        document = None if body is None else without_gaps(json.loads(body))
    except (ValueError, KeyError, TypeError):
        document = None
    if document is None:
        from msgspec import ValidationError, convert, to_builtins

        from crystal_node.search.finding.documents import SearchRequest

        try:
            wanted = convert(request, SearchRequest)
        except ValidationError:
            return False
        document = without_gaps(to_builtins(_searched_here(wanted)))
    emit(document)
    return True


def _shown(request: dict[str, object], home: str) -> bool:
    from msgspec import ValidationError, convert
    from msgspec.json import decode

    from crystal_crypto.errors import UNDECODABLE
    from crystal_node.search.finding.documents import SearchDocument, SearchRequest
    from crystal_node.surfaces.cli.console.results import show_found

    try:
        wanted = convert(request, SearchRequest)
    except ValidationError:
        return False
    body = _answer(request, home)
    try:
        found = None if body is None else decode(body, type=SearchDocument)
    except UNDECODABLE:
        found = None
    show_found(_searched_here(wanted) if found is None else found, wanted)
    return True


def _answer(request: dict[str, object], home: str) -> bytes | None:
    """The service's answer; None if there is none, or it refused: the search itself then says why."""
    body = json.dumps(request).encode("ascii")
    try:
        answer = ask(home, "POST", "/api/search", body, seconds=SEARCH_SECONDS_MAX)
    except (OSError, ValueError):
        return None
    return answer.body if answer.good else None


def _searched_here(wanted: "SearchRequest") -> "SearchDocument":
    from crystal_core.embed.session import PROCESS_ENVIRONMENT
    from crystal_node.base.settings import resolve
    from crystal_node.search.finding.client import memory_client

    os.environ.update(PROCESS_ENVIRONMENT)
    with memory_client(resolve()) as finder:
        return finder.search(wanted)


def without_gaps(document: Any) -> dict[str, object]:
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
