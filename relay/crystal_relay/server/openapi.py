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
    TooManyRequests,
    TooSlow,
    Unauthorized,
)
from crystal_relay.keys import vault_prefix
from crystal_relay.limits import (
    INVITE_SLOT_CHARS_MAX,
    KEY_CHARS_MAX,
    LIST_LIMIT_MAX,
    WAIT_SECONDS_MAX,
    WAIT_TOKEN_CHARS_MAX,
)
from crystal_relay.server.scopes import CHANNELS
from crystal_relay.server.v1.openapi import V1_SECURITY, V1_STRUCTS, v1_paths
from crystal_relay.wire import (
    Condemnation,
    CondemnedReply,
    ErrorReply,
    HealthReply,
    ListReply,
    StateReply,
    TokenRegistration,
    TokenReply,
    TransferDone,
    TransferDoneReply,
    TransferReply,
    TransferRequest,
    VaultCreation,
    VaultReply,
    WaitReply,
)

Json = dict[str, Any]
Security = list[dict[str, list[str]]]

_STRUCTS = (
    VaultCreation,
    TokenRegistration,
    Condemnation,
    CondemnedReply,
    TransferRequest,
    TransferDone,
    TransferReply,
    TransferDoneReply,
    ListReply,
    WaitReply,
    VaultReply,
    TokenReply,
    HealthReply,
    StateReply,
    ErrorReply,
)
_NAME = "^[a-z0-9._-]*[a-z0-9_-][a-z0-9._-]*$"
"""A segment: at least one character that is no dot, so that it is neither `.` nor `..`. (`...` is one too; nobody needs it.)"""
_STREAM = "^[0-9a-f]{32}\\.[0-9a-f]{16}$"
_DEVICE = "^[0-9a-f]{32}$"
_INVITE_SLOT = f"^(?=.{{1,{INVITE_SLOT_CHARS_MAX}}}$)[a-z0-9._-]*[a-z0-9_-][a-z0-9._-]*$"
_KEYS: dict[str, dict[str, str]] = {
    "devlog/{slot}": {"slot": _NAME},
    "conversations/{stream}/{slot}": {"stream": _STREAM, "slot": _NAME},
    "mirror/{epoch}/{slot}": {"epoch": _NAME, "slot": _NAME},
    "commands/{stream}/{slot}": {"stream": _STREAM, "slot": _NAME},
    "cursor/{device}": {"device": _DEVICE},
    "blob/{name}": {"name": _NAME},
    "invite/{mailbox}/{slot}": {"mailbox": _DEVICE, "slot": _INVITE_SLOT},
}
"""OpenAPI has no parameters with slashes in them, so each channel's keys are described apart."""
_ALWAYS: tuple[type[RelayError], ...] = (BadRequest, TooManyRequests, RelayError, Busy)


def openapi_document(*, metrics: bool = False, v1: bool = False) -> bytes:
    """The document as JSON. `metrics`, `v1`: with the routes that not every relay has."""
    structs = (*_STRUCTS, *V1_STRUCTS) if v1 else _STRUCTS
    schemas, components = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
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
        "paths": _paths() | (_METRICS if metrics else {}) | (v1_paths() if v1 else {}),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "device": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "<device id, 32 hex>.<32 bytes, base64url>",
                },
                "metrics": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The relay's metrics token.",
                },
                **(V1_SECURITY if v1 else {}),
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
    device = _path_parameter("device", _DEVICE)
    of_device: Security = [{"device": []}]
    of_holder: Security = [{"device": []}, {"recovery": []}]
    return {
        "/health": {
            "get": _operation("health", "Whether the relay serves.", [], {"200": _json("HealthReply")})
        },
        "/health/live": {
            "get": _operation("live", "Whether the relay answers.", [], {"200": _json("StateReply")})
        },
        "/health/ready": {
            "get": _operation(
                "ready", "Whether requests should be sent here.", [], {"200": _json("StateReply")}
            )
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
                {"201": _json("VaultReply")} | _errors(*_WITH_BODY, Unauthorized, AlreadyExists),
                security=[{"enrollment": []}],
                body=_body("application/json", _reference("VaultCreation")),
            )
        },
        "/v2/vaults/{vault}/tokens": {
            "post": _operation(
                "registerToken",
                "Let a device's token in. Repeating it is no error.",
                [vault],
                {"201": _json("TokenReply")} | _errors(*_WITH_BODY, Unauthorized, Forbidden, AlreadyExists),
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
        **{f"/v2/vaults/{{vault}}/objects/{keys}": _object(keys, parts) for keys, parts in _KEYS.items()},
        "/v2/vaults/{vault}/condemned": {
            "post": _operation(
                "condemn",
                "Have objects deleted: some keys, or all that begin with a prefix up to a key. Never the device log.",
                [vault],
                {"202": _json("CondemnedReply")} | _errors(*_WITH_BODY, Unauthorized, Forbidden),
                security=of_device,
                body=_body("application/json", _reference("Condemnation")),
            )
        },
        "/v2/vaults/{vault}/transfers": {
            "post": _operation(
                "beginTransfer",
                "A request that moves a big blob straight to or from the bucket; or that it goes through the relay.",
                [vault],
                {"200": _json("TransferReply"), "201": _json("TransferReply")}
                | _errors(*_WITH_BODY, Unauthorized, Forbidden, NotFound),
                security=of_device,
                body=_body("application/json", _reference("TransferRequest")),
            )
        },
        "/v2/vaults/{vault}/transfers/done": {
            "post": _operation(
                "endTransfer",
                "Whether a blob that was put directly is there, and is the one that was put.",
                [vault],
                {"201": _json("TransferDoneReply")}
                | _errors(*_WITH_BODY, Unauthorized, Forbidden, NotFound, AlreadyExists),
                security=of_device,
                body=_body("application/json", _reference("TransferDone")),
            )
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
                    _query("token", {"type": "string", "maxLength": WAIT_TOKEN_CHARS_MAX}),
                    _query("timeout", {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX}),
                ],
                {"200": _json("WaitReply")} | _errors(Unauthorized, Forbidden),
                security=of_device,
            )
        },
    }


def _object(keys: str, parts: dict[str, str]) -> Json:
    channel = CHANNELS[keys.partition("/")[0]]
    where = [
        _path_parameter("vault", _DEVICE),
        *(_path_parameter(name, form) for name, form in parts.items()),
    ]
    of_device: Security = [{"device": []}]
    once = _header("If-None-Match", {"type": "string", "const": "*"}, required=not channel.overwritten)
    replaced: Json = {"204": {"description": "Replaced, and on disk."}} if channel.overwritten else {}
    size: Json = {"type": "string", "format": "binary", "maxLength": channel.bytes_max}
    name = keys.partition("/")[0].capitalize()
    return {
        "put": _operation(
            f"put{name}",
            f"Store an object of at most {channel.bytes_max} bytes: "
            + ("once with If-None-Match, else in place of the old one." if channel.overwritten else "once."),
            [*where, once],
            {"201": {"description": "Created, and on disk."}}
            | replaced
            | _errors(*_WITH_BODY, Unauthorized, Forbidden, AlreadyExists),
            security=of_device,
            body=_body("application/octet-stream", size),
        ),
        "get": _operation(
            f"get{name}",
            "An object, or one range of it.",
            [*where, _header("Range", {"type": "string", "pattern": "^bytes=[0-9]{1,15}-([0-9]{1,15})?$"})],
            {"200": _BYTES, "206": _BYTES} | _errors(Unauthorized, Forbidden, NotFound, BadRange),
            security=of_device,
        ),
        "delete": _operation(
            f"delete{name}",
            "Remove an object; no error if there is none.",
            where,
            {"204": {"description": "It is not there."}} | _errors(Unauthorized, Forbidden),
            security=of_device,
        ),
    }


_KEY_CHARS_MAX = KEY_CHARS_MAX - len(vault_prefix("0" * 32))
"""Of a key within its vault."""
_PREFIX: Json = {"type": "string", "pattern": "^([a-z0-9._-]+/)*[a-z0-9._-]*$", "maxLength": _KEY_CHARS_MAX}
_BYTES: Json = {
    "description": "The stored bytes.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}
_WITH_BODY: tuple[type[RelayError], ...] = (LengthRequired, TooLarge, TooSlow, StoreFull)


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


def _header(name: str, schema: Json, *, required: bool = False) -> Json:
    return {"name": name, "in": "header", "required": required, "schema": schema}


_METRICS: Json = {
    "/metrics": {
        "get": _operation(
            "metrics",
            "What the relay has counted, in Prometheus's text format.",
            [],
            {"200": _content("text/plain", {"type": "string"})} | _errors(Unauthorized),
            security=[{"metrics": []}],
        )
    }
}
