"""The description of all routes but the page's files, made of the documents that they read and give."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from crystal_node.derive.sources.results import SourcesStatus
from crystal_node.search import memories
from crystal_node.search.finding.documents import SearchDocument, SearchRequest, ShowDocument
from crystal_node.surfaces.gateway import documents
from crystal_node.surfaces.gateway.chat import ChatRequest

Kind = type[msgspec.Struct]
_ERRORS = (400, 401, 403, 404, 408, 409, 413, 421, 500, 502, 503, 504)
_JSON = "application/json"
_REFERENCE = "#/components/schemas/{name}"
_OPEN: dict[str, Any] = {"type": "object"}
"""Documents of other parts, which describe them: the status, and the published form of conversations."""


class _Route(msgspec.Struct, frozen=True):
    """``answer`` None: an object that is described elsewhere. ``names``: parameters within the path."""

    method: str
    path: str
    summary: str
    answer: Kind | None = None
    body: Kind | None = None
    query: Kind | None = None
    names: tuple[str, ...] = ()
    status: int = 200


_ROUTES = (
    _Route("post", "/api/session", "Use a link's code", documents.SessionDocument, documents.SessionRequest),
    _Route("delete", "/api/session", "Leave the page's session", documents.DoneDocument),
    _Route("post", "/api/search", "Find texts", SearchDocument, SearchRequest),
    _Route("get", "/api/show/{id}", "A text with its surroundings", ShowDocument, None, documents.ShowQuery, ("id",)),
    _Route("get", "/api/status", "How this device stands"),
    _Route("get", "/api/sources", "The sources of documents", SourcesStatus),
    _Route("get", "/api/memories", "The memories", memories.MemoriesDocument, None, documents.MemoriesQuery),
    _Route("post", "/api/memories", "Keep a sentence", memories.RememberedDocument, documents.MemoryRequest, status=201),
    _Route("patch", "/api/memories/{id}", "Change a memory", memories.MemoryDocument, documents.MemoryChange, None, ("id",)),
    _Route("get", "/api/memories/{id}/history", "How it came to be what it is", memories.HistoryDocument, names=("id",)),
    _Route("post", "/api/forget", "Remove texts everywhere", documents.ForgottenDocument, documents.ForgetRequest),
    _Route("get", "/api/jobs", "The agent's jobs", documents.JobsDocument),
    _Route("post", "/api/jobs/{name}/run", "Have a job run now", documents.JobDocument, names=("name",), status=202),
    _Route("post", "/api/jobs/{name}/pause", "Have it not run by itself", documents.JobDocument, names=("name",)),
    _Route("post", "/api/jobs/{name}/resume", "Have it run by itself again", documents.JobDocument, names=("name",)),
    _Route("post", "/process", "Work on conversations", documents.ProcessDocument, documents.ProcessRequest, status=202),
    _Route("post", "/v1/chat/completions", "Pass a conversation on", None, ChatRequest),
    _Route("get", "/v1/models", "The model that it goes to"),
    _Route("get", "/status", "That the gateway is there", documents.PublishedStatus),
    _Route("get", "/api/openapi.json", "This description"),
)  # fmt: skip


def openapi_document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    kinds = {kind for route in _ROUTES for kind in (route.answer, route.body, route.query) if kind}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    _, components = msgspec.json.schema_components(
        [*ordered, documents.ErrorDocument], ref_template=_REFERENCE
    )
    paths: dict[str, dict[str, Any]] = {}
    for route in _ROUTES:
        paths.setdefault(route.path, {})[route.method] = _operation(route, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Crystal's gateway", "version": version("memory-crystal")},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: _Route, components: dict[str, Any]) -> dict[str, Any]:
    good = _reference(route.answer) if route.answer else _OPEN
    kept = _ERRORS if not route.path.startswith("/v1/") else ()
    operation: dict[str, Any] = {
        "summary": route.summary,
        "parameters": [*_named(route.names), *_asked(route.query, components)],
        "responses": {
            str(route.status): _content("It went well", good),
            **{str(status): _content("It did not", _reference(documents.ErrorDocument)) for status in kept},
            **{str(status): _content("It did not", _OPEN) for status in _ERRORS if status not in kept},
        },
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": _reference(route.body)}}}
    if route.path == "/api/session" and route.method == "post":
        operation["security"] = []
    return operation


def _named(names: Sequence[str]) -> list[dict[str, Any]]:
    shapes = {
        "id": {"type": "string", "minLength": 8, "maxLength": 64, "pattern": "^[0-9a-f]{8,64}$"},
        "name": {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[a-z-]+$"},
    }
    return [{"name": name, "in": "path", "required": True, "schema": shapes[name]} for name in names]


def _asked(query: Kind | None, components: dict[str, Any]) -> list[dict[str, Any]]:
    if query is None:
        return []
    fields: dict[str, Any] = components[query.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": shape} for name, shape in fields.items()
    ]


def _content(words: str, shape: dict[str, Any]) -> dict[str, Any]:
    return {"description": words, "content": {_JSON: {"schema": shape}}}


def _reference(kind: Kind) -> dict[str, Any]:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}
