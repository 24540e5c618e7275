"""Two hosts in two networks with a router between them find each other's texts, by the lines that a person types.

Once with the relay in the first one's home, once with `crystal-relay up` on the router. The service manager is a stand-in,
since none runs in a namespace: it starts what the unit says, and ends it.
"""

import json
import stat
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.node.agent.daemon.running import agent
from tests.support.machine import Machine, transcript
from tests.support.networks.routed import RoutedNetwork, missing, routed
from tests.support.pairing import inviting, joining
from tests.support.user_manager import with_manager

pytestmark = pytest.mark.timeout(400)
SECONDS_MAX = 120.0


@pytest.fixture(scope="module")
def network() -> Generator[RoutedNetwork]:
    if reason := missing():
        pytest.skip(reason)
    with routed() as made:
        yield made


@pytest.fixture
def hosts(network: RoutedNetwork, tmp_path: Path) -> tuple[Machine, Machine]:
    machines: list[Machine] = []
    for name, host in zip(("first", "other"), network.hosts, strict=True):
        (tmp_path / name).mkdir()
        machines.append(Machine(tmp_path / name, prefix=host.prefix, fresh=True))
    first, other = machines
    transcript(first, "The lighthouse was painted.")
    first.run("up", "--no-service", "--yes", "--name", "desktop")
    first.run("sync")
    return first, other


def pair(first: Machine, other: Machine, *arguments: str) -> str:
    """The relay's address that the other one was given."""
    with inviting(first, *arguments) as inviter, joining(other, inviter.code()) as newcomer:
        inviter.type(newcomer.event("digits")["digits"])
        assert inviter.end() == newcomer.end() == 0, (inviter.errors, newcomer.errors)
    return str(other.run("status", "--json").json["relay"])


def find_each_other(first: Machine, other: Machine) -> None:
    transcript(other, "The foghorn was mended.")
    other.run("capture")
    deadline = time.monotonic() + SECONDS_MAX
    while other.found("lighthouse") == [] or first.found("foghorn") == []:
        assert time.monotonic() < deadline, (first.run("status").out, other.run("status").out)
        for machine in (other, first):
            machine.run("sync", check=False)


def test_the_relay_in_the_first_ones_home(hosts: tuple[Machine, Machine], network: RoutedNetwork) -> None:
    first, other = hosts
    with agent(first):
        url = pair(first, other, "--here")
        assert url.startswith(f"https://{network.hosts[0].address}:18791#pin=")
        find_each_other(first, other)


@pytest.fixture
def person(tmp_path: Path) -> Generator[Machine]:
    """Somebody on the router, with a service manager; what it started is gone at the end."""
    (tmp_path / "person").mkdir()
    machine = Machine(tmp_path / "person")
    manager = with_manager(machine)
    (machine.root / "bin" / "loginctl").symlink_to("/bin/false")
    yield machine
    manager.stop_all()


def test_a_relay_that_was_installed_on_the_router(
    hosts: tuple[Machine, Machine], network: RoutedNetwork, person: Machine
) -> None:
    first, other = hosts
    as_person = (*network.router.prefix, "unshare", "--user", "--map-user=1000", "--map-group=1000")
    if subprocess.run([*as_person, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespace can be made here, and root's units belong to the system")
    unit = person.root / ".config" / "systemd" / "user" / "crystal-relay.service"

    def relay(*arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [*as_person, sys.executable, "-m", "crystal_relay", *arguments],
            env=person.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stderr
        return done

    shown = relay("up", "--json")
    up = json.loads(shown.stdout)
    assert up["url"].startswith(f"https://{network.router.address}:18791#pin=")
    assert (up["manager"], up["file"]) == ("systemd --user", str(unit))
    assert stat.S_IMODE((person.root / ".crystal-relay" / "tls.pem").stat().st_mode) == 0o600
    again = relay("up").stdout
    assert up["url"] in again, "the address stays"
    assert up["enroll_token"] not in again
    (token,) = json.loads(relay("tokens", "list", "--json").stdout)["tokens"]
    assert token["label"] == "crystal-relay up", "the service itself printed none into its journal"
    with agent(first):
        first.extra["CRYSTAL_RELAY_ENROLL_TOKEN"] = up["enroll_token"]
        assert pair(first, other, "--relay", up["url"]) == up["url"]
        find_each_other(first, other)
    told = relay("down").stdout
    assert "Its data stays" in told
    assert not unit.exists()
    assert other.run("sync", check=False).code == 4
    taken = relay("up", "--port", "1", "--address", "198.51.100.7", check=False)
    assert taken.returncode != 0
    assert not unit.exists(), "a failed one leaves nothing"
