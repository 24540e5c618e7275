"""What the descriptions of routes are made of: operations, answers, errors, parameters, as OpenAPI has them."""

from typing import Any

from crystal_relay.errors import (
    BadRequest,
    BodyTooLarge,
    Busy,
    LengthRequired,
    RelayError,
    StoreFull,
    TooManyRequests,
    TooSlow,
)

Json = dict[str, Any]
Security = list[dict[str, list[str]]]

OF_DEVICE: Security = [{"device": []}]
OF_ROOT: Security = [{"recovery": []}]
OF_HOLDER: Security = [{"device": []}, {"recovery": []}]
OF_PARTY: Security = [{"device": []}, {"invite": []}]
HEX_ID = "^[0-9a-f]{32}$"
WITH_BODY: tuple[type[RelayError], ...] = (LengthRequired, BodyTooLarge, TooSlow, StoreFull)


_ALWAYS: tuple[type[RelayError], ...] = (BadRequest, TooManyRequests, RelayError, Busy)


def operation(
    name: str,
    summary: str,
    parameters: list[Json],
    responses: Json,
    *,
    security: Security | None = None,
    body: Json | None = None,
) -> Json:
    """One method of a route. `errors` that every route has are added."""
    operation: Json = {
        "operationId": name,
        "summary": summary,
        "parameters": parameters,
        "responses": responses | errors(*_ALWAYS),
        "security": security or [],
    }
    return operation if body is None else operation | {"requestBody": body}


def errors(*kinds: type[RelayError]) -> Json:
    """What each of these errors is answered with."""
    return {
        str(kind.status): {"description": (kind.__doc__ or "").partition("\n")[0]}
        | {"content": {"application/json": {"schema": reference("ErrorReply")}}}
        for kind in kinds
    }


def json_reply(name: str) -> Json:
    """A struct, by its name."""
    return content("application/json", reference(name))


def content(media: str, schema: Json) -> Json:
    """A successful answer."""
    return {"description": "Done.", "content": {media: {"schema": schema}}}


def body(media: str, schema: Json) -> Json:
    """What a request carries."""
    return {"required": True, "content": {media: {"schema": schema}}}


def reference(name: str) -> Json:
    """To a struct in the components."""
    return {"$ref": f"#/components/schemas/{name}"}


def path_parameter(name: str, pattern: str) -> Json:
    """A part of the address."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": pattern}}


def query(name: str, schema: Json) -> Json:
    """A parameter that can be left out."""
    return {"name": name, "in": "query", "required": False, "schema": schema}


def header(name: str, schema: Json, *, required: bool = False) -> Json:
    """A header of the request."""
    return {"name": name, "in": "header", "required": required, "schema": schema}
