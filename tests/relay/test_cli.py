"""`crystal-relay serve` as a person or a supervisor meets it."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from crystal_relay.cli.stores import StorePlace, open_store
from crystal_relay.errors import BadRequest
from tests.support.relay_server import enrolled

COMMAND = [sys.executable, "-m", "crystal_relay", "serve"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("CRYSTAL_")}


def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A start that is expected to fail."""
    return subprocess.run(
        [*COMMAND, *options],
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def start(*options: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
    """A running relay and the first line that it said."""
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", *options],
        env=ENVIRONMENT | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def finish(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
    process.send_signal(number)
    said, complained = process.communicate(timeout=20)
    return process.returncode, said, complained


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_its_address_once_it_serves_and_stops_when_told(
    tmp_path: Path, number: signal.Signals
) -> None:
    process, address = start("--store", (tmp_path / "store").as_uri())
    assert httpx.get(f"{address}/health").json()["ok"]
    began = time.monotonic()
    code, said, _ = finish(process, number)
    assert (code, said) == (0, "")
    assert time.monotonic() - began < 5


def test_json_and_the_ready_file_say_the_same(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process, line = start("--store", "memory:", "--json", "--ready-file", str(ready))
    assert json.loads(line) == json.loads(ready.read_text())
    assert json.loads(line)["pid"] == process.pid
    assert httpx.get(json.loads(line)["url"] + "/health").status_code == 200
    finish(process)


def test_the_enrolment_token_is_shown_once_and_its_hash_is_kept(tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    shown: list[str] = []
    for _ in range(2):
        process, address = start("--store", store)
        if shown:
            asyncio.run(enrolled(address, enroll_token=shown[0]))
        _, said, complained = finish(process)
        assert said == ""
        shown += [line.strip() for line in complained.splitlines() if line.startswith("  ")]
    assert len(shown) == 1
    kept = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert shown[0].encode() not in kept


def test_a_token_of_the_environment_is_used_and_not_shown(tmp_path: Path) -> None:
    process, address = start("--store", "memory:", CRYSTAL_RELAY_ENROLL_TOKEN="a-token-of-my-own-making")
    asyncio.run(enrolled(address, enroll_token="a-token-of-my-own-making"))
    _, said, complained = finish(process)
    assert (said, complained) == ("", "")


def test_a_token_may_stand_in_a_file(tmp_path: Path) -> None:
    """As systemd's credentials and containers' secrets come."""
    file = tmp_path / "token"
    file.write_text("a-token-of-my-own-making\n")
    process, address = start("--store", "memory:", CRYSTAL_RELAY_ENROLL_TOKEN_FILE=str(file))
    asyncio.run(enrolled(address, enroll_token="a-token-of-my-own-making"))
    finish(process)


def test_a_token_file_that_cannot_be_used_is_named_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("too short")
    variable = "CRYSTAL_RELAY_ENROLL_TOKEN_FILE"
    both = {variable: str(file), "CRYSTAL_RELAY_ENROLL_TOKEN": "a-token-of-my-own-making"}
    for environment in ({variable: str(file)}, {variable: str(tmp_path / "none")}, both):
        failed = run("--store", "memory:", "--port", "0", **environment)
        assert failed.returncode == 2
        assert variable in failed.stderr
        assert "too short" not in failed.stderr
        assert "of-my-own-making" not in failed.stderr


def test_a_weak_token_of_the_environment_is_refused_and_not_shown() -> None:
    for token in ("short", "with a space in the middle", "t\u00f6ken-t\u00f6ken-t\u00f6ken"):
        failed = run("--store", "memory:", "--port", "0", CRYSTAL_RELAY_ENROLL_TOKEN=token)
        assert failed.returncode == 2
        assert "CRYSTAL_RELAY_ENROLL_TOKEN" in failed.stderr
        assert token not in failed.stderr


def test_a_taken_port_is_said_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        failed = run("--store", "memory:", "--port", port)
        assert failed.returncode == 9
        assert port in failed.stderr
        assert "--port" in failed.stderr
        assert "Traceback" not in failed.stderr
        as_json = json.loads(run("--store", "memory:", "--port", port, "--json").stderr)
        assert as_json.keys() == {"error", "hint", "exit_code"}
        assert as_json["exit_code"] == 9


def test_a_directory_in_use_is_said(tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    process, _ = start("--store", store)
    failed = run("--store", store, "--port", "0")
    assert failed.returncode == 9
    assert "another process" in failed.stderr
    assert finish(process)[0] == 0


def test_a_directory_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    failed = run("--store", (tmp_path / "file" / "store").as_uri(), "--port", "0")
    assert failed.returncode == 8
    assert str(tmp_path / "file" / "store") in failed.stderr
    (tmp_path / "objects.db").write_bytes(b"no database " * 500)
    failed = run("--store", tmp_path.as_uri(), "--port", "0")
    assert failed.returncode == 8
    assert "damaged" in failed.stderr


@pytest.mark.parametrize(
    "address",
    [
        "",
        "x",
        "/tmp/x",
        "file:",
        "file:x",
        "file://host/x",
        "http://x",
        "file:///x?y",
        "memory",
        "file:///x#y",
    ],
)
async def test_what_is_no_store_is_refused(address: str) -> None:
    with pytest.raises(BadRequest) as caught:
        await open_store(StorePlace(address))
    assert "file:///" in caught.value.hint


@pytest.mark.parametrize("host", ["256.1.1.1", "no such host", "192.0.2.1"])
def test_an_address_that_is_not_ours_is_said(host: str) -> None:
    failed = run("--store", "memory:", "--port", "0", "--host", host)
    assert failed.returncode == 3
    assert "--host" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_spaces_and_percents_in_a_directorys_name_are_meant(tmp_path: Path) -> None:
    odd = tmp_path / "my relay 100%"
    process, _ = start("--store", odd.as_uri())
    assert finish(process)[0] == 0
    assert (odd / "objects.db").exists()
