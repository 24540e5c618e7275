"""What the composition and fly.toml tell a relay, told to a real one: it starts and is ready."""

import os
import re
import secrets
import subprocess
import sys
import time
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.caddy import free_ports
from tests.support.s3_servers import S3Server, running_moto

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
START_SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def server() -> Generator[S3Server]:
    with running_moto() as running:
        yield running


def _service(name: str, server: S3Server) -> dict[str, Any]:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8").replace("http://s3:8333", server.endpoint)
    # As Compose does with .env: any 32 characters will do.
    text = re.sub(r"\$\{\w+:\?[^}]*\}", lambda _: secrets.token_hex(16), text)
    service: dict[str, Any] = yaml.safe_load(text)["services"][name]
    return service


def _started(environment: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CRYSTAL_"))}
    command = (sys.executable, "-m", "crystal_relay", *arguments)
    return subprocess.Popen(
        command, env=kept | environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )


def test_the_bucket_is_made_once_and_a_second_time_is_no_error(server: S3Server) -> None:
    service = _service("bucket", server)
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", *service["command"]],
            env=os.environ | service["environment"],
            check=True,
            timeout=60,
        )
    assert "crystal" in {bucket["Name"] for bucket in server.client().list_buckets()["Buckets"]}


def test_a_relay_with_the_compositions_settings_gets_ready(server: S3Server) -> None:
    if "crystal" not in {bucket["Name"] for bucket in server.client().list_buckets()["Buckets"]}:
        server.client().create_bucket(Bucket="crystal")
    service = _service("relay", server)
    (port,) = free_ports("127.0.0.1", 1)
    # The host is the image's; here it stays on loopback.
    environment = service["environment"] | {
        "CRYSTAL_RELAY_HOST": "127.0.0.1",
        "CRYSTAL_RELAY_PORT": str(port),
    }
    _until_ready(_started(environment, *service["command"]), port)
    keys = [entry["Key"] for entry in server.client().list_objects_v2(Bucket="crystal").get("Contents", [])]
    assert [key for key in keys if not key.startswith("relay/")] == []
    assert [key for key in keys if key.startswith("relay/r/probe/")] == []


def test_the_fly_settings_are_ones_that_a_relay_knows(server: S3Server) -> None:
    fly = tomllib.loads((DEPLOY / "fly.toml").read_text(encoding="utf-8"))
    (port,) = free_ports("127.0.0.1", 1)
    assert str(fly["http_service"]["internal_port"]) == fly["env"]["CRYSTAL_RELAY_PORT"]
    environment = fly["env"] | {
        "CRYSTAL_RELAY_HOST": "127.0.0.1",
        "CRYSTAL_RELAY_PORT": str(port),
        "CRYSTAL_RELAY_STORE": fly["env"]["CRYSTAL_RELAY_STORE"].replace("BUCKET", server.bucket),
        "CRYSTAL_RELAY_S3_ENDPOINT": server.endpoint,
        **server.environment,
    }
    _until_ready(_started(environment, "serve"), port, fly["http_service"]["checks"][0]["path"])


def test_every_variable_in_these_files_is_one_that_the_relay_reads() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "crystal_relay", "serve", "--help"],
        env=os.environ | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    known = set(re.findall(r"CRYSTAL_RELAY_[A-Z0-9_]+", said))
    # Caddy's own, in the Caddyfile.
    known |= {"CRYSTAL_RELAY_SITE", "CRYSTAL_RELAY_UPSTREAM"}
    named = {
        name
        for path in DEPLOY.rglob("*")
        if path.is_file()
        for name in re.findall(r"CRYSTAL_RELAY_[A-Z0-9_]+", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 8
    assert named - known == set()


def _until_ready(process: subprocess.Popen[bytes], port: int, path: str = "/health/ready") -> None:
    """Wait until it is, then stop it in order."""
    deadline = time.monotonic() + START_SECONDS_MAX
    try:
        while not _answers(f"http://127.0.0.1:{port}{path}"):
            assert process.poll() is None, (process.stderr or sys.stdin.buffer).read().decode()
            assert time.monotonic() < deadline, "it does not get ready"
            time.sleep(0.1)
        process.terminate()
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors.decode()
    finally:
        process.kill()
        process.communicate()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=5).status_code == 200
    except httpx.TransportError:
        return False
