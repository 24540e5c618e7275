"""The OpenAPI document of the routes, and the builders that extensions describe theirs with.

Schemas are derived from the structs that parse and write the JSON.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from crystal_relay.distribution import installed_version
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
from crystal_relay.invites import CloseReason, MailboxSlot
from crystal_relay.keys import vault_prefix
from crystal_relay.limits import (
    DELETIONS_MAX,
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
    DeletionReply,
    DeletionRequest,
    Devices,
    DevicesReply,
    ErrorReply,
    HealthReply,
    InviteCreation,
    InviteReply,
    KeysRequest,
    ListReply,
    RecoveryReplacement,
    RecoveryReply,
    SealedInviteReply,
    ShortInviteCreation,
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
    WrittenReply,
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
_STRUCTS = (
    VaultCreation,
    TokenRegistration,
    TokenReply,
    Devices,
    DevicesReply,
    RecoveryReplacement,
    RecoveryReply,
    DeletionRequest,
    DeletionReply,
    InviteCreation,
    InviteReply,
    ShortInviteCreation,
    SealedInviteReply,
    Condemnation,
    CondemnedReply,
    TransferRequest,
    TransferDone,
    TransferReply,
    TransferDoneReply,
    KeysRequest,
    WrittenReply,
    ListReply,
    WaitReply,
    VaultReply,
    HealthReply,
    StateReply,
    ErrorReply,
)
_NAME = "^[a-z0-9._-]*[a-z0-9_-][a-z0-9._-]*$"
"""A segment: at least one character is not a dot, so that it is neither `.` nor `..`."""
_STREAM = "^[0-9a-f]{32}\\.[0-9a-f]{16}$"
_INVITE_SLOT = f"^({'|'.join(MailboxSlot)})$"
_KEYS: dict[str, dict[str, str]] = {
    "devlog/{slot}": {"slot": _NAME},
    "conversations/{stream}/{slot}": {"stream": _STREAM, "slot": _NAME},
    "mirror/{epoch}/{slot}": {"epoch": _NAME, "slot": _NAME},
    "commands/{stream}/{slot}": {"stream": _STREAM, "slot": _NAME},
    "cursor/{device}": {"device": HEX_ID},
    "blob/{name}": {"name": _NAME},
    "invite/{mailbox}/{slot}": {"mailbox": HEX_ID, "slot": _INVITE_SLOT},
}
"""Each channel has its own path, since a parameter of OpenAPI cannot contain slashes."""
_KEY_CHARS_MAX = KEY_CHARS_MAX - len(vault_prefix("0" * 32))
"""Longest key within a vault."""
_PREFIX: Json = {"type": "string", "pattern": "^([a-z0-9._-]+/)*[a-z0-9._-]*$", "maxLength": _KEY_CHARS_MAX}
_BYTES: Json = {
    "description": "The stored bytes.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


def openapi_document(*, metrics: bool = False, extensions: Sequence[Extension] = ()) -> bytes:
    """The document as JSON, with the routes of `/metrics` and of extensions if the relay has them."""
    structs = (*_STRUCTS, *(struct for each in extensions for struct in each.structs))
    further: Json = {}
    security: Json = {}
    for each in extensions:
        further |= each.paths()
        security |= each.security
    schemas, components = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    del schemas  # only references into the components
    document: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "Crystal relay",
            "version": installed_version(),
            "license": {"name": "MIT", "identifier": "MIT"},
            "description": "A blind dead drop: it keeps sealed objects for vaults, in order, and wakes waiting devices.",
        },
        "servers": [{"url": "/"}],
        "paths": _paths() | (_metrics_path() if metrics else {}) | further,
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


def operation(
    name: str,
    summary: str,
    parameters: list[Json],
    responses: Json,
    *,
    security: Security | None = None,
    body: Json | None = None,
) -> Json:
    """One method of a route. Errors that every route can return are added."""
    operation: Json = {
        "operationId": name,
        "summary": summary,
        "parameters": parameters,
        "responses": responses | errors(*_ALWAYS),
        "security": security or [],
    }
    return operation if body is None else operation | {"requestBody": body}


def errors(*kinds: type[RelayError]) -> Json:
    """The responses for these errors."""
    return {
        str(kind.status): {"description": (kind.__doc__ or "").partition("\n")[0]}
        | {"content": {"application/json": {"schema": reference("ErrorReply")}}}
        for kind in kinds
    }


def json_reply(name: str) -> Json:
    """A successful response with a struct, by its name."""
    return content("application/json", reference(name))


def content(media: str, schema: Json) -> Json:
    """A successful response."""
    return {"description": "Done.", "content": {media: {"schema": schema}}}


def body(media: str, schema: Json) -> Json:
    """The body of a request."""
    return {"required": True, "content": {media: {"schema": schema}}}


def reference(name: str) -> Json:
    """A reference to a struct in the components."""
    return {"$ref": f"#/components/schemas/{name}"}


def path_parameter(name: str, pattern: str) -> Json:
    """A parameter in the path."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": pattern}}


def query(name: str, schema: Json) -> Json:
    """An optional query parameter."""
    return {"name": name, "in": "query", "required": False, "schema": schema}


def header(name: str, schema: Json, *, required: bool = False) -> Json:
    """A request header."""
    return {"name": name, "in": "header", "required": required, "schema": schema}


def _paths() -> Json:
    vault = path_parameter("vault", HEX_ID)
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
                "Create a vault with its first device. Idempotent.",
                [],
                {"201": json_reply("VaultReply")}
                | errors(*WITH_BODY, Unauthorized, Forbidden, AlreadyExists),
                security=[{"enrollment": []}],
                body=body("application/json", reference("VaultCreation")),
            )
        },
        **_token_paths(),
        **_recovery_paths(),
        **_deletion_paths(),
        **_invite_paths(),
        **{f"/v2/vaults/{{vault}}/objects/{keys}": _object(keys, parts) for keys, parts in _KEYS.items()},
        "/v2/vaults/{vault}/reads": {
            "post": operation(
                "readObjects",
                "Many small objects in one reply, framed.",
                [vault],
                {"200": _BYTES} | errors(LengthRequired, BodyTooLarge, TooSlow, Unauthorized, Forbidden),
                security=OF_DEVICE,
                body=body("application/json", reference("KeysRequest")),
            )
        },
        "/v2/vaults/{vault}/writes": {
            "post": operation(
                "writeObjects",
                "Create many small blobs, framed.",
                [vault],
                {"200": json_reply("WrittenReply")} | errors(*WITH_BODY, Unauthorized, Forbidden),
                security=OF_DEVICE,
                body=body("application/octet-stream", {"type": "string", "format": "binary"}),
            )
        },
        "/v2/vaults/{vault}/condemned": {
            "post": operation(
                "condemn",
                "Condemn objects to deletion: keys, or all under a prefix up to a key. Never the device log.",
                [vault],
                {"202": json_reply("CondemnedReply")} | errors(*WITH_BODY, Unauthorized, Forbidden),
                security=OF_DEVICE,
                body=body("application/json", reference("Condemnation")),
            )
        },
        "/v2/vaults/{vault}/transfers": {
            "post": operation(
                "beginTransfer",
                "A signed request for a large blob's transfer straight to or from the bucket, or a reply that there is none.",
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
                "Confirm that a blob put directly is in the bucket, with the receipt of that put.",
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
                "Wait until something under a prefix is written after the token was issued.",
                [
                    vault,
                    query("prefix", _PREFIX),
                    query("token", {"type": "string", "maxLength": WAIT_TOKEN_CHARS_MAX}),
                    query("timeout", {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX}),
                    header("Prefer", {"type": "string"}),
                ],
                {"200": json_reply("WaitReply")} | errors(Unauthorized, Forbidden, NotFound, InviteOver),
                security=OF_PARTY,
            )
        },
    }


def _token_paths() -> Json:
    vault, device = path_parameter("vault", HEX_ID), path_parameter("device", HEX_ID)
    return {
        "/v2/vaults/{vault}/tokens": {
            "post": operation(
                "registerToken",
                "Register a device's token. Idempotent.",
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
                "Revoke a device's tokens, or one of them, for good.",
                [vault, device, query("token_hash", {"type": "string", "pattern": "^[0-9a-f]{64}$"})],
                {"200": json_reply("TokenReply")} | errors(Unauthorized, Forbidden, StoreFull),
                security=OF_HOLDER,
            )
        },
        "/v2/vaults/{vault}/members": {
            "put": operation(
                "retainMembers",
                "Revoke, for good, the tokens of all devices except those named. With `leads`, only those lead. Idempotent.",
                [vault],
                {"200": json_reply("DevicesReply")} | errors(*WITH_BODY, Unauthorized, Forbidden),
                security=OF_HOLDER,
                body=body("application/json", reference("Devices")),
            )
        },
        "/v2/vaults/{vault}/leads/{device}": {
            "put": operation(
                "raiseDevice",
                "Give the preset `lead` to the present and future tokens of a device that has one.",
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
                "Replace the recovery secret. The number is one more than the present one.",
                [vault, {"name": "number", "in": "path", "required": True, "schema": number}],
                {"200": json_reply("RecoveryReply")}
                | errors(*WITH_BODY, Unauthorized, Forbidden, WrongNumber),
                security=OF_ROOT,
                body=body("application/json", reference("RecoveryReplacement")),
            )
        },
    }


def _deletion_paths() -> Json:
    vault = path_parameter("vault", HEX_ID)
    number: Json = {"type": "integer", "minimum": 1, "maximum": DELETIONS_MAX}
    one = [vault, {"name": "number", "in": "path", "required": True, "schema": number}]
    return {
        "/v2/vaults/{vault}/deletion": {
            "get": operation(
                "showDeletion",
                "Whether the vault is to be deleted, and when.",
                [vault],
                {"200": json_reply("DeletionReply")} | errors(Unauthorized, Forbidden),
                security=OF_DEVICE,
            )
        },
        "/v2/vaults/{vault}/deletion/{number}": {
            "put": operation(
                "askDeletion",
                "Have the vault deleted after a waiting time. The number is one more than the last one.",
                one,
                {"200": json_reply("DeletionReply")}
                | errors(*WITH_BODY, Unauthorized, Forbidden, WrongNumber),
                security=OF_ROOT,
                body=body("application/json", reference("DeletionRequest")),
            ),
            "delete": operation(
                "callOffDeletion",
                "Call the deletion of this number off. Idempotent.",
                one,
                {"200": json_reply("DeletionReply")} | errors(Unauthorized, Forbidden, NotFound, StoreFull),
                security=OF_HOLDER,
            ),
        },
    }


def _invite_paths() -> Json:
    vault, mailbox = path_parameter("vault", HEX_ID), path_parameter("mailbox", HEX_ID)
    reason: Json = {"type": "string", "enum": list(CloseReason)}
    return {
        "/v2/vaults/{vault}/invites": {
            "post": operation(
                "createInvite",
                "Open a mailbox to a new device for ten minutes. Idempotent.",
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
                "The state of an invite, also after its end.",
                [vault, mailbox],
                {"200": json_reply("InviteReply")} | errors(Unauthorized, Forbidden, NotFound),
                security=OF_PARTY,
            ),
            "delete": operation(
                "closeInvite",
                "End an invite. Idempotent; the first reason stays.",
                [vault, mailbox, query("reason", reason) | {"required": True}],
                {"200": json_reply("InviteReply")} | errors(Unauthorized, Forbidden, NotFound, StoreFull),
                security=OF_DEVICE,
            ),
        },
        "/v2/vaults/{vault}/invites/{mailbox}/short": {
            "put": operation(
                "keepShortInvite",
                "Keep the sealed bytes of an invite at a place, while it is open. Idempotent.",
                [vault, mailbox],
                {"201": json_reply("InviteReply")}
                | errors(*WITH_BODY, Unauthorized, Forbidden, NotFound, AlreadyExists, InviteOver),
                security=OF_DEVICE,
                body=body("application/json", reference("ShortInviteCreation")),
            )
        },
        "/v2/invites/{place}": {
            "get": operation(
                "readShortInvite",
                "The sealed bytes of an open invite, for anybody who knows where they lie.",
                [path_parameter("place", HEX_ID)],
                {"200": json_reply("SealedInviteReply")} | errors(Forbidden, NotFound, InviteOver),
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
    replaces = channel.overwritten or channel.restored
    once = header("If-None-Match", {"type": "string", "const": "*"}, required=not replaces)
    replaced: Json = {"204": {"description": "Replaced, and on disk."}} if replaces else {}
    size: Json = {"type": "string", "format": "binary", "maxLength": channel.bytes_max}
    name = keys.partition("/")[0].capitalize()
    return {
        "put": operation(
            f"put{name}",
            f"Store an object of at most {channel.bytes_max} bytes: "
            + ("once with If-None-Match, else replacing the old one." if replaces else "once."),
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
            "Delete an object. No error if there is none.",
            where,
            {"204": {"description": "The object does not exist."}} | errors(Unauthorized, Forbidden),
            security=OF_DEVICE,
        ),
    }


def _metrics_path() -> Json:
    return {
        "/metrics": {
            "get": operation(
                "metrics",
                "The relay's metrics, in Prometheus's text format.",
                [],
                {"200": content("text/plain", {"type": "string"})} | errors(Unauthorized),
                security=[{"metrics": []}],
            )
        }
    }
