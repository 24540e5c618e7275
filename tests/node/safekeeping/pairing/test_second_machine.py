"""The second machine comes: the vault moves from the first one's own relay to one that both reach."""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.node.agent.daemon.running import agent
from tests.support.machine import Machine, transcript
from tests.support.pairing import inviting, joining
from tests.support.relay_process import RelayProcess
from tests.support.s3_servers.daemons import free_port
from tests.support.terminal import terminal
from tests.support.watchers import until


@pytest.fixture
def other(tmp_path: Path) -> Machine:
    (tmp_path / "other").mkdir()
    return Machine(tmp_path / "other")


@pytest.fixture
def first(machine: Machine) -> Machine:
    """Set up alone, with something recorded, durable and searchable."""
    transcript(machine, "The lighthouse was painted.")
    machine.run("up", "--no-service", "--yes")
    machine.run("sync")
    return machine


def test_what_was_recorded_alone_goes_along(first: Machine, other: Machine, relay: RelayProcess) -> None:
    vault = first.call("status", "--json").json["vault"]
    first.extra["CRYSTAL_RELAY_ENROLL_TOKEN"] = relay.enroll_token
    with inviting(first, "--relay", relay.url) as inviter, joining(other, inviter.code()) as newcomer:
        inviter.type(newcomer.event("digits")["digits"])
        assert inviter.end() == newcomer.end() == 0
    other.run("sync")
    assert other.found("lighthouse") == ["The lighthouse was painted."]
    status = first.call("status", "--json").json
    assert (status["vault"], status["relay"]) == (vault, relay.url)
    assert "lost" not in json.dumps(status), "a move is no loss"
    assert not (first.home / "state" / "relay").exists()
    assert "relay has everything" in first.run("verify", "--deep").out


def test_a_wrong_address_or_token_is_asked_for_again(first: Machine, relay: RelayProcess) -> None:
    with terminal(first, "pair", TERM="dumb") as shown:
        shown.until("Your machines exchange data through a relay")
        shown.until("(here)")
        shown.type("relay.example.org\n")
        shown.until("Write it whole: https://relay.example.org")
        shown.until("(here)", times=2)
        shown.type(f"{relay.url}\n")
        shown.until("enrolment token:")
        shown.type("not-the-token-of-this-relay\n")
        shown.until("does not accept that enrolment token")
        shown.until(f"({relay.url})")
        shown.type("\n")
        shown.until("enrolment token:", times=2)
        shown.type(f"{relay.enroll_token}\n")
        shown.until("with all that it had")
        shown.until("Waiting for the new machine")
        shown.stop()
        shown.end()
    assert first.call("status", "--json").json["relay"] == relay.url


def test_without_anybody_to_ask_it_says_what_is_missing(first: Machine) -> None:
    refused = first.call("pair", "--json", typed="\n", check=False)
    assert refused.code == 3
    assert "--relay URL" in refused.error["hint"]


def test_killed_in_the_middle_it_goes_on_and_loses_nothing(
    first: Machine, other: Machine, relay: RelayProcess
) -> None:
    first.extra["CRYSTAL_RELAY_ENROLL_TOKEN"] = relay.enroll_token
    for hundredths in (40, 55, 70, 85):
        started = first.start("pair", "--json", "--relay", relay.url)
        time.sleep(hundredths / 100)
        started.kill()
        started.communicate()
    with inviting(first, "--relay", relay.url) as inviter, joining(other, inviter.code()) as newcomer:
        inviter.type(newcomer.event("digits")["digits"])
        assert inviter.end() == newcomer.end() == 0
    other.run("sync")
    assert other.found("lighthouse") == ["The lighthouse was painted."]


@pytest.fixture
def open_first(first: Machine) -> Machine:
    """Its background service runs, and was told to let other machines reach the relay."""
    first.run("config", "set", "own_relay_port", str(free_port()))
    return reached_by_loopback(first)


def reached_by_loopback(first: Machine) -> Machine:
    """So that no network is needed: without one, a machine has no address of its own."""
    first.run("config", "set", "own_relay_host", "127.0.0.1")
    return first


def paired(first: Machine, other: Machine) -> str:
    """The relay's address that the other machine was given."""
    with inviting(first, "--here") as inviter, joining(other, inviter.code()) as newcomer:
        inviter.type(newcomer.event("digits")["digits"])
        assert inviter.end() == newcomer.end() == 0
    return str(other.call("status", "--json").json["relay"])


def test_the_first_machine_is_the_relay_while_its_service_runs(first: Machine, other: Machine) -> None:
    reached_by_loopback(first)
    with agent(first):
        first.run("config", "set", "own_relay_port", str(free_port()))  # the running service follows
        url = paired(first, other)
        assert re.fullmatch(r"https://[^#]+#pin=[a-z2-7]{26}", url)
        assert first.call("status", "--json").json["relay"] == "local"
        transcript(first, "The foghorn was mended.")
        synced = None
        deadline = time.monotonic() + 90
        while other.found("foghorn") == []:
            assert time.monotonic() < deadline, (
                synced,
                first.run("status").out,
                first.run("agent", "logs").out,
            )
            synced = other.call("sync", check=False)
        assert other.found("lighthouse") == ["The lighthouse was painted."]
    away = other.call("sync", check=False)
    assert away.code == 4
    with agent(first):
        other.run("remember", "The relay came back.")
        deadline = time.monotonic() + 30
        while (
            other.call("sync", check=False).code != 0
            or other.call("status", "--json").json["outbox"]["pending"]
        ):
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_without_a_service_the_pairing_itself_serves(open_first: Machine, other: Machine) -> None:
    paired(open_first, other)
    assert other.found("lighthouse") == ["The lighthouse was painted."]
    assert other.call("sync", check=False).code == 4
    refused = open_first.call("up", "--code", "-", "--yes", typed="MC2:x\n", check=False)
    assert "has other devices, so it cannot end" in refused.err


def test_whoever_answers_with_another_certificate_gets_no_token(open_first: Machine, other: Machine) -> None:
    paired(open_first, other)
    (open_first.home / "state" / "relay" / "tls.pem").unlink()
    with agent(open_first):
        deadline = time.monotonic() + 30
        while "another relay answers" not in (told := other.call("sync", check=False)).err:
            assert time.monotonic() < deadline, told.err
            time.sleep(0.2)
    assert told.code != 0


def test_at_a_terminal_enter_opens_it_here(open_first: Machine) -> None:
    open_first.run("config", "unset", "own_relay_port")
    with terminal(open_first, "pair", TERM="dumb") as shown:
        shown.until("(here)")
        shown.type("\n")
        shown.until("Waiting for the new machine")
        assert "18791" in open_first.run("config").out
        shown.stop()
        shown.end()
    assert "18791" not in open_first.run("config").out, "nobody was added"


def test_a_taken_port_is_named(open_first: Machine) -> None:
    with socket.create_server(
        ("", int(open_first.run("config").out.partition("own_relay_port")[2].split()[0]))
    ):
        refused = open_first.call("pair", "--here", "--json", typed="\n", check=False)
    assert "is taken" in refused.err


def test_a_machine_with_a_memory_of_its_own_takes_it_along_also_when_it_is_killed(
    first: Machine, other: Machine, relay: RelayProcess
) -> None:
    transcript(other, "The buoy was repainted.")
    other.run("up", "--no-service", "--yes")
    first.extra["CRYSTAL_RELAY_ENROLL_TOKEN"] = relay.enroll_token
    with (
        inviting(first, "--relay", relay.url) as inviter,
        terminal(other, "up", "--code", "-", "--no-service", TERM="dumb") as newcomer,
    ):
        newcomer.until("a memory of its own, with 1 message.")
        newcomer.until("its own vault ends")
        newcomer.until("Go on?")
        newcomer.type("\n")
        newcomer.until("The code that")
        newcomer.type(f"{inviter.code()}\n")
        newcomer.until("Waiting for the digits")
        found = re.search(r"\b([0-9]{3}) ([0-9]{3})\b", newcomer.shown.partition("Type these digits")[2])
        assert found is not None
        inviter.type(found[1] + found[2])
        newcomer.until("added this machine?")
        newcomer.type("yes\n")
        config = other.root / ".ldm.joining" / "config.json"
        until(
            lambda: not config.exists() or json.loads(config.read_text()).get("vault"), "that it has joined"
        )
        newcomer.kill()
    went_on = other.run("up", "--no-service", "--yes")
    assert "Node of vault" in went_on.out
    first.run("sync")
    other.run("sync")
    for each in (first, other):
        assert each.found("buoy")[0] == "The buoy was repainted."
        assert each.found("lighthouse")[0] == "The lighthouse was painted."
    assert [path.name for path in other.root.glob(".ldm*")] == [".ldm"]


HOLDER = """
import asyncio, sys
from pathlib import Path
from crystal_relay.embedded.relay import EmbeddedRelay

async def hold():
    relay = await EmbeddedRelay.open(Path(sys.argv[1]))
    print("held", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await relay.aclose()

asyncio.run(hold())
"""


def test_the_service_opens_the_relay_also_when_a_command_had_it_first(open_first: Machine) -> None:
    port = int(open_first.call("config", "--json").out.partition('"own_relay_port",')[2].split('"')[3])
    folder = str(open_first.home / "state" / "relay")
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDER, folder], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        with agent(open_first):
            time.sleep(1)
            holder.stdin.close()
            until(lambda: _answers(port), "a port that is open")


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def test_a_pairing_that_came_to_nothing_closes_the_relay_again(first: Machine) -> None:
    reached_by_loopback(first)
    refused = first.run("pair", "--here", "--json", check=False)
    assert refused.code == 2
    assert "own_relay_port" not in (first.home / "config.json").read_text()


def test_a_vault_with_other_machines_is_not_moved_away_from_them_unasked(
    open_first: Machine, other: Machine, relay: RelayProcess
) -> None:
    paired(open_first, other)
    open_first.extra["CRYSTAL_RELAY_ENROLL_TOKEN"] = relay.enroll_token
    refused = open_first.call("pair", "--relay", relay.url, "--json", typed="\n", check=False)
    assert "1 other machine would not find the vault" in refused.err
    assert open_first.call("status", "--json").json["relay"] == "local"


def test_a_backup_of_a_single_machine_comes_back_by_its_kit(first: Machine, tmp_path: Path) -> None:
    kit, disk = tmp_path / "kit.txt", tmp_path / "disk"
    disk.mkdir()
    first.run("recovery", "show", "--out", str(kit), "--yes")
    first.run("backup", "setup", "--to", str(disk))
    first.run("backup")
    (tmp_path / "again").mkdir()
    again = Machine(tmp_path / "again")
    [made] = list(disk.rglob("manifest.json"))
    again.run("backup", "restore", str(made.parent), "--kit", str(kit), "--yes")
    again.run("sync")
    assert again.found("lighthouse") == ["The lighthouse was painted."]
    assert again.call("status", "--json").json["relay"] == "local"


def test_a_wrong_enrolment_token_keeps_the_home_from_no_other_vault(
    first: Machine, other: Machine, relay: RelayProcess
) -> None:
    refused = other.call(
        *("init", "--role", "core", "--relay", relay.url, "--enroll-token", "-", "--yes"),
        typed="0" * 32 + "\n",
        check=False,
    )
    assert refused.code == 3
    first.extra["CRYSTAL_RELAY_ENROLL_TOKEN"] = relay.enroll_token
    with inviting(first, "--relay", relay.url) as inviter, joining(other, inviter.code()) as newcomer:
        inviter.type(newcomer.event("digits")["digits"])
        assert inviter.end() == newcomer.end() == 0


def test_the_offline_code_comes_with_a_relay_that_is_reached_while_it_is_shown(
    open_first: Machine, other: Machine
) -> None:
    with terminal(open_first, "pair", "--offline", "--yes", "--here", TERM="dumb") as shown:
        shown.until("Press Enter once the other one is set up.")
        found = re.search(r"(mc3:\S+)", shown.shown), re.search(r"--relay '(\S+)'", shown.shown)
        assert found[0] is not None
        assert found[1] is not None
        other.run("pair", "--code", "-", "--relay", found[1][1], typed=f"{found[0][1]}\n")
        shown.type("\n")
        assert shown.end() == 0
    assert other.call("status", "--json").json["role"] == "node"


@pytest.mark.parametrize("command", [("sync",), ("up", "--no-service", "--yes")])
def test_a_relay_in_the_home_that_was_lost_gets_the_vault_again(
    first: Machine, command: tuple[str, ...]
) -> None:
    shutil.rmtree(first.home / "state" / "relay")
    outcome = first.run(*command)
    assert "had lost the vault" in outcome.out + outcome.err
    first.run("remember", "The foghorn was mended.")
    first.run("sync")
    status = first.call("status", "--json").json
    assert (status["outbox"]["pending"], status["role"]) == (0, "core")
    assert "relay has everything" in first.run("verify", "--deep").out
