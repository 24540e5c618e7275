"""What a person may do wrong in the first hour. Each gets one clear line and what to do about it, and loses nothing.

Two at once and kills are in `test_up`, answers at a terminal and Ctrl-C at each question in `test_answers`, names in
`safekeeping/pairing/test_device_names`, hostile relays and newcomers in `safekeeping/pairing`.
"""

import asyncio
import re
import socket
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from importlib.metadata import metadata
from pathlib import Path

import pytest

from crystal_crypto.identity import ExchangeKey
from crystal_crypto.invite_code import InviteCode, InviteSecret, encode_invite
from crystal_node.base.locking import FileLock
from crystal_node.device.device import opened
from crystal_relay.invites import CloseReason, access_hash
from tests.support.clocks import DAY, ClockedMachine
from tests.support.failing_disk import FailingDisk, Fails, compiled_shim
from tests.support.hasty_relay import hasty_relay
from tests.support.invited import settings_of
from tests.support.machine import Machine, Outcome, Vault, transcript
from tests.support.pairing import inviting, joining
from tests.support.relay_process import RelayProcess

NOWHERE = "http://127.0.0.1:9"
_CORE = ("up", "--role", "core", "--no-service", "--yes")


@pytest.fixture
def person(machine: Machine) -> Machine:
    transcript(machine, "The lighthouse was painted.")
    return machine


def _said(outcome: Outcome, code: int, what: str, remedy: str) -> None:
    """The last two lines say what is wrong, and what to do."""
    assert outcome.code == code, outcome.out + outcome.err
    why, hint = outcome.err.splitlines()[-2:]
    assert why.startswith("crystal: ")
    assert what in why
    assert hint.startswith("  ")
    assert remedy in hint


def _goes_on(machine: Machine) -> None:
    """The next `crystal up` makes it good, whatever came before."""
    machine.call("up", "--no-service", "--yes")
    assert machine.found("lighthouse") == ["The lighthouse was painted."]


def test_a_wrong_token(person: Machine, relay: RelayProcess) -> None:
    refused = person.call(*_CORE, "--relay", relay.url, check=False, CRYSTAL_RELAY_ENROLL_TOKEN="0" * 64)
    _said(refused, 3, "does not accept that enrolment token", "Copy it again")
    _goes_on(person)


def test_no_token(person: Machine, relay: RelayProcess) -> None:
    missing = person.call(*_CORE, "--relay", relay.url, check=False)
    _said(missing, 3, "enrolment token is needed", "The relay prints it at its first start")
    _goes_on(person)


def test_a_relay_that_is_off(person: Machine) -> None:
    off = person.call(*_CORE, "--relay", NOWHERE, check=False, CRYSTAL_RELAY_ENROLL_TOKEN="0" * 64)
    _said(off, 4, "cannot be reached", "Is the relay running")
    _goes_on(person)


def test_an_address_without_a_scheme(person: Machine) -> None:
    half = person.call(*_CORE, "--relay", "relay.example.org:18791", check=False)
    _said(half, 3, "is no http or https address", "Write it whole: https://relay.example.org:18791")
    assert not person.home.exists()


def _invite(vault: Vault, *, ends: CloseReason | None) -> str:
    """The text of an invite at the relay, which nobody serves, and which has ended."""
    settings = settings_of(vault.core)
    exchange = ExchangeKey.generate().public
    assert settings.vault is not None
    code = InviteCode(settings.vault, InviteSecret.generate(), exchange, vault.relay.url)

    async def at_relay() -> None:
        with opened(settings) as device:
            async with device.at_relay() as relay:
                await relay.create_invite(code.mailbox, access_hash(code.access))
                if ends is not None:
                    await relay.close_invite(code.mailbox, ends)

    asyncio.run(at_relay())
    return encode_invite(code)


@pytest.mark.parametrize(
    ("ends", "what"),
    [
        (CloseReason.USED, "used"),
        (CloseReason.WITHDRAWN, "withdrawn"),
        (CloseReason.BURNT, "burnt"),
    ],
)
def test_an_invite_that_is_over(person: Machine, vault: Vault, ends: CloseReason, what: str) -> None:
    code = _invite(vault, ends=ends)
    over = person.call("up", "--code", code, "--no-service", "--yes", check=False)
    _said(over, 7, what, "crystal pair")
    _goes_on(person)


def test_an_invite_that_expired(person: Machine, tmp_path: Path) -> None:
    with hasty_relay(tmp_path / "hasty", seconds=5) as relay:
        folder = tmp_path / "vault"
        folder.mkdir()
        code = _invite(Vault(relay, folder), ends=None)
        time.sleep(5.5)  # by the relay's clock
        over = person.call("up", "--code", code, "--no-service", "--yes", check=False)
        _said(over, 7, "expired", "Make a new invite: `crystal pair`")
    _goes_on(person)


def test_an_invite_with_a_slip_in_it(person: Machine, vault: Vault) -> None:
    code = _invite(vault, ends=None)
    slip = code[:30] + ("A" if code[30] != "A" else "B") + code[31:]
    mistyped = person.call("up", "--code", slip, "--no-service", "--yes", check=False)
    _said(mistyped, 7, "mistyped", "Copy the whole invite again")
    _goes_on(person)


def test_wrong_digits(vault: Vault, machine: Machine) -> None:
    with inviting(vault.core) as inviter, joining(machine, inviter.code()) as newcomer:
        digits = int(newcomer.event("digits")["digits"])
        for left in (2, 1, 0):
            inviter.type(f"{(digits + 1) % 1_000_000:06d}")
            assert inviter.event("digits-wrong")["tries"] == left
        assert (inviter.end(), newcomer.end()) == (7, 7)
    for side in (inviter, newcomer):
        assert "three times" in side.error["error"]
        assert "crystal pair" in side.error["hint"]
    assert machine.call("up", "--no-service", "--yes").code == 0, "it is in no vault, and may make its own"


@contextmanager
def _taken() -> Generator[int]:
    with closing(socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)) as there:
        there.bind(("", 0))
        there.listen()
        yield there.getsockname()[1]


def test_a_port_that_is_taken(person: Machine) -> None:
    person.call("up", "--no-service", "--yes")
    with _taken() as port:
        person.call("config", "set", "own_relay_port", str(port))
        taken = person.call("pair", "--here", check=False)
        _said(taken, 2, f"cannot have port {port}: it is taken", "crystal config set own_relay_port N")
    assert person.found("lighthouse") == ["The lighthouse was painted."]


def test_a_name_that_is_taken(vault: Vault) -> None:
    laptop = vault.add()
    names = [machine.call("status", "--json").json["name"] for machine in (vault.core, laptop)]
    refused = vault.core.call("devices", "rename", names[1], names[0], check=False)
    _said(refused, 2, "another device is called", f"such as {names[0]}-2")


def test_a_full_disk(person: Machine, tmp_path: Path) -> None:
    shim = compiled_shim(tmp_path)
    if isinstance(shim, str):
        pytest.skip(shim)
    person.home.mkdir(mode=0o700)
    disk = FailingDisk(tmp_path / "disk", shim, person.home)
    person.extra |= disk.environment
    disk.fail(Fails.WRITE, after=3)
    full = person.run("up", "--no-service", "--yes", check=False)
    disk.mend()
    _said(full, 8, "", "free space")
    person.run("up", "--no-service", "--yes")
    assert person.found("lighthouse") == ["The lighthouse was painted."]


@pytest.mark.parametrize(
    ("home", "remedy"),
    [
        ("/proc/crystal", "choose another folder: CRYSTAL_HOME=FOLDER"),
        ("{file}/home", "permissions of the Crystal home"),
    ],
)
def test_a_home_that_cannot_be_written(person: Machine, home: str, remedy: str) -> None:
    (person.root / "file").touch()
    person.extra["CRYSTAL_HOME"] = home.format(file=person.root / "file")
    refused = person.call("up", "--no-service", "--yes", check=False)
    _said(refused, 8, "", remedy)
    del person.extra["CRYSTAL_HOME"]
    _goes_on(person)


def test_no_home_folder(person: Machine) -> None:
    nowhere = person.root / "gone"
    refused = person.call("up", "--no-service", "--yes", check=False, HOME=str(nowhere))
    _said(refused, 8, f"your home folder {nowhere} does not exist", "CRYSTAL_HOME")
    assert not nowhere.exists()
    _goes_on(person)


@pytest.mark.parametrize("days", [-1, 1])
def test_a_clock_that_is_wrong_by_a_day(vault: Vault, tmp_path: Path, days: int) -> None:
    (tmp_path / "wrong").mkdir()
    wrong = ClockedMachine(tmp_path / "wrong")
    wrong.clock.set(days * DAY)
    transcript(wrong, "The lighthouse was painted.")
    wrong.call(
        *("up", "--code", "-", "--relay", vault.relay.url, "--no-service", "--yes"), typed=vault.code() + "\n"
    )
    wrong.call("sync")
    vault.core.call("sync")
    assert vault.core.found("lighthouse") == ["The lighthouse was painted."]
    told = wrong.call("doctor", check=False).out
    assert re.search(rf"clock is 2[34] h {'ahead of' if days > 0 else 'behind'} the relay's", told)
    assert "Set this machine's clock" in told


def test_a_python_that_is_too_old() -> None:
    assert metadata("memory-crystal")["Requires-Python"] == ">=3.11", (
        "what installs it says so, and names the version"
    )


def test_two_at_once(person: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crystal_node.device.enrolment._SETUP_WAIT_SECONDS", 0.1)
    person.home.mkdir(mode=0o700)
    (person.home / "state").mkdir(mode=0o700)
    with FileLock(settings_of(person).home.setup_lock, purpose="crystal up"):
        second = person.call("up", "--no-service", "--yes", check=False)
    _said(second, 9, "in use by process", "Wait for it to finish")
    _goes_on(person)
