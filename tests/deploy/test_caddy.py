"""The Caddyfile, run by a real Caddy before a real relay: what must pass passes, what must stay inside stays inside."""

import asyncio
import json
import re
import secrets
import subprocess
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import pytest

from crystal_relay.client.http import HttpStore
from crystal_relay.errors import StoreUnavailable
from crystal_relay.limits import BLOB_BYTES_MAX, MIB, OBJECT_BYTES_MAX, WAIT_SECONDS_MAX
from crystal_relay.server.settings import KEEP_ALIVE_SECONDS
from crystal_relay.store import Store
from crystal_relay.tokens import recovery_hash, token_hash
from tests.support.caddy import CADDY, CADDYFILE, RunningCaddy, caddy_environment, running_caddy
from tests.support.relay_process import RelayProcess, running_relay
from tests.support.relay_server import Member

METRICS_TOKEN = "metrics-token-of-the-caddy-tests"


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Generator[RelayProcess]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CRYSTAL_RELAY_METRICS_TOKEN", METRICS_TOKEN)
        with running_relay(tmp_path_factory.mktemp("relay") / "store") as running:
            yield running


@pytest.fixture(scope="module")
def caddy(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningCaddy]:
    with running_caddy(tmp_path_factory.mktemp("caddy"), relay.url) as running:
        yield running


async def enrolled_store(relay: RelayProcess, caddy: RunningCaddy) -> tuple[Member, HttpStore]:
    member = Member()
    store = HttpStore(caddy.url, vault=member.vault, token=member.token, transport=caddy.transport())
    await store.create_vault(
        enroll_token=relay.enroll_token,
        recovery_hash=recovery_hash(member.recovery),
        device=member.device,
        token_hash=token_hash(member.token),
        proof=member.proof(store.host),
    )
    return member, store


# --- what must pass ---


async def test_a_device_works_through_caddy_over_tls(relay: RelayProcess, caddy: RunningCaddy) -> None:
    member, store = await enrolled_store(relay, caddy)
    try:
        key = f"{member.prefix}blob/{secrets.token_hex(16)}"
        await store.put_new(key, b"sealed")
        assert await (await store.get(key)).read() == b"sealed"
        assert await (await store.get(key, start=2, length=3)).read() == b"ale"
        assert [entry.key for entry in (await store.list(member.prefix)).entries] == [key]
        await store.delete(key)
        assert (await store.health()).ok
    finally:
        await store.aclose()


async def test_a_stranger_to_its_authority_does_not_trust_it(caddy: RunningCaddy) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx.ConnectError, match="certificate"):
            await client.get(f"{caddy.url}/health")


async def test_a_blob_of_the_largest_size_passes_both_ways(relay: RelayProcess, caddy: RunningCaddy) -> None:
    member, store = await enrolled_store(relay, caddy)
    try:
        key = f"{member.prefix}blob/{secrets.token_hex(16)}"
        body = secrets.token_bytes(BLOB_BYTES_MAX)
        await store.put_new(key, body)
        assert await (await store.get(key)).read() == body
    finally:
        await store.aclose()


async def test_a_waiter_behind_caddy_is_woken_at_once(relay: RelayProcess, caddy: RunningCaddy) -> None:
    member, store = await enrolled_store(relay, caddy)
    try:
        await _woken(store, member)
    finally:
        await store.aclose()


async def test_a_quiet_long_poll_is_answered_by_the_relay_and_not_cut(
    relay: RelayProcess, caddy: RunningCaddy
) -> None:
    member, store = await enrolled_store(relay, caddy)
    try:
        token = await store.wait(member.prefix, token=None, timeout=0)
        started = time.monotonic()
        assert await store.wait(member.prefix, token=token, timeout=4.0) == token
        assert time.monotonic() - started >= 3.9
    finally:
        await store.aclose()


def test_no_time_limit_of_caddy_is_below_the_longest_poll() -> None:
    server = _adapted()
    assert "write_timeout" not in server
    assert "read_timeout" not in server
    transport = _proxy_of(server)["transport"]
    assert "read_timeout" not in transport
    assert "write_timeout" not in transport
    assert transport["response_header_timeout"] >= (WAIT_SECONDS_MAX + 30) * 1e9
    assert server["idle_timeout"] > WAIT_SECONDS_MAX * 1e9


def test_caddy_leaves_an_idle_connection_before_the_relay_does() -> None:
    assert _proxy_of(_adapted())["transport"]["keep_alive"]["idle_timeout"] < KEEP_ALIVE_SECONDS * 1e9


def test_caddy_gathers_no_body_and_changes_none() -> None:
    server = _adapted()
    proxy = _proxy_of(server)
    assert proxy["flush_interval"] == -1
    assert "request_buffers" not in proxy
    assert "response_buffers" not in proxy
    assert proxy["transport"]["compression"] is False
    text = json.dumps(server)
    assert '"encode"' not in text
    (limit,) = [part["max_size"] for part in _parts(server) if part.get("handler") == "request_body"]
    assert OBJECT_BYTES_MAX <= limit <= OBJECT_BYTES_MAX + 4 * MIB


async def test_a_relay_that_is_away_is_one_that_devices_ask_again(
    caddy: RunningCaddy, tmp_path: Path
) -> None:
    with running_relay(tmp_path / "store") as relay, running_caddy(tmp_path / "caddy", relay.url) as before:
        member, store = await enrolled_store(relay, before)
        try:
            relay.stop()
            with pytest.raises(StoreUnavailable):
                await store.list(member.prefix)
        finally:
            await store.aclose()


# --- what must stay inside ---

INSIDE = [
    "/metrics",
    "/metrics/",
    "/METRICS",
    "/%6detrics",
    "//metrics",
    "/./metrics",
    "/v2/../metrics",
    "/v2/%2e%2e/metrics",
    "/metrics?x=1",
    "/v2/peers/heard",
    "/v2/peers/",
    "/V2/Peers/heard",
    "/v2/%70eers/heard",
    "/v2//peers/heard",
    "//v2/peers/heard",
    "/v2/./peers/heard",
    "/v2%2fpeers%2fheard",
    "/v2/vaults/../peers/heard",
]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("target", INSIDE)
async def test_what_is_for_the_inside_does_not_exist_outside(
    caddy: RunningCaddy, method: str, target: str
) -> None:
    """Even with the right token for it."""
    status, body = await _raw(caddy, method, target)
    # What Caddy does not catch is no route of the relay's: it refuses escapes and knows no such path.
    assert status in (400, 404, 405)
    assert b"crystal_relay" not in body


async def test_the_same_request_without_caddy_is_answered(relay: RelayProcess) -> None:
    """So that the test above cannot pass because nothing is there."""
    async with httpx.AsyncClient(trust_env=False) as client:
        reply = await client.get(f"{relay.url}/metrics", headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
    assert reply.status_code == 200
    assert "crystal_relay" in reply.text


async def test_the_page_tells_to_watch_what_there_is(relay: RelayProcess) -> None:
    page = (CADDYFILE.parents[1] / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"crystal_relay_\w+", page)) - {"crystal_relay_store_operations_total"}
    async with httpx.AsyncClient(trust_env=False) as client:
        reply = await client.get(f"{relay.url}/metrics", headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
    # A histogram's sums are shown from its first request on.
    shown = set(re.findall(r"^(?:# TYPE )?(crystal_relay_\w+)", reply.text, re.MULTILINE))
    assert len(named) >= 4
    assert named - shown == set()


async def test_plain_http_is_sent_to_tls_and_carries_nothing(caddy: RunningCaddy) -> None:
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False) as client:
        reply = await client.get(f"{caddy.plain_url}/health")
    assert reply.status_code == 308
    assert reply.headers["Location"].startswith("https://")


def test_caddy_offers_no_door_to_its_own_configuration() -> None:
    assert _whole()["admin"] == {"disabled": True}


def test_the_caddyfile_is_valid_and_in_caddys_own_format(tmp_path: Path) -> None:
    assert _caddy("validate", "--adapter", "caddyfile", "--config", str(CADDYFILE), home=tmp_path)
    assert _caddy("fmt", str(CADDYFILE), home=tmp_path) == CADDYFILE.read_text(encoding="utf-8")


# --- helpers ---


async def _woken(store: Store, member: Member) -> None:
    token = await store.wait(member.prefix, token=None, timeout=0)
    waiter = asyncio.create_task(store.wait(member.prefix, token=token, timeout=30))
    await asyncio.sleep(0.3)
    assert not waiter.done()
    started = time.monotonic()
    await store.put_new(f"{member.prefix}blob/{secrets.token_hex(16)}", b"news")
    assert await waiter != token
    assert time.monotonic() - started < 5


async def _raw(caddy: RunningCaddy, method: str, target: str) -> tuple[int, bytes]:
    """A request whose path no client library touches."""
    parts = urlsplit(caddy.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=caddy.tls())
    try:
        writer.write(
            f"{method} {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {METRICS_TOKEN}\r\n"
            "Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        async with asyncio.timeout(20):
            answer = await reader.read()
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def _adapted() -> dict[str, Any]:
    servers = _whole()["apps"]["http"]["servers"]
    (server,) = servers.values()
    return dict(server)


def _whole() -> dict[str, Any]:
    return dict(json.loads(_caddy("adapt", "--adapter", "caddyfile", "--config", str(CADDYFILE))))


def _proxy_of(server: dict[str, Any]) -> dict[str, Any]:
    (proxy,) = [part for part in _parts(server) if part.get("handler") == "reverse_proxy"]
    return proxy


def _parts(value: Any) -> Generator[dict[str, Any]]:
    """Every object within, at any depth."""
    within: list[Any] = []
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        yield found
        within = list(found.values())
    elif isinstance(value, list):
        within.extend(cast("Iterable[Any]", value))
    for item in within:
        yield from _parts(item)


def _caddy(verb: str, *arguments: str, home: Path | None = None) -> str:
    environment = caddy_environment(
        home or Path("/nonexistent"), "localhost", "127.0.0.1:18791", ports=(80, 443)
    )
    done = subprocess.run(
        [str(CADDY), verb, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode in ((0, 1) if verb == "fmt" else (0,)), done.stderr
    return done.stdout or done.stderr
