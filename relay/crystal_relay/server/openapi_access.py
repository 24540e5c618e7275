"""The description of the routes by which a vault says who may enter it: tokens, the recovery secret, invites."""

from crystal_relay.errors import (
    AlreadyExists,
    Forbidden,
    InviteOver,
    NotFound,
    StoreFull,
    TooManyInvites,
    Unauthorized,
    WrongNumber,
)
from crystal_relay.invites import CloseReason
from crystal_relay.limits import RECOVERIES_MAX
from crystal_relay.server.openapi_parts import (
    HEX_ID,
    OF_DEVICE,
    OF_HOLDER,
    OF_PARTY,
    OF_ROOT,
    WITH_BODY,
    Json,
    body,
    errors,
    json_reply,
    operation,
    path_parameter,
    query,
    reference,
)
from crystal_relay.wire import (
    Devices,
    DevicesReply,
    InviteCreation,
    InviteReply,
    RecoveryReplacement,
    RecoveryReply,
    TokenRegistration,
    TokenReply,
)

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
