"""What a relay reads of strangers, devices and other relay processes, and what a device reads of a relay."""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterable

import httpx
import msgspec

from crystal_relay.address import check_relay_url
from crystal_relay.client.direct import GrantRefused, checked_grant
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import UNDECODABLE, BadRequest, Forbidden, RelayError
from crystal_relay.s3.address import parse_s3_address
from crystal_relay.server.expiry import parse_expiry
from crystal_relay.server.founding import check_deletion, check_founding
from crystal_relay.server.peers.messages import AUTHORIZATION, News, read, sign
from crystal_relay.server.scopes import mailbox_of, parse_place
from crystal_relay.wire import (
    DeletionRequest,
    Direction,
    TransferReply,
    TransferRequest,
    VaultCreation,
    error_of_reply,
)
from tests.fuzz.seeds import with_nested_json
from tests.fuzz.served import DEVICE, ENROL, RECOVERY, VAULT, FuzzedServer
from tests.fuzz.target import Target
from tests.vectors.vectorfile import read_folder

_NAME = "ef" * 32
_NEWS = News("01" * 8, "02" * 8, 3, 1, 2, "http://127.0.0.1:1", [("v/a", 2)], [VAULT])


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@functools.cache
def _server() -> FuzzedServer:
    return FuzzedServer()


def _http(data: bytes) -> None:
    _server().send(data)


def request(line: str, body: bytes = b"", *headers: str) -> bytes:
    """A request as bytes."""
    head = [f"{line} HTTP/1.1", "Host: relay", *headers]
    if body or line.startswith(("PUT", "POST")):
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + body


def _http_seeds() -> Iterable[bytes]:
    device = f"Authorization: Bearer {_server().token}"
    root = f"Authorization: Crystal-Recovery {RECOVERY.hex()}"
    once = "If-None-Match: *"
    json = "Content-Type: application/json"
    at = f"/v2/vaults/{VAULT}"
    token = f'{{"device":"{DEVICE}","token_hash":"{_NAME}","preset":"device"}}'.encode()
    members = f'{{"devices":["{DEVICE}"],"leads":["{DEVICE}"]}}'.encode()
    return [
        request("GET /health"),
        request("GET /v2/openapi.json"),
        request(f"PUT {at}/objects/devlog/0", b"an entry", device, once),
        request(f"GET {at}/objects/devlog/0", b"", device, "Range: bytes=2-4"),
        request(f"PUT {at}/objects/cursor/{DEVICE}", b"a cursor", device),
        request(f"GET {at}/objects?prefix=devlog/&after=devlog/0&limit=3", b"", device),
        request(f"DELETE {at}/objects/devlog/0", b"", device),
        request(f"GET {at}/wait?prefix=devlog/&timeout=0", b"", device),
        request(f"POST {at}/condemned", b'{"keys":["devlog/0"]}', device, json),
        request(f"POST {at}/tokens", token, root, json),
        request(f"DELETE {at}/tokens/{'01' * 16}", b"", device),
        request(f"PUT {at}/members", members, root, json),
        request(f"PUT {at}/leads/{DEVICE}", b"", root),
        request(
            f"POST {at}/invites",
            f'{{"mailbox":"{"12" * 16}","access_hash":"{_NAME}"}}'.encode(),
            device,
            json,
        ),
        request(
            f"PUT {at}/invites/{'12' * 16}/short",
            f'{{"place":"{"34" * 16}","sealed":"AAEC"}}'.encode(),
            device,
            json,
        ),
        request(f"GET /v2/invites/{'34' * 16}"),
        request(f"GET {at}/invites/{'12' * 16}", b"", f"Authorization: Crystal-Invite {'12' * 16}.{_NAME}"),
        request(f"POST {at}/transfers", f'{{"key":"blob/{_NAME}","direction":"get"}}'.encode(), device, json),
        request("POST /v2/vaults", b'{"vault": 1}', f"Authorization: Bearer {ENROL}", json),
        request("GET /health") + request("GET /health"),
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    ]


def _client(data: bytes) -> None:
    """Status, one header and body of an answer. Whatever they are, a device gets a value or an error of the relay's tree."""
    if len(data) < 3:
        return
    status = 200 + int.from_bytes(data[:2], "big") % 400
    header, _, body = data[2:].partition(b"\n")
    name, _, value = header.partition(b":")
    _asker().ask(status, name, value, body)


class _Asker:
    """A device's client of a relay whose answers are made up."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._answer: Callable[[], httpx.Response] = lambda: httpx.Response(500)
        self._store = HttpStore(
            "http://127.0.0.1:1",
            vault=VAULT,
            token=f"{DEVICE}.x",
            transport=httpx.MockTransport(lambda _: self._answer()),
        )

    def ask(self, status: int, name: bytes, value: bytes, body: bytes) -> None:
        self._answer = lambda: httpx.Response(status, headers=[(name, value)], stream=httpx.ByteStream(body))
        for asked in (self._listed, self._got):
            with contextlib.suppress(RelayError):
                self._loop.run_until_complete(asked())

    async def _listed(self) -> None:
        found = await self._store.list(f"v/{VAULT}/devlog/")
        assert all(entry.key.startswith(f"v/{VAULT}/devlog/") for entry in found.entries)

    async def _got(self) -> None:
        found = await self._store.get(f"v/{VAULT}/devlog/0", start=2, length=4)
        assert len(await found.read()) <= 4


@functools.cache
def _asker() -> _Asker:
    return _Asker()


def _client_seeds() -> Iterable[bytes]:
    bodies = [
        b'{"entries": [{"key": "devlog/1", "size": 3}], "more": false}',
        b'{"error": "not-found", "message": "there is no such object", "hint": "x"}',
        b"2345",
    ]
    for status in (0, 6, 216, 204, 303):
        for body in with_nested_json(bodies):
            yield status.to_bytes(2, "big") + b"content-range: bytes 2-5/9\n" + body


def _error_reply(data: bytes) -> None:
    for status in (404, 412, 429, 500):
        error = error_of_reply(status, data, retry_after=_text(data[:4]))
        assert len(str(error)) <= 400
        assert str(error).isprintable()


def _grant(data: bytes) -> None:
    """What a relay offers as a signed request: it names https and a host, and no header of the device's own."""
    reply = msgspec.json.decode(data, type=TransferReply)
    put = TransferRequest(f"blob/{_NAME}", Direction.PUT, 9, "0" * 32)
    for asked in (put, TransferRequest(f"blob/{_NAME}", Direction.GET)):
        try:
            grant = checked_grant(reply, asked, may_be_loopback=False)
        except GrantRefused:
            continue
        assert grant.url.lower().startswith("https://")
        assert not {"authorization", "cookie", "host"} & {name.lower() for name in grant.headers}


def _grant_seeds() -> Iterable[bytes]:
    headers = {"If-None-Match": "*", "Content-Length": "9", "Content-MD5": "AAAAAAAAAAAAAAAAAAAAAA=="}
    replies = [
        TransferReply(True, True, "PUT", "https://bucket.example.org/a?X=1", headers, 300, 9, "r"),
        TransferReply(True, True, "GET", "https://bucket.example.org/a", {"x-amz-a": "b"}, 300, 2**20),
        TransferReply(False, True),
    ]
    return with_nested_json(msgspec.json.encode(reply) for reply in replies)


def _founding(data: bytes) -> None:
    host, _, body = data.partition(b"\n")
    creation = msgspec.json.decode(body, type=VaultCreation)
    assert msgspec.json.decode(msgspec.json.encode(creation), type=VaultCreation) == creation
    check_founding(creation, host.decode("ascii", "replace"))


def _founding_seeds() -> Iterable[bytes]:
    vectors = [*read_folder("founding")]
    return with_nested_json(
        vector.fields["host"].encode() + b"\n" + vector.body for vector in vectors if len(vector.body) < 8_000
    )


def _deletion(data: bytes) -> None:
    vault, (host, _, body) = data[:16], data[16:].partition(b"\n")
    request = msgspec.json.decode(body, type=DeletionRequest)
    assert msgspec.json.decode(msgspec.json.encode(request), type=DeletionRequest) == request
    check_deletion(vault.ljust(16).hex(), 1, request, host.decode("ascii", "replace"))


def _deletion_seeds() -> Iterable[bytes]:
    vectors = [*read_folder("deletion")]
    return with_nested_json(
        bytes.fromhex(vector.fields["vault"]) + vector.fields["host"].encode() + b"\n" + vector.body
        for vector in vectors
    )


def _news(data: bytes) -> None:
    news, _ = read(b"secret", AUTHORIZATION + sign(b"secret", data), data)
    assert msgspec.json.decode(msgspec.json.encode(news), type=News) == news


def _keys(data: bytes) -> None:
    text = _text(data)
    parse_expiry(text)
    mailbox_of(text)
    place = parse_place(text)
    assert place.key == text


def _address(data: bytes) -> None:
    text = _text(data)
    with contextlib.suppress(RelayError):
        parse_s3_address("s3://bucket/prefix", text)
    with contextlib.suppress(RelayError):
        parse_s3_address(text)
    checked = check_relay_url(text)
    assert checked.lower().startswith(("https://", "http://"))


TARGETS = (
    Target("relay.http", _http, (), _http_seeds, 8192),
    Target("relay.client", _client, (), _client_seeds, 8192),
    Target(
        "relay.error_reply",
        _error_reply,
        (),
        lambda: with_nested_json(
            [b'{"error": "too-many-requests", "message": "x", "hint": "y", "seconds_ago": 3}']
        ),
        8192,
    ),
    Target("relay.founding", _founding, (*UNDECODABLE, Forbidden), _founding_seeds, 8192),
    Target("relay.deletion", _deletion, (*UNDECODABLE, Forbidden), _deletion_seeds, 8192),
    Target("relay.grant", _grant, UNDECODABLE, _grant_seeds, 8192),
    Target(
        "relay.news",
        _news,
        (RelayError,),
        lambda: with_nested_json([msgspec.json.encode(_NEWS)]),
        8192,
    ),
    Target(
        "relay.keys",
        _keys,
        (BadRequest,),
        lambda: [
            b"devlog/0",
            f"conversations/{DEVICE}.{'0' * 16}/0".encode(),
            f"invite/{DEVICE}/offer".encode(),
            b"r/expiry/0000000001/vault.x",
        ],
    ),
    Target(
        "relay.address",
        _address,
        (RelayError,),
        lambda: [
            b"https://relay.example.org:1/x",
            b"http://127.0.0.1:18791",
            b"s3://bucket/prefix",
            b"https://[::1]",
        ],
    ),
)
