"""A route of the API, and the description of all of them, made of the documents that they read and give."""

from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_node.surfaces.gateway.documents import ErrorDocument

Kind = type[msgspec.Struct]
Handler = Callable[[Request], Awaitable[Response]]
_ERRORS = (400, 401, 403, 404, 408, 409, 413, 421, 500, 502, 503, 504)
_JSON = "application/json"
_REFERENCE = "#/components/schemas/{name}"
_OPEN: dict[str, Any] = {"type": "object"}
"""Documents of other parts, which describe them: the status, and the published form of conversations."""


class ApiRoute(msgspec.Struct, frozen=True):
    """A route and its description. ``answer`` None: an object that is described elsewhere. ``names``: its parameters."""

    method: str
    path: str
    handler: Handler
    summary: str
    answer: Kind | None = None
    body: Kind | None = None
    query: Kind | None = None
    names: tuple[str, ...] = ()
    status: int = 200
    token: bool = True

    @property
    def served(self) -> Route:
        """For Starlette."""
        return Route(self.path, self.handler, methods=[self.method])


def openapi_document(routes: Sequence[ApiRoute]) -> dict[str, Any]:
    """The description of these routes, as OpenAPI 3.1."""
    kinds = {kind for route in routes for kind in (route.answer, route.body, route.query) if kind}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    _, components = msgspec.json.schema_components([*ordered, ErrorDocument], ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, components)
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


def _operation(route: ApiRoute, components: dict[str, Any]) -> dict[str, Any]:
    good = _reference(route.answer) if route.answer else _OPEN
    kept = _ERRORS if not route.path.startswith("/v1/") else ()
    operation: dict[str, Any] = {
        "summary": route.summary,
        "parameters": [*_named(route.names), *_asked(route.query, components)],
        "responses": {
            str(route.status): _content("It went well", good),
            **{str(status): _content("It did not", _reference(ErrorDocument)) for status in kept},
            **{str(status): _content("It did not", _OPEN) for status in _ERRORS if status not in kept},
        },
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": _reference(route.body)}}}
    if not route.token:
        operation["security"] = []
    return operation


def _named(names: Sequence[str]) -> list[dict[str, Any]]:
    shapes = {
        "id": {"type": "string", "minLength": 8, "maxLength": 64, "pattern": "^[0-9a-f]{8,64}$"},
        "conversation": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
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
