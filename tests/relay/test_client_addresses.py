"""Where the HTTP client sends a token: to its relay, safely, and nowhere else."""

import asyncio
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from crystal_relay.address import check_relay_url
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import BadReply, BadRequest, StoreUnavailable, Unauthorized
from tests.support.odd_server import KEY, PREFIX, TOKEN, VAULT, client_of, odd_server, reply, says
from tests.support.relay_server import ServedRelay


def self_signed(directory: Path) -> ssl.SSLContext:
    """A server's TLS with a certificate for this machine that it has signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = directory / "server.pem"
    path.write_bytes(certificate.public_bytes(pem) + private)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    return context


@pytest.mark.parametrize(
    "url",
    [
        "https://relay.example.org",
        "https://relay.example.org/",
        "https://relay.example.org:8443/crystal",
        "http://127.0.0.1:1",
        "http://127.9.9.9:1",
        "http://localhost:1",
        "http://[::1]:1",
    ],
)
def test_safe_addresses_are_taken(url: str) -> None:
    assert check_relay_url(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "relay.example.org",
        "ftp://relay.example.org",
        "file:///etc/passwd",
        "http://",
        "https://",
        "https://user:password@relay.example.org",
        "https://relay.example.org?x=1",
        "https://relay.example.org#x",
        "https://relay.example.org:0",
        "https://relay.example.org:99999",
        "https://relay.example.org:x",
        "https://relay.exa mple.org",
        "https://relay.example.org\n",
        "https://relay.example.org/" + "x" * 3000,
        "https://rel\u0430y.example.org",
        "https://xn--i-7iq.ws",
    ],
)
def test_what_is_no_address_is_refused_with_a_hint(url: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check_relay_url(url)
    assert "https://" in caught.value.hint
    assert "password" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://relay.example.org",
        "http://10.0.0.1",
        "http://0.0.0.0:1",
        "http://127.0.0.1.example.org",
        "http://[::2]",
    ],
)
def test_a_token_does_not_go_in_clear_to_another_machine(url: str) -> None:
    with pytest.raises(BadRequest, match="plain HTTP"):
        HttpStore(url, vault=VAULT, token=TOKEN)
    assert check_relay_url(url, allow_insecure=True) == url


async def test_a_token_does_not_follow_a_redirect() -> None:
    followed: list[bytes] = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        followed.append(await reader.readuntil(b"\r\n\r\n"))

    async with odd_server(elsewhere) as other:
        for status in (301, 302, 303, 307, 308):
            async with (
                odd_server(says(reply(status, b"", b"Location: " + other.encode()))) as url,
                client_of(url) as store,
            ):
                with pytest.raises(BadReply):
                    await store.get(KEY)
    assert followed == []


async def test_a_token_does_not_go_to_a_proxy_of_the_environment(
    relay: ServedRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))

    async with odd_server(proxy) as url:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, url)
        async with client_of(relay.url) as store:
            with pytest.raises(Unauthorized):
                await store.list(PREFIX)
    assert seen == []


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    heard: list[bytes] = []

    async def listening(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65_536))

    async with odd_server(listening, self_signed(tmp_path)) as url:
        for address in (url, url.replace("127.0.0.1", "localhost")):
            async with client_of(address) as store:
                with pytest.raises(StoreUnavailable):
                    await store.get(KEY)
    assert b"".join(heard) == b""


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX: y", "a\n", "\xe4", "a\x00"])
async def test_a_token_that_would_break_the_header_is_not_sent(relay: ServedRelay, token: str) -> None:
    store = HttpStore(relay.url, vault=VAULT, token=lambda: token)
    with pytest.raises(BadRequest) as caught:
        await store.list(PREFIX)
    assert not token.strip() or token not in str(caught.value)
    await store.aclose()


async def test_names_of_other_vaults_are_refused_before_anything_is_sent() -> None:
    async with client_of("http://127.0.0.1:1") as store:
        other = f"v/{'0' * 32}/devlog/0"
        for call in (
            store.get(other),
            store.put_new(other, b""),
            store.put(other, b""),
            store.delete(other),
            store.list("v/"),
            store.wait("", token=None, timeout=0),
        ):
            with pytest.raises(BadRequest, match="vault"):
                await call
