"""`crystal-relay up`: what it writes for the system, what it refuses, and that a failed one leaves nothing."""

import asyncio
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from crystal_relay.address import http_client
from crystal_relay.cli.app import app
from crystal_relay.cli.service import MARK, Installed, Launchd, RelayProgram, Systemd
from crystal_relay.errors import BadRequest
from tests.relay.test_cli import ENVIRONMENT, finish, start
from tests.support.machine import Machine
from tests.support.s3_servers.daemons import free_port
from tests.support.systemd_unit import Unit, complaints
from tests.support.user_manager import UserManager, with_manager
from tests.support.watchers import until

pytestmark = pytest.mark.timeout(400)
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


def test_root_gets_a_low_port_by_the_one_capability_for_it(tmp_path: Path) -> None:
    file = tmp_path / "crystal-relay.service"
    for low_port, capabilities in ((False, []), (True, ["CAP_NET_BIND_SERVICE"])):
        file.write_text(
            Systemd(of_system=True).render(RelayProgram(("/bin/true",), tmp_path, low_port=low_port))
        )
        assert Unit(file).all("CapabilityBoundingSet") == capabilities


def test_a_service_names_its_port_in_each_form(tmp_path: Path) -> None:
    command = RelayProgram(("/bin/relay", "--host", "::", "--port", "443", "--store", "x"), tmp_path)
    forms = (
        Systemd(of_system=False).render(command).encode(),
        Launchd().render(command),
        f"<Arguments>{subprocess.list2cmdline(command.command)}</Arguments>".encode(),
    )
    assert [Installed(each, runs=True).port for each in forms] == [443] * 3
    assert Installed(b"[Service]", runs=True).port is None


@dataclass(frozen=True)
class Person:
    """Somebody with a service manager."""

    root: Path
    manager: UserManager

    @property
    def unit(self) -> Path:
        return self.manager.units / "crystal-relay.service"

    def up(self, *arguments: str, store: str = "store") -> Result:
        address = (self.root / store).as_uri()
        return CliRunner().invoke(app, ["up", "--store", address, "--host", "127.0.0.1", *arguments])

    def tokens(self, store: str = "store") -> list[object]:
        listed = relay(self.root, "tokens", "list", "--store", (self.root / store).as_uri(), "--json")
        found: list[object] = json.loads(listed.stdout)["tokens"]
        return found


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Person]:
    machine = Machine(tmp_path)
    manager = with_manager(machine)
    (tmp_path / "bin" / "loginctl").symlink_to("/bin/false")
    for name, value in {"HOME": str(tmp_path), **machine.extra}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("crystal_relay.cli.up.service_manager", lambda: Systemd(of_system=False))
    yield Person(tmp_path, manager)
    manager.stop_all()


def answers(url: str) -> bool:
    async def asked() -> int:
        async with http_client(url, connect=5, idle=20, connections_kept=1) as http:
            return (await http.get("/health")).status_code

    try:
        return asyncio.run(asked()) == 200
    except httpx.HTTPError:
        return False


def test_a_change_that_fails_leaves_the_relay_that_runs_as_it_was(person: Person) -> None:
    port = free_port()
    done = person.up("--port", str(port), "--json")
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    url = json.loads(done.stdout)["url"]
    unit, running = person.unit.read_bytes(), person.manager.running()
    assert answers(url)

    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = person.up("--port", str(other.getsockname()[1]))
    assert (taken.exit_code, person.manager.running()) == (9, running), "the relay was not even restarted"
    for wrong in (("--host", "192.0.2.1"), ("--address", "relay:18791")):
        refused = person.up("--port", str(port), *wrong)
        assert refused.exit_code in (2, 3)
        assert person.manager.running() == running

    # A store whose certificate has lost its key: the relay over it is installed, and ends at once.
    (person.root / "other").mkdir()
    text = (person.root / "store" / "tls.pem").read_text()
    (person.root / "other" / "tls.pem").write_text(text[text.index("-----BEGIN CERTIFICATE") :])
    failed = person.up("--port", str(port), store="other")
    assert failed.exit_code == 8
    assert "does not run" in failed.stderr
    assert person.unit.read_bytes() == unit
    assert person.manager.running() not in ([], running)
    assert person.tokens("other") == []
    until(lambda: answers(url), "the relay as it was before")


def test_a_relay_whose_name_does_not_lead_back_to_it_stays(person: Person) -> None:
    port = free_port()
    done = person.up("--port", str(port), "--address", "127.0.0.9", "--json")
    assert done.exit_code == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["url"].startswith(f"https://127.0.0.9:{port}#pin=")
    assert f"forward port {port} to this machine" in done.stderr
    assert answers(shown["url"].replace("127.0.0.9", "127.0.0.1"))
    assert len(person.tokens()) == 1


def test_who_answers_instead_of_the_relay_is_told(person: Person) -> None:
    theirs = person.root / "theirs"
    process, url = start("--tls", "--host", "127.0.0.9", "--store", theirs.as_uri())
    port = int(url.partition("#")[0].rpartition(":")[2])
    try:
        done = person.up("--port", str(port), "--address", "127.0.0.9")
        assert done.exit_code == 0, done.stderr
        assert "Another server than this relay answers" in done.stderr
    finally:
        finish(process)


def test_it_serves_by_the_certificate_that_its_address_names_and_keeps_it(tmp_path: Path) -> None:
    options = ("--tls", "--host", "127.0.0.1", "--store", (tmp_path / "store").as_uri())
    pins = set[str]()
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
