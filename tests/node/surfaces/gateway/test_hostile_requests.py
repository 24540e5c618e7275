"""Requests as no browser and no library sends them, over a plain socket: none is answered but in the ways that are meant."""

import json
import socket
from contextlib import closing

import pytest

from tests.support.gateway import Gateway

SECONDS_MAX = 60.0


def answered(gateway: Gateway, request: bytes) -> bytes:
    """All that comes back until the end of the connection; the token stands for TOKEN, the port for PORT."""
    sent = request.replace(b"TOKEN", gateway.token.encode()).replace(b"PORT", str(gateway.port).encode())
    with closing(socket.create_connection(("127.0.0.1", gateway.port), SECONDS_MAX)) as client:
        client.sendall(sent)
        found = b""
        while piece := client.recv(65536):
            found += piece
            if b"\r\n\r\n" in found and b"connection: close" not in found.lower():
                head, _, body = found.partition(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if length and len(body) >= int(length[0].split(b":")[1]):
                    break
        return found


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def get(path: bytes, *headers: bytes, host: bytes = b"127.0.0.1:PORT", version: bytes = b"1.1") -> bytes:
    lines = [b"GET " + path + b" HTTP/" + version, *([b"Host: " + host] if host else []), *headers]
    return b"\r\n".join([*lines, b"Authorization: Bearer TOKEN", b"", b""])


def post(path: bytes, body: bytes, *headers: bytes, kind: bytes = b"application/json") -> bytes:
    lines = [b"POST " + path + b" HTTP/1.1", b"Host: 127.0.0.1:PORT", b"Content-Type: " + kind, *headers]
    lines += [b"Authorization: Bearer TOKEN", b"Content-Length: %d" % len(body), b"", body]
    return b"\r\n".join(lines)


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        (get(b"/status"), 200),
        (get(b"/status", host=b""), 400),
        (get(b"/status", host=b"", version=b"1.0"), 421),
        (get(b"/status", host=b"127.0.0.1.:PORT"), 421),
        (get(b"/status", host=b"localhost.:PORT"), 421),
        (get(b"/status", host=b"0.0.0.0:PORT"), 421),
        (get(b"/status", host=b"127.1:PORT"), 421),
        (get(b"/status", host=b"2130706433:PORT"), 421),
        (get(b"/status", host=b"[::ffff:127.0.0.1]:PORT"), 421),
        (get(b"/status", host=b"[::1%25lo]:PORT"), 421),
        (get(b"/status", host=b"evil@127.0.0.1:PORT"), 421),
        (get(b"/status", host=b"127.0.0.1:PORT, evil.example"), 421),
        (get(b"/status", b"Host: evil.example"), 400),
        (get(b"/status", b"Authorization: Bearer x"), 400),
        (get(b"/status", b"Origin: http://127.0.0.1:PORT", b"Origin: http://evil.example"), 400),
        (get(b"/status", b"X-Forwarded-Host: 127.0.0.1:PORT", host=b"evil.example"), 421),
        (get(b"http://evil.example/status"), 404),
        (get(b"http://127.0.0.1:PORT/status", host=b"evil.example"), 421),
        (get(b"/status?token=TOKEN"), 400),
        (get(b"/status", b"X: " + b"x" * 20_000), 400),
        (get(b"/status", *[b"X-%d: y" % number for number in range(4000)]), 400),
        (get(b"/status", b"X: a\r\n b"), 200),
        (get(b"/../state/gateway/token"), 404),
        (get(b"/%2e%2e/state/gateway/token"), 404),
        (get(b"/..%2f..%2fetc/passwd"), 404),
        (get(b"//etc/passwd"), 404),
        (get(b"/app.js/"), 404),
        (get(b"/app.js%00"), 404),
        (get(b"/APP.JS"), 404),
        (get(b"/web/app.js"), 404),
        (get(b"/api/show/%0d%0aX-Evil:%201"), 400),
        (get(b"/api/show/%ff%fe%ff%fe"), 400),
        (get(b"/api/show/" + b"%41" * 100), 400),
        (b"TRACE /status HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAuthorization: Bearer TOKEN\r\n\r\n", 405),
        (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n", 401),
        (b"PUT / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Length: 0\r\n\r\n", 401),
        (post(b"/api/search", b'{"query": "x"}', b"Content-Length: 1"), 400),
        (post(b"/api/search", b'{"query": "x"}', kind=b"text/plain"), 400),
        (post(b"/api/search", b"query=x", kind=b"application/x-www-form-urlencoded"), 400),
        (post(b"/api/search", b"[" * 200_000), 400),
        (post(b"/api/search", b'{"query": "\\ud800"}'), 400),
        (post(b"/api/search", b'{"query": "x", "limit": NaN}'), 400),
        (post(b"/api/search", b'{"query": "x", "limit": 1e400}'), 400),
        (post(b"/api/search", b"\xff\xfe" + '{"query": "x"}'.encode("utf-16-le")), 400),
        (post(b"/api/search", b'{"query": "' + b"x" * 300_000 + b'"}'), 413),
        (post(b"/api/forget", b'{"ids": ["%%%%%%%%%%%%"]}'), 400),
        (post(b"/api/jobs/..%2f..%2fx/run", b"{}"), 404),
        (post(b"/process", b'{"agent_id": "--help"}'), 400),
        (post(b"/process", b'{"agent_id": "a\\n--yes"}'), 400),
        (post(b"/process", b'{"agent_id": "a\\n"}'), 400),
        (post(b"/api/forget", b'{"ids": ["00112233445566\\n"]}'), 400),
        (post(b"/v1/chat/completions", b'{"messages": [], "base_url": "http://evil.example"}'), 400),
    ],
)
def test_a_hostile_request_is_refused_as_it_is_meant(gateway: Gateway, request_: bytes, wanted: int) -> None:
    answer = answered(gateway, request_)
    head = answer.partition(b"\r\n\r\n")[0].lower()
    assert status(answer) == wanted, answer[:300]
    assert b"x-evil" not in head
    assert gateway.token.encode() not in answer
    assert b"root:" not in answer


def test_an_error_that_quotes_what_was_asked_is_no_page(gateway: Gateway) -> None:
    for path in (b"/api/show/<script>x</script>", b"/%3Cscript%3E", b"/v1/%3Cscript%3E"):
        head, _, body = answered(gateway, get(path.replace(b"<", b"%3C").replace(b">", b"%3E"))).partition(
            b"\r\n\r\n"
        )
        assert b"content-type: application/json" in head.lower()
        assert b"x-content-type-options: nosniff" in head.lower()
        json.loads(body)
