"""The OpenAPI description of the routes. Schemas come from the structs that parse and write the JSON."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from crystal_relay.errors import (
    AlreadyExists,
    BadRange,
    BadRequest,
    BodyTooLarge,
    Busy,
    Forbidden,
    InviteOver,
    LengthRequired,
    NotFound,
    RelayError,
    StoreFull,
    TooManyInvites,
    TooManyRequests,
    TooSlow,
    Unauthorized,
    WrongNumber,
)
from crystal_relay.invites import CloseReason, InviteSlot
from crystal_relay.keys import vault_prefix
from crystal_relay.limits import (
    KEY_CHARS_MAX,
    LIST_LIMIT_MAX,
    RECOVERIES_MAX,
    WAIT_SECONDS_MAX,
    WAIT_TOKEN_CHARS_MAX,
)
from crystal_relay.server.extension import Extension
from crystal_relay.server.scopes import CHANNELS
from crystal_relay.wire import (
    Condemnation,
    CondemnedReply,
    Devices,
    DevicesReply,
    ErrorReply,
    HealthReply,
    InviteCreation,
    InviteReply,
    ListReply,
    RecoveryReplacement,
    RecoveryReply,
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


ACCESS_STRUCTS = (
    TokenRegistration,
    TokenReply,
    Devices,
    DevicesReply,
    RecoveryReplacement,
    RecoveryReply,
    InviteCreation,
    InviteReply,
)


def access_paths() -> Json:
    """By path and method."""
    return _token_paths() | _recovery_paths() | _invite_paths()


def _token_paths() -> Json:
    vault, device = path_parameter("vault", HEX_ID), path_parameter("device", HEX_ID)
    return {
        "/v2/vaults/{vault}/tokens": {
            "post": operation(
                "registerToken",
                "Let a device's token in. Repeating it is no error.",
                [vault],
                {"201": json_reply("TokenReply")}
                | errors(*WITH_BODY, Unauthorized, Forbidden, AlreadyExists),
                security=OF_HOLDER,
                body=body("application/json", reference("TokenRegistration")),
            )
        },
        "/v2/vaults/{vault}/tokens/{device}": {
            "delete": operation(
                "revokeToken",
                "Shut out a device's tokens, or one of them, for good.",
                [vault, device, query("token_hash", {"type": "string", "pattern": "^[0-9a-f]{64}$"})],
                {"200": json_reply("TokenReply")} | errors(Unauthorized, Forbidden, StoreFull),
                security=OF_HOLDER,
            )
        },
        "/v2/vaults/{vault}/members": {
            "put": operation(
                "retainMembers",
                "Shut out, for good, the tokens of all devices but those named. With `leads` no other devices lead. "
                "Repeating it is no error.",
                [vault],
                {"200": json_reply("DevicesReply")} | errors(*WITH_BODY, Unauthorized, Forbidden),
                security=OF_HOLDER,
                body=body("application/json", reference("Devices")),
            )
        },
        "/v2/vaults/{vault}/leads/{device}": {
            "put": operation(
                "raiseDevice",
                "Tokens of the device, which has one, and those to come too, have the preset `lead` from now on.",
                [vault, device],
                {"200": json_reply("TokenReply")} | errors(Unauthorized, Forbidden, NotFound, StoreFull),
                security=OF_HOLDER,
            )
        },
    }


def _recovery_paths() -> Json:
    vault = path_parameter("vault", HEX_ID)
    number: Json = {"type": "integer", "minimum": 1, "maximum": RECOVERIES_MAX}
    return {
        "/v2/vaults/{vault}/recovery": {
            "get": operation(
                "showRecovery",
                "How often the recovery secret was replaced.",
                [vault],
                {"200": json_reply("RecoveryReply")} | errors(Unauthorized, Forbidden),
                security=OF_DEVICE,
            )
        },
        "/v2/vaults/{vault}/recovery/{number}": {
            "put": operation(
                "replaceRecovery",
                "Have another recovery secret count, and none before it. The number is one more than the present one.",
                [vault, {"name": "number", "in": "path", "required": True, "schema": number}],
                {"200": json_reply("RecoveryReply")}
                | errors(*WITH_BODY, Unauthorized, Forbidden, WrongNumber),
                security=OF_ROOT,
                body=body("application/json", reference("RecoveryReplacement")),
            )
        },
    }


def _invite_paths() -> Json:
    vault, mailbox = path_parameter("vault", HEX_ID), path_parameter("mailbox", HEX_ID)
    reason: Json = {"type": "string", "enum": list(CloseReason)}
    return {
        "/v2/vaults/{vault}/invites": {
            "post": operation(
                "createInvite",
                "Open a mailbox to a newcomer, for ten minutes. Repeating it is no error.",
                [vault],
                {"201": json_reply("InviteReply")}
                | errors(*WITH_BODY, Unauthorized, Forbidden, AlreadyExists, InviteOver, TooManyInvites),
                security=OF_DEVICE,
                body=body("application/json", reference("InviteCreation")),
            )
        },
        "/v2/vaults/{vault}/invites/{mailbox}": {
            "get": operation(
                "showInvite",
                "What has become of an invite, also when it is over.",
                [vault, mailbox],
                {"200": json_reply("InviteReply")} | errors(Unauthorized, Forbidden, NotFound),
                security=OF_PARTY,
            ),
            "delete": operation(
                "closeInvite",
                "End an invite. Repeating it is no error; the first reason stays.",
                [vault, mailbox, query("reason", reason) | {"required": True}],
                {"200": json_reply("InviteReply")} | errors(Unauthorized, Forbidden, NotFound, StoreFull),
                security=OF_DEVICE,
            ),
        },
    }


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
