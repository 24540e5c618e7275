"""An address that names its relay's certificate: TLS 1.3 with that one, and not a byte for any other."""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crystal_node.base.home import Home
from crystal_node.device.own_relay import certificate_file
from crystal_relay.address import check_relay_url, pin_of, pinned
from crystal_relay.client.http import HttpStore, Timeouts
from crystal_relay.embedded.relay import EmbeddedRelay, NetworkDoor
from crystal_relay.errors import BadReply, BadRequest, StoreUnavailable
from crystal_relay.server.tls import HANDSHAKES_OF_ADDRESS_MAX
from tests.support.relay_server import Member, embedded_member
from tests.support.s3_servers.daemons import free_port

PIN = "a" * 26


def der(file: Path) -> bytes:
    text = file.read_text()
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE") :])


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@asynccontextmanager
async def on_network(directory: Path) -> AsyncGenerator[tuple[Member, str]]:
    """A member of a vault at an embedded relay, and the relay's address for other machines."""
    member = await embedded_member(directory / "state" / "relay")
    file = certificate_file(Home(directory))
    port = free_port()
    relay = await EmbeddedRelay.open(directory / "state" / "relay")
    try:
        await relay.open_to_network(NetworkDoor("127.0.0.1", port, file))
        yield member, pinned(f"https://127.0.0.1:{port}", der(file))
    finally:
        await relay.aclose()


async def test_another_machine_reaches_it_by_its_certificate_alone(tmp_path: Path) -> None:
    async with on_network(tmp_path) as (member, url):
        store = HttpStore(url, vault=member.vault, token=member.token)
        key = f"{member.prefix}blob/a"
        await store.put_new(key, b"x" * 3_000_000)
        assert len(await (await store.get(key)).read()) == 3_000_000
        token = await store.wait(f"{member.prefix}blob/", token=None, timeout=0)
        waiting = asyncio.create_task(store.wait(f"{member.prefix}blob/", token=token, timeout=20))
        await asyncio.sleep(0.05)
        await store.put_new(f"{member.prefix}blob/b", b"y")
        assert await waiting != token
        await store.aclose()


async def test_who_shows_another_certificate_gets_not_a_byte(tmp_path: Path) -> None:
    got = bytearray()

    async def listener(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            got.extend(await reader.read(1))
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file(Home(tmp_path / "theirs")))
    server = await asyncio.start_server(listener, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    ours = der(certificate_file(Home(tmp_path / "ours")))
    member = Member()
    store = HttpStore(pinned(f"https://127.0.0.1:{port}", ours), vault=member.vault, token=member.token)
    with pytest.raises(BadReply, match="another relay answers there"):
        await store.list(member.prefix)
    await store.aclose()
    server.close()
    await server.wait_closed()
    assert bytes(got) == b""


async def test_an_older_tls_and_plain_http_get_nothing(tmp_path: Path) -> None:
    async with on_network(tmp_path) as (member, url):
        port = int(url.partition("#")[0].rpartition(":")[2])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=context)
        plain = HttpStore(f"http://127.0.0.1:{port}", vault=member.vault, token=member.token)
        with pytest.raises(StoreUnavailable):
            await plain.list(member.prefix)
        await plain.aclose()


async def test_it_ends_in_time_whatever_is_connected(tmp_path: Path) -> None:
    async with on_network(tmp_path) as (member, url):
        port = int(url.partition("#")[0].rpartition(":")[2])
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        store = HttpStore(url, vault=member.vault, token=member.token, timeouts=Timeouts(idle=5))
        await store.list(member.prefix)  # its connection stays open
        began = time.monotonic()
    assert time.monotonic() - began < 5
    await store.aclose()
    for _, writer in silent:
        writer.close()


async def test_strangers_who_never_finish_a_handshake_take_no_descriptors_and_keep_nobody_out(
    tmp_path: Path,
) -> None:
    async with on_network(tmp_path) as (_, url):
        port = int(url.partition("#")[0].rpartition(":")[2])
        before = descriptors()
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        await asyncio.sleep(0.3)
        there = descriptors()
        assert there - before - len(silent) <= HANDSHAKES_OF_ADDRESS_MAX
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, local_addr=("127.0.0.2", 0), ssl_handshake_timeout=5
        )
        writer.close()
        for each in silent:
            each.close()


@pytest.mark.parametrize(
    "url",
    [
        f"http://relay.example.org#pin={PIN}",
        "https://relay.example.org#pin=abc",
        f"https://relay.example.org#pin={PIN.upper()}",
        f"https://relay.example.org#pin={PIN}0",
        "https://relay.example.org#fragment",
        f"https://relay.example.org?x#pin={PIN}",
    ],
)
def test_what_is_no_fingerprint_is_refused(url: str) -> None:
    with pytest.raises(BadRequest):
        check_relay_url(url, allow_insecure=True)


def test_an_address_keeps_its_fingerprint_and_loses_its_slash() -> None:
    url = f"https://relay.example.org#pin={PIN}"
    assert check_relay_url(f"https://relay.example.org/#pin={PIN}") == url
    assert pin_of(url) == bytes(16)
    assert pinned("https://relay.example.org", b"certificate") != url
