"""The OpenAPI description of the prototype's routes, for a relay that serves them."""

from typing import Any

from crystal_prototype.relay.documents import V1ConfirmReply, V1DropReply, V1ErrorReply, V1ListReply
from crystal_prototype.relay.names import BLOB_BYTES_MAX, ID, V1Channel

Json = dict[str, Any]

V1_STRUCTS = (V1DropReply, V1ListReply, V1ConfirmReply, V1ErrorReply)
V1_SECURITY: Json = {
    "v1": {"type": "http", "scheme": "bearer", "description": "A token that `crystal-relay v1 add` made."}
}
_ERRORS = {
    400: "The request is malformed.",
    401: "There is no bearer token.",
    403: "The token is unknown, or was revoked.",
    429: "Too many requests of this device or address.",
    500: "The relay failed.",
    503: "The relay or its store is busy, or cannot be reached.",
}
_ABSENT = {404: "There is no such blob for this reader."}
_WITH_BODY = {
    408: "The body arrived too slowly.",
    411: "The size of the body was not declared.",
    413: "More bytes than allowed.",
    507: "There is no room for it.",
}


def v1_paths() -> Json:
    """The OpenAPI paths, by path and method."""
    channel = _path("channel", {"type": "string", "enum": list(V1Channel)})
    blob = _path("id", {"type": "string", "pattern": f"^{ID}$"})
    return {
        "/drop/{channel}": {
            "post": _operation(
                "v1Drop",
                "Keep a sealed blob for all readers of a channel. The same bytes again are the same drop.",
                [channel],
                _json("V1DropReply"),
                _WITH_BODY,
            )
            | {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": _BODY}}}}
        },
        "/pickup/{channel}": {
            "get": _operation(
                "v1List", "What the reader has not confirmed, in order.", [channel], _json("V1ListReply")
            )
        },
        "/pickup/{channel}/{id}": {
            "get": _operation("v1PickUp", "A blob's bytes.", [channel, blob], _BLOB, _ABSENT)
        },
        "/confirm/{channel}/{id}": {
            "delete": _operation(
                "v1Confirm",
                "This reader is done with the blob. When all readers are, it is deleted.",
                [channel, blob],
                _json("V1ConfirmReply"),
                _ABSENT,
            )
        },
    }


_BODY: Json = {"type": "string", "format": "binary", "minLength": 1, "maxLength": BLOB_BYTES_MAX}
_BLOB: Json = {
    "description": "The sealed bytes.",
    "headers": {
        "X-Agent-Id": {"schema": {"type": "string"}},
        "X-Dropped-At": {"schema": {"type": "string"}},
    },
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


def _operation(
    name: str, summary: str, parameters: list[Json], done: Json, errors: dict[int, str] | None = None
) -> Json:
    return {
        "operationId": name,
        "summary": summary,
        "parameters": parameters,
        "responses": {"200": done}
        | {
            str(status): {"description": said, "content": {"application/json": {"schema": _ERROR}}}
            for status, said in (_ERRORS | (errors or {})).items()
        },
        "security": [{"v1": []}],
    }


_ERROR: Json = {"$ref": "#/components/schemas/V1ErrorReply"}


def _json(name: str) -> Json:
    return {
        "description": "Done.",
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}},
    }


def _path(name: str, schema: Json) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": schema}
