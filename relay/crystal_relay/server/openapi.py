"""The OpenAPI description of the routes. Schemas come from the structs that parse and write the JSON."""

from importlib.metadata import version
from typing import Any

import msgspec

from crystal_relay.errors import (
    AlreadyExists,
    BadRange,
    BadRequest,
    Busy,
    Forbidden,
    LengthRequired,
    NotFound,
    RelayError,
    StoreFull,
    TooLarge,
    TooSlow,
    Unauthorized,
)
from crystal_relay.limits import BLOB_BYTES_MAX, LIST_LIMIT_MAX, WAIT_SECONDS_MAX
from crystal_relay.wire import (
    ErrorReply,
    HealthReply,
    ListReply,
    TokenRegistration,
    TokenReply,
    VaultCreation,
    VaultReply,
    WaitReply,
)

Json = dict[str, Any]
Security = list[dict[str, list[str]]]

_STRUCTS = (
    VaultCreation,
    TokenRegistration,
    ListReply,
    WaitReply,
    VaultReply,
    TokenReply,
    HealthReply,
    ErrorReply,
)
_KEY_PATTERN = (
    "^(devlog/[a-z0-9._-]+|(conversations|commands)/[0-9a-f]{32}\\.[0-9a-f]{16}/[a-z0-9._-]+"
    "|mirror/[a-z0-9._-]+/[a-z0-9._-]+|cursor/[0-9a-f]{32}|blob/[a-z0-9._-]+)$"
)
_ALWAYS: tuple[type[RelayError], ...] = (BadRequest, RelayError, Busy)


def openapi_document() -> bytes:
    """The document as JSON."""
    schemas, components = msgspec.json.schema_components(_STRUCTS, ref_template="#/components/schemas/{name}")
    del schemas  # references to what stands in the components
    document: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "Crystal relay",
            "version": version("memory-crystal"),
            "license": {"name": "MIT", "identifier": "MIT"},
            "description": "A blind dead drop: it keeps sealed objects for vaults, in order, and wakes who waits.",
        },
        "servers": [{"url": "/"}],
        "paths": _paths(),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "device": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "<device id, 32 hex>.<32 bytes, base64url>",
                },
                "enrollment": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The relay's enrolment token.",
                },
                "recovery": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "Crystal-Recovery <32 bytes, hex>",
                },
            },
        },
    }
    return msgspec.json.encode(document)


def _paths() -> Json:
    vault = _path_parameter("vault", "^[0-9a-f]{32}$")
    key = _path_parameter("key", _KEY_PATTERN)
    device = _path_parameter("device", "^[0-9a-f]{32}$")
    of_device: Security = [{"device": []}]
    of_holder: Security = [{"device": []}, {"recovery": []}]
    return {
        "/health": {
            "get": _operation("health", "Whether the relay serves.", [], {"200": _json("HealthReply")})
        },
        "/v2/openapi.json": {
            "get": _operation(
                "openapi", "This document.", [], {"200": _content("application/json", {"type": "object"})}
            )
        },
        "/v2/vaults": {
            "post": _operation(
                "createVault",
                "Create a vault with its first device. Repeating it is no error.",
                [],
                {"201": _json("VaultReply")} | _errors(*_JSON_BODY, Unauthorized, AlreadyExists),
                security=[{"enrollment": []}],
                body=_body("application/json", _reference("VaultCreation")),
            )
        },
        "/v2/vaults/{vault}/tokens": {
            "post": _operation(
                "registerToken",
                "Let a device's token in. Repeating it is no error.",
                [vault],
                {"201": _json("TokenReply")} | _errors(*_JSON_BODY, Unauthorized, Forbidden, AlreadyExists),
                security=of_holder,
                body=_body("application/json", _reference("TokenRegistration")),
            )
        },
        "/v2/vaults/{vault}/tokens/{device}": {
            "delete": _operation(
                "revokeToken",
                "Shut out a device's tokens, or one of them, for good.",
                [vault, device, _query("token_hash", {"type": "string", "pattern": "^[0-9a-f]{64}$"})],
                {"200": _json("TokenReply")} | _errors(Unauthorized, Forbidden),
                security=of_holder,
            )
        },
        "/v2/vaults/{vault}/objects/{key}": {
            "put": _operation(
                "putObject",
                "Store an object: once (If-None-Match: *), or in place of the old one (cursors only, without it).",
                [vault, key, _header("If-None-Match", {"type": "string", "const": "*"})],
                {
                    "201": {"description": "Created, and on disk."},
                    "204": {"description": "Replaced, and on disk."},
                }
                | _errors(*_RAW_BODY, Unauthorized, Forbidden, AlreadyExists),
                security=of_device,
                body=_body(
                    "application/octet-stream",
                    {"type": "string", "format": "binary", "maxLength": BLOB_BYTES_MAX},
                ),
            ),
            "get": _operation(
                "getObject",
                "An object, or one range of it.",
                [
                    vault,
                    key,
                    _header("Range", {"type": "string", "pattern": "^bytes=[0-9]{1,15}-([0-9]{1,15})?$"}),
                ],
                {"200": _BYTES, "206": _BYTES} | _errors(Unauthorized, Forbidden, NotFound, BadRange),
                security=of_device,
            ),
            "delete": _operation(
                "deleteObject",
                "Remove an object; no error if there is none.",
                [vault, key],
                {"204": {"description": "It is not there."}} | _errors(Unauthorized, Forbidden),
                security=of_device,
            ),
        },
        "/v2/vaults/{vault}/list": {
            "get": _operation(
                "list",
                "Keys that begin with a prefix and come after a key, in byte order.",
                [
                    vault,
                    _query("prefix", _PREFIX),
                    _query("after", _PREFIX),
                    _query("limit", {"type": "integer", "minimum": 1, "maximum": LIST_LIMIT_MAX}),
                ],
                {"200": _json("ListReply")} | _errors(Unauthorized, Forbidden),
                security=of_device,
            )
        },
        "/v2/vaults/{vault}/wait": {
            "get": _operation(
                "wait",
                "Sleep until something under a prefix was written since the token was given out.",
                [
                    vault,
                    _query("prefix", _PREFIX),
                    _query("token", {"type": "string", "maxLength": 64}),
                    _query("timeout", {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX}),
                ],
                {"200": _json("WaitReply")} | _errors(Unauthorized, Forbidden),
                security=of_device,
            )
        },
    }


_PREFIX: Json = {"type": "string", "pattern": "^([a-z0-9._-]+/)*[a-z0-9._-]*$", "maxLength": 200}
_BYTES: Json = {
    "description": "The stored bytes.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}
_JSON_BODY: tuple[type[RelayError], ...] = (LengthRequired, TooLarge, TooSlow, StoreFull)
_RAW_BODY: tuple[type[RelayError], ...] = (LengthRequired, TooLarge, TooSlow, StoreFull)


def _operation(
    name: str,
    summary: str,
    parameters: list[Json],
    responses: Json,
    *,
    security: Security | None = None,
    body: Json | None = None,
) -> Json:
    operation: Json = {
        "operationId": name,
        "summary": summary,
        "parameters": parameters,
        "responses": responses | _errors(*_ALWAYS),
        "security": security or [],
    }
    return operation if body is None else operation | {"requestBody": body}


def _errors(*kinds: type[RelayError]) -> Json:
    return {
        str(kind.status): {"description": (kind.__doc__ or "").partition("\n")[0]}
        | {"content": {"application/json": {"schema": _reference("ErrorReply")}}}
        for kind in kinds
    }


def _json(name: str) -> Json:
    return _content("application/json", _reference(name))


def _content(media: str, schema: Json) -> Json:
    return {"description": "Done.", "content": {media: {"schema": schema}}}


def _body(media: str, schema: Json) -> Json:
    return {"required": True, "content": {media: {"schema": schema}}}


def _reference(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _path_parameter(name: str, pattern: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": pattern}}


def _query(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _header(name: str, schema: Json) -> Json:
    return {"name": name, "in": "header", "required": False, "schema": schema}
