"""Certificates of a private authority are trusted where it is named, and one that is refused says what is wrong with it."""

import asyncio
import datetime as dt
import logging
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crystal_node.agent.health.checks.relay import relay_checks
from crystal_node.base.settings.settings import resolve
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import BadRequest, StoreFull, StoreUnavailable, UntrustedCertificate
from crystal_relay.memory import MemoryStore
from crystal_relay.s3.failures import relay_error
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.serving import Server, listen
from crystal_relay.server.tls import tls_context
from crystal_relay.store import Page
from tests.support.authority import Authority
from tests.support.relay_server import ENROLL_TOKEN, Member, enrolled, served


@asynccontextmanager
async def relay_with(certificate: Path) -> AsyncGenerator[str]:
    """The address of a relay with this certificate."""
    app = create_app(MemoryStore(), RelaySettings(enroll_token=ENROLL_TOKEN))
    server = Server(app, listen("127.0.0.1", 0), context=tls_context(certificate))
    ready = asyncio.Event()
    serving = asyncio.create_task(server.serve(ready=ready.set))
    await ready.wait()
    try:
        yield server.url.replace("http:", "https:")
    finally:
        server.stop()
        await serving


async def refusal(url: str) -> UntrustedCertificate:
    member = Member()
    store = HttpStore(url, vault=member.vault, token=member.token)
    try:
        with pytest.raises(UntrustedCertificate) as refused:
            await store.list(member.prefix)
    finally:
        await store.aclose()
    return refused.value


def day(days: float) -> str:
    return f"{dt.datetime.now(dt.UTC) + dt.timedelta(days=days):%Y-%m-%d}"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.made(tmp_path)


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    return authority


async def test_a_private_authority_is_trusted_where_it_is_named(trusted: Authority) -> None:
    async with relay_with(trusted.certificate("relay.internal", "127.0.0.1")) as url:
        member = await enrolled(url)
        store = member.store(url)
        await store.put_new(f"{member.prefix}blob/a", b"sealed")
        assert await (await store.get(f"{member.prefix}blob/a")).read() == b"sealed"
        await store.aclose()


async def test_an_authority_that_nobody_named_is_named(authority: Authority) -> None:
    async with relay_with(authority.certificate("127.0.0.1")) as url:
        refused = await refusal(url)
    assert "signed by Authority of the tests, which this machine does not trust" in str(refused)
    assert "SSL_CERT_FILE" in refused.hint


async def test_an_expired_certificate_says_since_when(trusted: Authority) -> None:
    async with relay_with(trusted.certificate("127.0.0.1", begins=-30, ends=-10)) as url:
        refused = await refusal(url)
    assert f"127.0.0.1 expired on {day(-10)}" in str(refused)
    assert "renew" in refused.hint


async def test_a_certificate_of_tomorrow_says_from_when_on(trusted: Authority) -> None:
    async with relay_with(trusted.certificate("127.0.0.1", begins=10)) as url:
        refused = await refusal(url)
    assert f"valid only from {day(10)}" in str(refused)
    assert "clock" in refused.hint


async def test_a_certificate_for_other_names_lists_them(trusted: Authority) -> None:
    hosts = [f"host{number}.example.org" for number in range(7)]
    async with relay_with(trusted.certificate(*hosts, "*.example.net")) as url:
        refused = await refusal(url)
    assert f"is for {', '.join(hosts[:5])} and 3 more" in str(refused)
    assert "127.0.0.1" in refused.hint


async def test_a_name_in_a_certificate_is_shown_as_text_only(tmp_path: Path) -> None:
    nasty = Authority.made(tmp_path, "\x1b[31mred\n" + "x" * 50)
    async with relay_with(nasty.certificate("127.0.0.1")) as url:
        refused = await refusal(url)
    assert str(refused).isprintable()


async def test_a_date_that_no_calendar_has_is_left_out(authority: Authority) -> None:
    # From 2050 on the year has four digits.
    file = authority.certificate("127.0.0.1", begins=20_000, ends=20_001)
    key, mark, certificate = file.read_text().partition("-----BEGIN CERTIFICATE-----")
    der = ssl.PEM_cert_to_DER_cert(mark + certificate)
    year = f"{dt.datetime.now(dt.UTC) + dt.timedelta(days=20_000):%Y}".encode()
    assert b"\x18\x0f" + year in der
    file.write_text(key + ssl.DER_cert_to_PEM_cert(der.replace(b"\x18\x0f" + year, b"\x18\x0f0000")))
    async with relay_with(file) as url:
        refused = await refusal(url)
    assert "the certificate of 127.0.0.1 is not trusted" in str(refused)


def test_a_file_without_certificates_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "authority.pem"
    file.write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    member = Member()
    with pytest.raises(BadRequest, match=r"SSL_CERT_FILE \(.*authority.pem\) names no readable"):
        HttpStore("https://relay.example.org", vault=member.vault, token=member.token)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_a_missing_file_or_directory_of_authorities_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Python takes a missing one for none at all; then every relay would seem to be an impostor."""
    for each in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "gone"))
    member = Member()
    with pytest.raises(BadRequest, match=rf"{variable} \(.*gone\) names no readable certificates") as refused:
        HttpStore("https://relay.example.org", vault=member.vault, token=member.token)
    assert "unset" in refused.value.hint


async def test_doctor_says_what_is_wrong_with_the_certificate(trusted: Authority, tmp_path: Path) -> None:
    async with relay_with(trusted.certificate("127.0.0.1", begins=-30, ends=-10)) as url:
        settings = resolve(
            environment={
                "CRYSTAL_HOME": str(tmp_path / "home"),
                "CRYSTAL_RELAY_URL": url,
                "HOME": str(tmp_path),
            }
        )
        (finding,) = await asyncio.to_thread(relay_checks, settings)
    assert "expired on" in finding.text
    assert "renew" in finding.fix


# --- whose hint it is ---


class BrokenStore(MemoryStore):
    """Fails as an object store does whose keys are wrong, or that is full."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.later = error

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        if self.error is not None:
            raise self.error
        return await super().list(prefix, after=after, limit=limit)


class KeysRefused(Exception):
    """In the form of the SDK's error."""

    response = {"Error": {"Code": "InvalidAccessKeyId"}, "ResponseMetadata": {"HTTPStatusCode": 403}}  # noqa: RUF012


async def test_a_device_is_given_no_hint_for_the_operator_who_finds_it_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        denied = relay_error(KeysRefused(), "list for a hint", (), write=False)
    assert "AWS_ACCESS_KEY_ID" in denied.hint
    assert "AWS_ACCESS_KEY_ID" in caplog.text
    for error in (denied, StoreFull("the object store is full", hint="Make room in the bucket.")):
        store = BrokenStore(error)
        async with served(store) as relay:
            member = await enrolled(relay.url)
            store.error = error
            client = member.store(relay.url)
            with pytest.raises((StoreUnavailable, StoreFull)) as shown:
                await client.list(member.prefix)
            await client.aclose()
        assert "AWS" not in shown.value.hint
        assert "bucket" not in shown.value.hint
        assert "Nothing on this device is lost" in shown.value.hint
