"""`crystal-relay up`: what it writes for the system, what it refuses, and that a failed one leaves nothing."""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from crystal_relay.address import http_client
from crystal_relay.cli.service import MARK, Launchd, RelayProgram, Systemd
from crystal_relay.errors import BadRequest
from tests.relay.test_cli import ENVIRONMENT, finish, start
from tests.support.systemd_unit import Unit, complaints

ODD = 'a "store" with 100% of $HOME \\ and ünïcode'


def relay(home: Path, *arguments: str, path: str = "/nowhere") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "crystal_relay", *arguments],
        env=ENVIRONMENT | {"HOME": str(home), "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def program(directory: Path) -> RelayProgram:
    command = (sys.executable, "-P", "-m", "crystal_relay", "serve", "--tls", "--store", str(directory))
    return RelayProgram(command, directory)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
@pytest.mark.parametrize("of_system", [True, False])
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, *, of_system: bool) -> None:
    file = tmp_path / "crystal-relay.service"
    file.write_text(Systemd(of_system=of_system).render(program(tmp_path / ODD)), encoding="utf-8")
    assert complaints(file) == ""
    unit = Unit(file)
    assert MARK in file.read_text(encoding="utf-8")
    assert unit.on("NoNewPrivileges")
    assert (unit.all("ProtectSystem") == ["strict"]) is of_system
    assert "token" not in file.read_text(encoding="utf-8").lower()


def test_the_agent_of_launchd_runs_the_same_command(tmp_path: Path) -> None:
    text = Launchd().render(program(tmp_path / ODD)).decode()
    assert "<string>--tls</string>" in text
    assert "<key>RunAtLoad</key>" in text


def test_a_path_that_would_add_lines_to_a_unit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no service file"):
        Systemd(of_system=False).render(program(tmp_path / "x\nExecStartPre=/bin/evil"))


def test_a_unit_of_somebody_else_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "systemctl").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    manager = Systemd(of_system=False)
    manager.file.parent.mkdir(parents=True)
    manager.file.write_text("[Service]\nExecStart=/bin/true\n")
    for change in (lambda: manager.install(program(tmp_path)), manager.uninstall):
        with pytest.raises(BadRequest, match="was not written by"):
            change()
    assert manager.file.read_text().startswith("[Service]")


def test_where_no_manager_runs_it_says_what_to_do_and_keeps_no_token(tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    refused = relay(
        tmp_path, "up", "--store", store, "--address", "relay.example.org", "--port", "28791", "--json"
    )
    assert refused.returncode == 8
    assert "crystal-relay serve --tls" in json.loads(refused.stderr)["hint"]
    listed = relay(tmp_path, "tokens", "list", "--store", store, "--json")
    assert json.loads(listed.stdout)["tokens"] == []
    assert relay(tmp_path, "down").returncode == 0


def test_a_bucket_has_no_certificate_of_its_own(tmp_path: Path) -> None:
    for command in (("up",), ("serve", "--tls")):
        refused = relay(tmp_path, *command, "--store", "s3://bucket/prefix")
        assert refused.returncode == 2
        assert "directory" in refused.stderr


def test_it_serves_by_the_certificate_that_its_address_names_and_keeps_it(tmp_path: Path) -> None:
    options = ("--tls", "--host", "127.0.0.1", "--store", (tmp_path / "store").as_uri())
    pins = set()
    for _ in range(2):
        process, url = start(*options)

        async def asked(url: str = url) -> int:
            async with http_client(url, connect=5, idle=20, connections_kept=1) as http:
                return (await http.get("/health")).status_code

        assert asyncio.run(asked()) == 200
        plain = url.partition("#")[0]
        with pytest.raises(httpx.ConnectError):
            httpx.get(plain)  # no authority has signed it
        with pytest.raises(httpx.HTTPError):
            httpx.get(plain.replace("https", "http"))
        code, _, _ = finish(process)
        assert code == 0
        pins.add(url.partition("#")[2])
    assert len(pins) == 1
    assert (tmp_path / "store" / "tls.pem").stat().st_mode & 0o077 == 0
