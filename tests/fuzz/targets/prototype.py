"""The published prototype's wire format, its relay routes and its names."""

import contextlib
import functools
import json
from collections.abc import Iterable

from crystal_crypto.errors import CryptoError
from crystal_prototype.relay.extension import PROTOTYPE
from crystal_prototype.relay.names import DropId, Role, check_agent, check_space, parse_channel
from crystal_prototype.relay.tokens import Tokens
from crystal_prototype.sealing import open_v1, seal_v1
from crystal_relay.errors import BadRequest
from crystal_relay.tokens import new_token, token_hash
from tests.fuzz.seeds import with_nested_json
from tests.fuzz.served import FuzzedServer
from tests.fuzz.target import Target
from tests.fuzz.targets.relay import request

_TOKEN = new_token("cd" * 16, bytes)
_ID = "1767600000000-000001-cc-core-" + "0" * 16


@functools.cache
def _server() -> FuzzedServer:
    server = FuzzedServer([PROTOTYPE])
    server.loop.run_until_complete(
        Tokens(server.store).add(token_hash(_TOKEN), "cc-core", Role.CORE, "default")
    )
    return server


def _http(data: bytes) -> None:
    _server().send(data)


def _http_seeds() -> Iterable[bytes]:
    device = f"Authorization: Bearer {_TOKEN}"
    document = json.dumps({"payload": "AAAA", "nonce": "x"}).encode()
    return [
        request("POST /drop/mirror", document, device, "Content-Type: application/json"),
        request("POST /drop/conversations", b"bytes", device, "Content-Type: application/octet-stream"),
        request("GET /pickup/conversations", b"", device),
        request(f"GET /pickup/conversations/{_ID}", b"", device),
        request(f"DELETE /confirm/conversations/{_ID}", b"", device),
    ]


def _sealed(data: bytes) -> None:
    open_v1(bytes(32), data)


def _names(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for check in (check_agent, check_space, parse_channel):
        with contextlib.suppress(BadRequest):
            assert str(check(text)) == text
    assert str(DropId.parse(text)) == text


TARGETS = (
    Target("prototype.http", _http, (), _http_seeds, 8192),
    Target(
        "prototype.sealed",
        _sealed,
        (CryptoError,),
        lambda: with_nested_json([seal_v1(bytes(32), b"a message", random=bytes)]),
        8192,
    ),
    Target("prototype.names", _names, (BadRequest,), lambda: [_ID.encode(), b"default", b"mirror"]),
)
