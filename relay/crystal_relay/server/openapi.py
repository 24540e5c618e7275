"""The OpenAPI description of the routes. Schemas come from the structs that parse and write the JSON."""

from collections.abc import Sequence
from importlib.metadata import version

import msgspec

from crystal_relay.errors import (
    AlreadyExists,
    BadRange,
    Forbidden,
    InviteOver,
    NotFound,
    Unauthorized,
)
from crystal_relay.invites import InviteSlot
from crystal_relay.keys import vault_prefix
from crystal_relay.limits import (
    KEY_CHARS_MAX,
    LIST_LIMIT_MAX,
    WAIT_SECONDS_MAX,
    WAIT_TOKEN_CHARS_MAX,
)
from crystal_relay.server.extension import Extension
from crystal_relay.server.openapi_access import ACCESS_STRUCTS, access_paths
from crystal_relay.server.openapi_parts import (
    HEX_ID,
    OF_DEVICE,
    OF_PARTY,
    WITH_BODY,
    Json,
    body,
    content,
    errors,
    header,
    json_reply,
    operation,
    path_parameter,
    query,
    reference,
)
from crystal_relay.server.scopes import CHANNELS
from crystal_relay.wire import (
    Condemnation,
    CondemnedReply,
    ErrorReply,
    HealthReply,
    ListReply,
    StateReply,
    TransferDone,
    TransferDoneReply,
    TransferReply,
    TransferRequest,
    VaultCreation,
    VaultReply,
    WaitReply,
)

_STRUCTS = (
    VaultCreation,
    *ACCESS_STRUCTS,
    Condemnation,
    CondemnedReply,
    TransferRequest,
    TransferDone,
    TransferReply,
    TransferDoneReply,
    ListReply,
    WaitReply,
    VaultReply,
    HealthReply,
    StateReply,
    ErrorReply,
)
_NAME = "^[a-z0-9._-]*[a-z0-9_-][a-z0-9._-]*$"
"""A segment: at least one character that is no dot, so that it is neither `.` nor `..`. (`...` is one too; nobody needs it.)"""
_STREAM = "^[0-9a-f]{32}\\.[0-9a-f]{16}$"
_INVITE_SLOT = f"^({'|'.join(InviteSlot)})$"
_KEYS: dict[str, dict[str, str]] = {
    "devlog/{slot}": {"slot": _NAME},
    "conversations/{stream}/{slot}": {"stream": _STREAM, "slot": _NAME},
    "mirror/{epoch}/{slot}": {"epoch": _NAME, "slot": _NAME},
    "commands/{stream}/{slot}": {"stream": _STREAM, "slot": _NAME},
    "cursor/{device}": {"device": HEX_ID},
    "blob/{name}": {"name": _NAME},
    "invite/{mailbox}/{slot}": {"mailbox": HEX_ID, "slot": _INVITE_SLOT},
}
"""OpenAPI has no parameters with slashes in them, so each channel's keys are described apart."""


def openapi_document(*, metrics: bool = False, extensions: Sequence[Extension] = ()) -> bytes:
    """The document as JSON. `metrics`, `extensions`: with the routes that not every relay has."""
    structs = (*_STRUCTS, *(struct for each in extensions for struct in each.structs))
    further: Json = {}
    security: Json = {}
    for each in extensions:
        further |= each.paths()
        security |= each.security
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
        "paths": _paths() | (_METRICS if metrics else {}) | further,
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
                **security,
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
                "invite": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "Crystal-Invite <mailbox, 32 hex>.<32 bytes, hex>",
                },
            },
        },
    }
    return msgspec.json.encode(document)


def _paths() -> Json:
    vault = path_parameter("vault", "^[0-9a-f]{32}$")
    return {
        "/health": {
            "get": operation("health", "Whether the relay serves.", [], {"200": json_reply("HealthReply")})
        },
        "/health/live": {
            "get": operation("live", "Whether the relay answers.", [], {"200": json_reply("StateReply")})
        },
        "/health/ready": {
            "get": operation(
                "ready", "Whether requests should be sent here.", [], {"200": json_reply("StateReply")}
            )
        },
        "/v2/openapi.json": {
            "get": operation(
                "openapi", "This document.", [], {"200": content("application/json", {"type": "object"})}
            )
        },
        "/v2/vaults": {
            "post": operation(
                "createVault",
                "Create a vault with its first device. Repeating it is no error.",
                [],
                {"201": json_reply("VaultReply")} | errors(*WITH_BODY, Unauthorized, AlreadyExists),
                security=[{"enrollment": []}],
                body=body("application/json", reference("VaultCreation")),
            )
        },
        **access_paths(),
        **{f"/v2/vaults/{{vault}}/objects/{keys}": _object(keys, parts) for keys, parts in _KEYS.items()},
        "/v2/vaults/{vault}/condemned": {
            "post": operation(
                "condemn",
                "Have objects deleted: some keys, or all that begin with a prefix up to a key. Never the device log.",
                [vault],
                {"202": json_reply("CondemnedReply")} | errors(*WITH_BODY, Unauthorized, Forbidden),
                security=OF_DEVICE,
                body=body("application/json", reference("Condemnation")),
            )
        },
        "/v2/vaults/{vault}/transfers": {
            "post": operation(
                "beginTransfer",
                "A request that moves a big blob straight to or from the bucket; or that it goes through the relay.",
                [vault],
                {"200": json_reply("TransferReply"), "201": json_reply("TransferReply")}
                | errors(*WITH_BODY, Unauthorized, Forbidden, NotFound),
                security=OF_DEVICE,
                body=body("application/json", reference("TransferRequest")),
            )
        },
        "/v2/vaults/{vault}/transfers/done": {
            "post": operation(
                "endTransfer",
                "Whether a blob that was put directly is there, and is the one that was put.",
                [vault],
                {"201": json_reply("TransferDoneReply")}
                | errors(*WITH_BODY, Unauthorized, Forbidden, NotFound, AlreadyExists),
                security=OF_DEVICE,
                body=body("application/json", reference("TransferDone")),
            )
        },
        "/v2/vaults/{vault}/list": {
            "get": operation(
                "list",
                "Keys that begin with a prefix and come after a key, in byte order.",
                [
                    vault,
                    query("prefix", _PREFIX),
                    query("after", _PREFIX),
                    query("limit", {"type": "integer", "minimum": 1, "maximum": LIST_LIMIT_MAX}),
                ],
                {"200": json_reply("ListReply")} | errors(Unauthorized, Forbidden, InviteOver),
                security=OF_PARTY,
            )
        },
        "/v2/vaults/{vault}/wait": {
            "get": operation(
                "wait",
                "Sleep until something under a prefix was written since the token was given out.",
                [
                    vault,
                    query("prefix", _PREFIX),
                    query("token", {"type": "string", "maxLength": WAIT_TOKEN_CHARS_MAX}),
                    query("timeout", {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX}),
                ],
                {"200": json_reply("WaitReply")} | errors(Unauthorized, Forbidden, NotFound, InviteOver),
                security=OF_PARTY,
            )
        },
    }


def _object(keys: str, parts: dict[str, str]) -> Json:
    channel = CHANNELS[keys.partition("/")[0]]
    where = [
        path_parameter("vault", HEX_ID),
        *(path_parameter(name, form) for name, form in parts.items()),
    ]
    invite = channel.form.groupindex.keys() >= {"mailbox"}
    of_party = OF_PARTY if invite else OF_DEVICE
    over = (NotFound, InviteOver) if invite else ()
    once = header("If-None-Match", {"type": "string", "const": "*"}, required=not channel.overwritten)
    replaced: Json = {"204": {"description": "Replaced, and on disk."}} if channel.overwritten else {}
    size: Json = {"type": "string", "format": "binary", "maxLength": channel.bytes_max}
    name = keys.partition("/")[0].capitalize()
    return {
        "put": operation(
            f"put{name}",
            f"Store an object of at most {channel.bytes_max} bytes: "
            + ("once with If-None-Match, else in place of the old one." if channel.overwritten else "once."),
            [*where, once],
            {"201": {"description": "Created, and on disk."}}
            | replaced
            | errors(*WITH_BODY, Unauthorized, Forbidden, AlreadyExists, *over),
            security=of_party,
            body=body("application/octet-stream", size),
        ),
        "get": operation(
            f"get{name}",
            "An object, or one range of it.",
            [*where, header("Range", {"type": "string", "pattern": "^bytes=[0-9]{1,15}-([0-9]{1,15})?$"})],
            {"200": _BYTES, "206": _BYTES} | errors(Unauthorized, Forbidden, NotFound, BadRange, *over),
            security=of_party,
        ),
        "delete": operation(
            f"delete{name}",
            "Remove an object; no error if there is none.",
            where,
            {"204": {"description": "It is not there."}} | errors(Unauthorized, Forbidden),
            security=OF_DEVICE,
        ),
    }


_KEY_CHARS_MAX = KEY_CHARS_MAX - len(vault_prefix("0" * 32))
"""Of a key within its vault."""
_PREFIX: Json = {"type": "string", "pattern": "^([a-z0-9._-]+/)*[a-z0-9._-]*$", "maxLength": _KEY_CHARS_MAX}
_BYTES: Json = {
    "description": "The stored bytes.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}
_METRICS: Json = {
    "/metrics": {
        "get": operation(
            "metrics",
            "What the relay has counted, in Prometheus's text format.",
            [],
            {"200": content("text/plain", {"type": "string"})} | errors(Unauthorized),
            security=[{"metrics": []}],
        )
    }
}
