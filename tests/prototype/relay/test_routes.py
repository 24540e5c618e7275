"""The prototype's paths, JSON and statuses as its devices know them, and the tricks to get around its tokens."""

import re
import secrets
from pathlib import Path

import httpx
import pytest

from crystal_prototype.relay.extension import PROTOTYPE
from crystal_prototype.relay.names import Role
from crystal_prototype.relay.tokens import Tokens
from crystal_relay.client.http import HttpStore
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from tests.prototype.device import V1Device, let_in
from tests.support.raw_http import RawConnection, raw_request
from tests.support.relay_server import ENROLL_TOKEN, ServedRelay, enrolled, served

ROUTES = [
    ("POST", "/drop/mirror"),
    ("GET", "/pickup/mirror"),
    ("GET", "/pickup/mirror/1763700000000-000000-0123456789ab-" + "0" * 32),
    ("DELETE", "/confirm/mirror/1763700000000-000000-0123456789ab-" + "0" * 32),
]
MOMENT = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z\Z")


async def test_the_answers_are_the_prototypes(core: V1Device, nodes: list[V1Device]) -> None:
    dropped = await core.drop("mirror", b"sealed")
    assert dropped.keys() == {"ok", "id", "channel", "size", "dropped_at"}
    assert (dropped["ok"], dropped["channel"], dropped["size"]) == (True, "mirror", 6)
    assert MOMENT.match(dropped["dropped_at"])
    listed = (await nodes[0].http.get("/pickup/mirror")).json()
    blob = {
        "id": dropped["id"],
        "size": 6,
        "dropped_at": dropped["dropped_at"],
        "agent_id": "cc-core",
    }
    assert listed == {"channel": "mirror", "count": 1, "blobs": [blob]}
    picked = await nodes[0].http.get(f"/pickup/mirror/{dropped['id']}")
    assert (picked.status_code, picked.content) == (200, b"sealed")
    assert picked.headers["content-type"] == "application/octet-stream"
    assert picked.headers["x-agent-id"] == "cc-core"
    assert picked.headers["x-dropped-at"] == dropped["dropped_at"]
    assert await nodes[0].confirm("mirror", dropped["id"]) == {"ok": True, "deleted": True}
    assert (await nodes[0].http.get("/pickup/mirror")).json() == {
        "channel": "mirror",
        "count": 0,
        "blobs": [],
    }


async def test_health_is_the_prototypes_and_ours(relay: ServedRelay) -> None:
    async with httpx.AsyncClient(base_url=relay.url) as http:
        body = (await http.get("/health")).json()
    assert (body["ok"], body["service"], body["mode"]) == (True, "memory-crystal-relay", "ephemeral")
    assert body["protocol"] == 2
    member = await enrolled(relay.url)
    store = member.store(relay.url)
    assert (await store.health()).mode == "ephemeral"
    await store.aclose()


async def test_without_the_switch_there_are_no_such_routes() -> None:
    store = MemoryStore()
    token, _ = await let_in(store, "cc-core", Role.CORE)
    async with served(store) as relay, httpx.AsyncClient(base_url=relay.url) as http:
        for method, path in ROUTES:
            headers = {"Authorization": f"Bearer {token}"}
            response = await http.request(method, path, headers=headers, content=b"sealed")
            assert response.status_code == 404
            assert response.json()["error"] == "no-such-route"
        body = (await http.get("/health")).json()
        assert body["service"] == "crystal-relay"
        assert "mode" not in body
        assert not [path for path in (await http.get("/v2/openapi.json")).json()["paths"] if "drop" in path]
    await store.aclose()


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_no_header_is_401_a_wrong_token_403(relay: ServedRelay, method: str, path: str) -> None:
    async with httpx.AsyncClient(base_url=relay.url) as http:
        response = await http.request(method, path, content=b"sealed")
        assert (response.status_code, response.json().keys()) == (401, {"error"})
        for wrong in ("constructor", "__proto__", "toString", "null", "A" * 43, "A" * 44, "x" * 5_000):
            headers = {"Authorization": f"Bearer {wrong}"}
            response = await http.request(method, path, headers=headers, content=b"sealed")
            assert (response.status_code, response.json().keys()) == (403, {"error"}), wrong
            assert wrong not in response.text


async def test_header_tricks_let_nobody_in(relay: ServedRelay, core: V1Device) -> None:
    async def status(*headers: str) -> int:
        lines = ["GET /pickup/conversations HTTP/1.1", "Host: relay", *headers]
        return (await raw_request(relay.url, ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))).status

    good = core.token
    assert await status(f"Authorization: Bearer {good}") == 200
    identity = (await Tokens(relay.store).identify(good)).id
    for header, expected in [
        ("Authorization:", 401),
        ("Authorization: Bearer", 401),
        (f"Authorization: bearer {good}", 401),
        (f"Authorization: BEARER {good}", 401),
        (f"Authorization: Basic {good}", 401),
        (f"Authorization: {good}", 401),
        (f"X-Authorization: Bearer {good}", 401),
        (f"Authorization: Bearer  {good}", 403),
        (f"Authorization: Bearer {good},", 403),
        (f"Authorization: Bearer {good} {good}", 403),
        (f"Authorization: Bearer {good[:-1]}", 403),
        (f'Authorization: Bearer "{good}"', 403),
        (f"Authorization: Bearer {identity}", 403),
        ("Authorization: Bearer constructor", 403),
        (f"Authorization: Bearer {good}\xe9", 400),
        (f"Authorization: Bearer ../{good}", 403),
    ]:
        assert await status(header) == expected, header.replace(good, "<token>")
    twice = f"Authorization: Bearer {good}"
    assert await status(twice, twice) == 400
    assert await status(twice, "Authorization: Bearer constructor") == 400


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/pickup/mirror/", 400, "the address ends with a slash"),
        ("POST", "/drop/mirror/", 400, "the address ends with a slash"),
        ("DELETE", "/confirm/mirror/", 400, "the address ends with a slash"),
        (
            "GET",
            "/pickup",
            400,
            "the address names no channel: there are conversations, mirror, commands, files",
        ),
        (
            "POST",
            "/drop/",
            400,
            "the address names no channel: there are conversations, mirror, commands, files",
        ),
        ("DELETE", "/confirm/mirror", 400, "the address names no id"),
        ("GET", "/pickup/letters/x/y", 400, "there are the channels conversations, mirror, commands, files"),
        ("GET", "/pickup/mirror/x/y", 404, "there is nothing at that address"),
        ("POST", "/drop/mirror/x", 404, "there is nothing at that address"),
        ("PUT", "/drop/mirror", 405, "/drop takes POST only"),
        ("GET", "/drop/mirror", 405, "/drop takes POST only"),
        ("POST", "/pickup/mirror", 405, "/pickup takes GET only"),
        ("GET", ROUTES[3][1], 405, "/confirm takes DELETE only"),
        ("PURGE", ROUTES[2][1], 405, "/pickup takes GET only"),
    ],
)
async def test_wrong_paths_and_methods_are_answered_in_the_prototypes_form(
    relay: ServedRelay, core: V1Device, method: str, path: str, status: int, said: str
) -> None:
    reply = await core.http.request(method, path)
    assert (reply.status_code, reply.json()) == (status, {"error": said})
    async with httpx.AsyncClient(base_url=relay.url) as stranger:
        reply = await stranger.request(method, path)
        assert (reply.status_code, reply.json().keys()) == (401, {"error"})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/status", 404), ("POST", "/drops/mirror", 404), ("POST", "/health", 405)],
)
async def test_paths_outside_of_the_prototypes_and_of_ours_are_answered_in_the_prototypes_form(
    relay: ServedRelay, core: V1Device, method: str, path: str, status: int
) -> None:
    """Its devices show `error` as a sentence."""
    reply = await core.http.request(method, path)
    assert (reply.status_code, reply.json().keys()) == (status, {"error"})
    assert " " in reply.json()["error"]
    assert ("allow" in reply.headers) == (status == 405)
    ours = await core.http.get("/v2/nothing")
    assert (ours.status_code, ours.json()["error"]) == (404, "no-such-route")


async def test_a_device_that_only_drops_reads_nothing_and_holds_nothing_back(
    relay: ServedRelay, core: V1Device, nodes: list[V1Device]
) -> None:
    async with await V1Device.added(relay.url, relay.store, "cc-hook", "sender") as sender:
        name = (await sender.drop("conversations", b"said"))["id"]
        for channel in ("conversations", "mirror"):
            reply = await sender.http.get(f"/pickup/{channel}")
            assert (reply.status_code, reply.json().keys()) == (403, {"error"})
        assert [blob["agent_id"] for blob in await core.listed("conversations")] == ["cc-hook"]
        assert await core.poll("conversations") == [b"said"]
        await core.drop("mirror", b"delta")
        for node in nodes:
            await node.poll("mirror")
        left = (await relay.store.list("w/default/")).entries
        assert [entry.key for entry in left if "/seen/" not in entry.key] == [], name


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "...",
        ".",
        "x",
        "1763700000000-000000-0123456789ab-" + "0" * 31,
        "1763700000000-000000-0123456789AB-" + "0" * 32,
        "9" * 300,
    ],
)
async def test_what_is_no_id_is_refused(core: V1Device, relay: ServedRelay, name: str) -> None:
    for method, route in (("GET", "pickup"), ("DELETE", "confirm")):
        lines = [
            f"{method} /{route}/conversations/{name} HTTP/1.1",
            "Host: relay",
            f"Authorization: Bearer {core.token}",
        ]
        reply = await raw_request(relay.url, ("\r\n".join(lines) + "\r\n\r\n").encode())
        assert (reply.status, reply.json.keys()) == (400, {"error"})


@pytest.mark.parametrize(
    "path",
    [
        "/pickup/../r/v1/token",
        "/pickup/mirror/../../r/v1",
        "/pickup/mirror/..%2f..%2fr",
        "/pickup/mirror%2f..",
        "/pickup//mirror",
        "/pickup/default/mirror/x",
        "/pickup/done",
        "/pickup/seen",
        "/pickup/MIRROR",
        "/pickup/mirror?space=elsewhere",
        "/pickup/mirror\u202e",
        "//pickup/mirror",
    ],
)
async def test_no_path_leads_out_of_the_channels(core: V1Device, relay: ServedRelay, path: str) -> None:
    lines = [f"GET {path} HTTP/1.1", "Host: relay", f"Authorization: Bearer {core.token}"]
    reply = await raw_request(relay.url, ("\r\n".join(lines) + "\r\n\r\n").encode())
    assert reply.status in (400, 404)


async def test_too_large_is_413_and_nothing_is_kept(relay: ServedRelay, core: V1Device) -> None:
    connection = await RawConnection.to(relay.url)
    head = f"POST /drop/mirror HTTP/1.1\r\nHost: relay\r\nAuthorization: Bearer {core.token}\r\n"
    await connection.send(f"{head}Content-Length: {100 * 1024 * 1024 + 1}\r\n\r\n".encode())
    reply = await connection.reply()
    assert (reply.status, reply.json.keys(), reply.headers["connection"]) == (413, {"error"}, "close")
    await connection.close()
    assert (await relay.store.list("w/")).entries == ()


async def test_an_empty_and_an_unannounced_body_are_refused(relay: ServedRelay, core: V1Device) -> None:
    assert (await core.http.post("/drop/mirror")).status_code == 400

    async def pieces() -> object:
        yield b"sealed"

    unannounced = await core.http.post("/drop/mirror", content=pieces())  # type: ignore[arg-type]
    assert (unannounced.status_code, unannounced.json().keys()) == (411, {"error"})
    assert (await relay.store.list("w/")).entries == ()


async def test_a_body_that_breaks_off_is_no_drop(relay: ServedRelay, core: V1Device) -> None:
    for size in (1_000, 3_000_000):
        connection = await RawConnection.to(relay.url)
        head = f"POST /drop/mirror HTTP/1.1\r\nHost: relay\r\nAuthorization: Bearer {core.token}\r\n"
        await connection.send(f"{head}Content-Length: {size}\r\n\r\n".encode() + b"x" * (size - 1))
        await connection.close()
    assert (await core.drop("mirror", b"whole"))["ok"]
    blobs = (await relay.store.list("w/default/mirror/")).entries
    assert [entry.size for entry in blobs] == [5]


async def test_the_same_relay_serves_vaults(
    relay: ServedRelay, core: V1Device, nodes: list[V1Device]
) -> None:
    member = await enrolled(relay.url)
    vault = HttpStore(relay.url, vault=member.vault, token=member.token)
    await vault.put_new(f"{member.prefix}blob/a", b"vault")
    await core.drop("mirror", b"old")
    assert await (await vault.get(f"{member.prefix}blob/a")).read() == b"vault"
    assert [entry.key for entry in (await vault.list(member.prefix)).entries] == [f"{member.prefix}blob/a"]
    assert await nodes[0].poll("mirror") == [b"old"]
    await vault.aclose()
    async with httpx.AsyncClient(base_url=relay.url) as http:
        old = {"Authorization": f"Bearer {core.token}"}
        new = {"Authorization": f"Bearer {member.token}"}
        assert (await http.get(f"/v2/vaults/{member.vault}/list", headers=old)).status_code == 401
        assert (await http.get("/pickup/mirror", headers=new)).status_code == 403


async def test_neither_tokens_nor_bodies_are_kept_in_clear_or_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    store = LocalStore(tmp_path / "relay")
    secret = secrets.token_hex(16).encode()
    settings = RelaySettings(enroll_token=ENROLL_TOKEN)
    async with (
        served(store, settings, extensions=[PROTOTYPE]) as relay,
        await V1Device.added(relay.url, store, "cc", "core") as core,
    ):
        name = (await core.drop("mirror", secret))["id"]
        await core.http.get(f"/pickup/mirror/{name}")
        token = core.token
    await store.aclose()
    files = b"".join(path.read_bytes() for path in (tmp_path / "relay").rglob("*") if path.is_file())
    assert token.encode() not in files
    ours = "".join(record.getMessage() for record in caplog.records if record.name.startswith("crystal"))
    assert ours
    for hidden in (token, secret.decode(), name):
        assert hidden not in ours
