"""TLS by the relay itself under strangers who take its handshakes: they hold little, honest clients are served meanwhile."""

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import pytest

from crystal_node.base.home import Home
from crystal_node.device.own_relay import certificate_file
from crystal_relay.address import http_client
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.admission import Closing
from crystal_relay.server.serving import HANDSHAKES, Server, listen
from crystal_relay.server.tls import Handshakes, TlsAcceptor, tls_context
from tests.support.relay_process import RelayProcess, running_relay
from tests.support.relay_server import ENROLL_TOKEN

PAUSE_SECONDS = 1.0
SEED = 20


def client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def hello() -> bytes:
    """The first message of a handshake."""
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        client_context().wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def garbage() -> bytes:
    """A record of TLS whose inside is none."""
    return b"\x16\x03\x01\x40\x00" + random.Random(SEED).randbytes(0x4000)


STRANGERS: dict[str, Callable[[], bytes]] = {
    "says nothing": bytes,
    "half a hello": lambda: hello()[:100],
    "never finishes": hello,
    "garbage in a record": garbage,
    "no record at all": lambda: random.Random(SEED).randbytes(2_000),
    "plain HTTP": lambda: b"GET /health HTTP/1.1\r\nHost: relay\r\n\r\n",
}


@pytest.fixture
def process(tmp_path: Path) -> Generator[RelayProcess]:
    with running_relay(tmp_path / "relay", options=("--tls", "--address", "127.0.0.1")) as running:
        yield running


async def stranger(port: int, source: str, sent: bytes) -> None:
    """Connects, sends that and waits; as often as it is closed."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
            try:
                writer.write(sent)
                while await reader.read(4096):
                    pass
            finally:
                writer.transport.abort()
        await asyncio.sleep(PAUSE_SECONDS)


async def test_an_honest_client_is_served_while_strangers_take_all_handshakes(process: RelayProcess) -> None:
    port = int(process.url.partition("#")[0].rpartition(":")[2])
    kinds = [make() for make in STRANGERS.values()]
    # More of them than handshakes at once, from as many addresses as that needs.
    addresses = [f"127.0.1.{number}" for number in range(1, 4 + HANDSHAKES.most // HANDSHAKES.of_address)]
    strangers = [
        asyncio.create_task(stranger(port, source, kinds[number % len(kinds)]))
        for source in addresses
        for number in range(HANDSHAKES.of_address)
    ]
    try:
        await asyncio.sleep(1)
        for _ in range(5):
            # Each time by a handshake of its own.
            async with http_client(process.url, connect=20, idle=20, connections_kept=1) as http:
                assert (await http.get("/health")).status_code == 200
        held = [task for task in strangers if not task.done()]
        assert len(held) == len(strangers)
    finally:
        for task in strangers:
            task.cancel()
        await asyncio.gather(*strangers, return_exceptions=True)
    assert process.stop() == 0
    assert "Traceback" not in process.errors


@contextlib.asynccontextmanager
async def accepting(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, handshakes: Handshakes
) -> AsyncGenerator[Callable[[str], socket.socket]]:
    """An acceptor; what is yielded connects to it from an address, and returns the client's side."""
    arriving: asyncio.Queue[tuple[socket.socket, tuple[str, int, int, int]]] = asyncio.Queue()

    async def accept(_: socket.socket) -> tuple[socket.socket, tuple[str, int, int, int]]:
        return await arriving.get()

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_accept", accept)
    acceptor = TlsAcceptor(
        listen("127.0.0.1", 0), tls_context(certificate), asyncio.Protocol, handshakes=handshakes
    )
    ours: list[socket.socket] = []

    def connect(host: str) -> socket.socket:
        client, server = socket.socketpair()
        client.setblocking(False)
        ours.append(client)
        arriving.put_nowait((server, (host, 9, 0, 0)))
        return client

    try:
        yield connect
    finally:
        await acceptor.aclose()
        for each in ours:
            each.close()


def is_open(client: socket.socket) -> bool:
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True


async def test_a_64_of_ipv6_has_the_handshakes_of_one_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = certificate_file(Home(tmp_path))
    async with accepting(certificate, monkeypatch, Handshakes(most=64, of_address=3)) as connect:
        same = [connect(f"2001:db8:0:1::{number:x}") for number in range(1, 11)]
        mapped = [connect("::ffff:192.0.2.1") for _ in range(5)]
        other = connect("2001:db8:0:2::1")
        await asyncio.sleep(0.2)
        assert [is_open(each) for each in same] == [True] * 3 + [False] * 7
        assert [is_open(each) for each in mapped] == [True] * 3 + [False] * 2
        assert is_open(other)


async def test_the_oldest_handshake_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = certificate_file(Home(tmp_path))
    async with accepting(certificate, monkeypatch, Handshakes(most=4, of_address=2)) as connect:
        many = [connect(f"192.0.2.{number}") for number in range(1, 11)]
        await asyncio.sleep(0.2)
        assert [is_open(each) for each in many] == [False] * 6 + [True] * 4
        again = [connect("192.0.2.1") for _ in range(3)]
        await asyncio.sleep(0.2)
        assert [is_open(each) for each in again] == [True, True, False], "what was ended counts no more"


async def test_no_handshake_begins_for_a_connection_that_would_be_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    app = create_app(store, RelaySettings(enroll_token=ENROLL_TOKEN))
    admission = app.state.relay.admission
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = Server(app, listener, context=tls_context(certificate_file(Home(tmp_path))))
    ready = asyncio.Event()
    serving = asyncio.create_task(server.serve(ready=ready.set))
    await ready.wait()
    try:
        places, admission.connections_max = admission.connections_max, 0
        with pytest.raises((OSError, ssl.SSLError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=client_context())
        assert admission.closed[Closing.FULL] == 1
        admission.connections_max = places
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context())
        writer.close()
    finally:
        server.stop()
        await serving
        await store.aclose()
