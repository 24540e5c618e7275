"""Programs of this machine that want a gateway's memory and connections: a real process, real sockets, no token."""

import contextlib
import socket
import threading
import time

import pytest

from crystal_node.surfaces.gateway.limits import CONNECTIONS_MAX, SESSION_BYTES_MAX
from tests.support.gateway import Gateway
from tests.support.hostile_clients import rss_of

MIB = 1024 * 1024
SENT_BYTES = 40 * MIB
SECONDS = 3.0


def _connected(gateway: Gateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), 60)


def _pipelined(gateway: Gateway, request: bytes) -> tuple[socket.socket, list[threading.Thread]]:
    """Send so much of it and read what comes, each in a thread, until the connection is closed."""
    client = _connected(gateway)

    def send() -> None:
        with contextlib.suppress(OSError):
            client.sendall(request * (SENT_BYTES // len(request)))

    def read() -> None:
        with contextlib.suppress(OSError):
            while client.recv(65536):
                pass

    threads = [threading.Thread(target=each, daemon=True) for each in (send, read)]
    for each in threads:
        each.start()
    return client, threads


@pytest.mark.parametrize("token", [None, "the gateway's own"])
def test_one_program_that_pipelines_40_mb_costs_neither_memory_nor_time(
    gateway: Gateway, token: str | None
) -> None:
    gateway.get("/status")
    before = rss_of(gateway.pid)
    secret = f"Authorization: Bearer {gateway.token}\r\n" if token else ""
    path, body = ("/api/search", "{}") if token else ("/api/session", '{"code": "x"}')
    request = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n{secret}Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()
    client, threads = _pipelined(gateway, request)
    highest, slowest, end = 0, 0.0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        began = time.monotonic()
        assert gateway.ask("GET", "/").is_success
        slowest = max(slowest, time.monotonic() - began)
        highest = max(highest, rss_of(gateway.pid))
    with contextlib.suppress(OSError):  # the gateway was first
        client.shutdown(socket.SHUT_RDWR)
    client.close()
    for each in threads:
        each.join(20)
    assert highest - before < 20 * MIB
    assert slowest < 2.0


def test_who_shows_no_token_has_one_answer_for_each_connection(gateway: Gateway) -> None:
    request = f"GET /status HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n\r\n".encode()
    with contextlib.closing(_connected(gateway)) as client:
        client.sendall(request * 100)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(65536):
                found += piece
    assert found.count(b"HTTP/1.1 ") == found.count(b"HTTP/1.1 401") == 1
    assert b"connection: close" in found.lower()


def test_pipelined_requests_are_answered_in_order_however_they_are_cut(gateway: Gateway) -> None:
    paths = [b"/status", b"/api/nothing", b"/api/openapi.json"] * 3
    host = f"Host: 127.0.0.1:{gateway.port}\r\nAuthorization: Bearer {gateway.token}\r\n\r\n".encode()
    sent = b"".join(b"GET " + path + b" HTTP/1.1\r\n" + host for path in paths)
    for step in (len(sent), 11):
        with contextlib.closing(_connected(gateway)) as client:
            for at in range(0, len(sent), step):
                client.sendall(sent[at : at + step])
            reading = client.makefile("rb")
            statuses = []
            for _ in paths:
                statuses.append(int(reading.readline().split()[1]))
                length = 0
                while (line := reading.readline().lower()) != b"\r\n":
                    if line.startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                assert len(reading.read(length)) == length
            assert statuses == [200, 404, 200] * 3


def test_idle_connections_keep_nobody_out(gateway: Gateway) -> None:
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(contextlib.closing(_connected(gateway))) for _ in range(2 * CONNECTIONS_MAX)
        ]
        assert gateway.ask("GET", "/").is_success
        idle[0].settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert idle[0].recv(1) == b""


def test_without_a_token_no_large_body_is_read(gateway: Gateway) -> None:
    body = '{"code": "' + "x" * SESSION_BYTES_MAX + '"}'
    headers = {"Content-Type": "application/json"}
    with contextlib.closing(_connected(gateway)) as client:
        lines = [
            "POST /api/session HTTP/1.1",
            f"Host: 127.0.0.1:{gateway.port}",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        client.sendall("\r\n".join([*lines, "", body]).encode())
        assert client.recv(65536).startswith(b"HTTP/1.1 413")


def test_the_description_is_made_once(gateway: Gateway) -> None:
    def seconds(path: str) -> float:
        """The quickest of several answers."""
        host = f"Host: 127.0.0.1:{gateway.port}\r\nAuthorization: Bearer {gateway.token}\r\nConnection: close\r\n\r\n"
        times: list[float] = []
        for _ in range(10):
            began = time.perf_counter()
            with contextlib.closing(_connected(gateway)) as client:
                client.sendall(f"GET {path} HTTP/1.1\r\n{host}".encode())
                assert client.recv(65536).startswith(b"HTTP/1.1 200")
                while client.recv(65536):
                    pass
            times.append(time.perf_counter() - began)
        return min(times)

    seconds("/api/openapi.json")
    assert seconds("/api/openapi.json") <= 2 * seconds("/api/sources")
