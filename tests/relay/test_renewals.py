"""Tokens and the certificate of a relay are changed in their files while it runs."""

import asyncio
import secrets
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from crystal_relay.cli.reached import certificate_file
from crystal_relay.errors import BadRequest
from crystal_relay.server.renewals import renewed
from crystal_relay.server.tls import CERTIFICATE_FILE, renew_certificate, tls_context
from tests.support.processes import eventually
from tests.support.relay_process import RelayProcess

pytestmark = pytest.mark.timeout(400)


def put_in_place(file: Path, text: str) -> None:
    """As a secret's mount changes: written beside it, then renamed."""
    beside = file.with_name(f"{file.name}.new")
    beside.write_text(text)
    beside.replace(file)


def shown_certificate(url: str) -> bytes:
    parts = urlsplit(url)
    pem = ssl.get_server_certificate((parts.hostname or "", parts.port or 0), timeout=60)
    return ssl.PEM_cert_to_DER_cert(pem)


def statuses(url: str, metrics_token: str, enroll_token: str) -> tuple[int, int]:
    """What the relay answers to the two tokens: 400 is what an accepted one without a vault gets."""
    with httpx.Client(base_url=url, verify=False, timeout=60) as http:  # noqa: S501  (its own certificate)
        metrics = http.get("/metrics", headers={"Authorization": f"Bearer {metrics_token}"})
        headers = {"Authorization": f"Bearer {enroll_token}", "Content-Type": "application/json"}
        return metrics.status_code, http.post("/v2/vaults", headers=headers, content=b"{}").status_code


async def test_tokens_and_a_certificate_are_changed_without_a_restart(tmp_path: Path) -> None:
    metrics, enroll = tmp_path / "metrics", tmp_path / "enroll"
    former, later = ((secrets.token_hex(16), secrets.token_hex(16)) for _ in range(2))
    for file, token in zip((metrics, enroll), former, strict=True):
        file.write_text(token)
    relay = RelayProcess(
        tmp_path / "relay",
        options=("--tls", "--address", "127.0.0.1"),
        environment={
            "CRYSTAL_RELAY_ENROLL_TOKEN": "",
            "CRYSTAL_RELAY_ENROLL_TOKEN_FILE": str(enroll),
            "CRYSTAL_RELAY_METRICS_TOKEN_FILE": str(metrics),
        },
    )
    await asyncio.to_thread(relay.start)
    try:
        url = relay.url.partition("#")[0]
        assert await asyncio.to_thread(statuses, url, *former) == (200, 400)
        assert await asyncio.to_thread(statuses, url, *later) == (401, 401)
        before = await asyncio.to_thread(shown_certificate, url)
        other = await asyncio.to_thread(certificate_file, tmp_path / "other")
        put_in_place(relay.directory / CERTIFICATE_FILE, other.read_text())
        put_in_place(metrics, later[0])
        put_in_place(enroll, later[1] + "\n")
        await eventually(lambda: relay.errors.count("was read again") == 3, 120)
        assert await asyncio.to_thread(statuses, url, *later) == (200, 400)
        assert await asyncio.to_thread(statuses, url, *former) == (401, 401)
        after = await asyncio.to_thread(shown_certificate, url)
        assert after != before
        assert after == ssl.PEM_cert_to_DER_cert(
            "-----BEGIN CERT" + other.read_text().partition("-----BEGIN CERT")[2]
        )
        for token in (*former, *later):
            assert token not in relay.errors
    finally:
        await asyncio.to_thread(relay.stop)


async def test_a_file_that_cannot_be_used_is_named_and_looked_at_again_at_its_next_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, taken = tmp_path / "token", list[str]()
    file.write_text("one")

    def read() -> None:
        text = file.read_text()
        if text == "bad":
            raise BadRequest("it holds no usable token")
        taken.append(text)

    async with renewed({file: read}, look_seconds=0.01):
        put_in_place(file, "bad")
        await eventually(
            lambda: "token has changed and is not used: it holds no usable token" in caplog.text, 120
        )
        file.unlink()
        await eventually(lambda: caplog.text.count("is not used") == 2, 120)
        put_in_place(file, "two")
        await eventually(lambda: taken == ["two"], 120)


def test_a_certificate_whose_key_does_not_fit_leaves_the_former_one(tmp_path: Path) -> None:
    file, other = (certificate_file(tmp_path / name) for name in ("one", "other"))
    context = tls_context(file)
    key = file.read_text().partition("-----BEGIN CERT")[0]
    file.write_text(key + "-----BEGIN CERT" + other.read_text().partition("-----BEGIN CERT")[2])
    with pytest.raises(ssl.SSLError):
        renew_certificate(context, file)
    file.write_text(other.read_text())
    renew_certificate(context, file)
