"""Pairings that come to nothing: nobody is added, and each side says what happened and what to do about it."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.bad_relay import ANSWERS, bad_relay
from tests.support.hasty_relay import hasty_relay
from tests.support.machine import Machine, Vault
from tests.support.pairing import hurried, inviting, joining, members, pair
from tests.support.relay_process import RelayProcess


def _other(digits: str) -> str:
    return f"{(int(digits) + 1) % 1_000_000:06d}"


def _not_set_up(machine: Machine) -> bool:
    return machine.call("status", "--json", check=False).code == 3


def test_wrong_digits_three_times_burn_the_invite_and_add_nobody(vault: Vault, machine: Machine) -> None:
    with inviting(vault.core) as inviter:
        code = inviter.code()
        with joining(machine, code) as newcomer:
            wrong = _other(str(newcomer.event("digits")["digits"]))
            for left in (2, 1, 0):
                inviter.type(wrong)
                assert inviter.event("digits-wrong")["tries"] == left
            assert (inviter.end(), newcomer.end()) == (7, 7)
    assert "three times" in inviter.error["error"]
    assert "somebody is between" in inviter.error["hint"]
    assert "three times" in newcomer.error["error"]
    assert len(members(vault.core)) == 1
    assert _not_set_up(machine)
    with joining(machine, code) as late:
        assert late.end() == 7
        assert "burnt" in late.error["error"]


def test_two_wrong_tries_and_the_right_digits_still_pair(vault: Vault, machine: Machine) -> None:
    with inviting(vault.core) as inviter, joining(machine, inviter.code()) as newcomer:
        digits = str(newcomer.event("digits")["digits"])
        for typed in (_other(digits), _other(digits), digits):
            inviter.type(typed)
        assert (inviter.end(), newcomer.end()) == (0, 0)
    assert inviter.names.count("digits-wrong") == 2


def test_of_two_newcomers_one_wins_and_the_other_is_told_that_the_invite_is_used(
    vault: Vault, tmp_path: Path
) -> None:
    machines = [Machine(tmp_path / name) for name in ("first", "second")]
    for machine in machines:
        machine.root.mkdir()
    with inviting(vault.core) as inviter:
        code = inviter.code()
        with joining(machines[0], code) as one, joining(machines[1], code) as other:
            deadline = time.monotonic() + 60
            while one.running and other.running:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            winner, loser = (other, one) if not one.running else (one, other)
            assert loser.end() == 7
            assert "already used" in loser.error["error"]
            assert "digits" in loser.error["hint"]
            inviter.type(str(winner.event("digits")["digits"]))
            assert (inviter.end(), winner.end()) == (0, 0)
    assert len(members(vault.core)) == 2


def test_who_comes_after_the_pairing_is_told_that_the_invite_is_used(
    vault: Vault, machine: Machine, tmp_path: Path
) -> None:
    inviter, _ = pair(vault.core, machine)
    late = Machine(tmp_path / "late")
    late.root.mkdir()
    with joining(late, str(inviter.events[0]["code"])) as newcomer:
        assert newcomer.end() == 7
    assert "already used" in newcomer.error["error"]
    assert _not_set_up(late)


@pytest.mark.slow
def test_an_invite_that_expires_says_how_long_ago_and_adds_nobody(machine: Machine, tmp_path: Path) -> None:
    with hasty_relay(tmp_path / "hasty", seconds=2) as relay:
        vault = Vault(relay, tmp_path / "vault")
        with inviting(vault.core) as inviter:
            code = inviter.code()
            assert inviter.end() == 10
            assert "expired" in inviter.error["error"]
            assert "crystal pair" in inviter.error["hint"]
        with joining(machine, code) as newcomer:
            assert newcomer.end() == 7
        assert "expired" in newcomer.error["error"]
        assert " s ago" in newcomer.error["error"]
        assert "Make a new invite" in newcomer.error["hint"]


@pytest.mark.slow
def test_digits_that_come_when_the_time_is_as_good_as_over_add_nobody(
    machine: Machine, tmp_path: Path
) -> None:
    late = hurried(tmp_path / "late", {"inviter.ADD_SECONDS_MIN": 17.0})
    with hasty_relay(tmp_path / "hasty", seconds=16) as relay:
        vault = Vault(relay, tmp_path / "vault")
        with inviting(vault.core, PYTHONPATH=late) as inviter, joining(machine, inviter.code()) as newcomer:
            inviter.type(str(newcomer.event("digits")["digits"]))
            assert inviter.end() == 7
            assert "ten minutes" in inviter.error["error"]
            assert newcomer.end() == 7
        assert len(members(vault.core)) == 1
        assert _not_set_up(machine)


def test_a_home_of_another_vault_is_told_so_before_anything_is_asked_of_the_relay(
    vault: Vault, relay: RelayProcess, tmp_path: Path
) -> None:
    foreign = Vault(relay, tmp_path / "foreign")
    with inviting(foreign.core) as inviter:
        code = inviter.code()
        with bad_relay(None) as unasked, joining(vault.core, code, "--relay", unasked.url) as newcomer:
            assert newcomer.end() == 7
            assert not unasked.requests
        assert "belongs to another vault" in newcomer.error["error"]
        assert "CRYSTAL_HOME" in newcomer.error["hint"]
        inviter.stop()
        assert inviter.end() == 130


def test_an_invite_whose_machine_is_gone_says_that_nobody_is_waiting(
    vault: Vault, machine: Machine, tmp_path: Path
) -> None:
    hurry = hurried(tmp_path / "hurry", {"newcomer.ANSWER_SECONDS_MAX": 1.0})
    with inviting(vault.core) as inviter:
        code = inviter.code()
        inviter.kill()
    with joining(machine, code, PYTHONPATH=hurry) as newcomer:
        assert newcomer.end() == 10
    assert "does not answer" in newcomer.error["error"]
    assert "Leave `crystal pair` running" in newcomer.error["hint"]
    assert _not_set_up(machine)


def test_a_fourth_open_invite_is_refused_with_what_to_do(vault: Vault) -> None:
    for _ in range(3):
        with inviting(vault.core) as inviter:
            inviter.code()
            inviter.kill()
    with inviting(vault.core) as inviter:
        assert inviter.event_unless("invite", lambda: False) is None
        assert inviter.end() == 5
    assert "invites" in inviter.error["error"]
    assert "expired" in inviter.error["hint"]


@pytest.mark.parametrize("name", [*ANSWERS])
def test_a_relay_that_cannot_be_reached_or_is_none_does_not_use_the_invite_up(
    vault: Vault, machine: Machine, name: str
) -> None:
    with inviting(vault.core) as inviter:
        code = inviter.code()
        with bad_relay(ANSWERS[name]) as bad, joining(machine, code, "--relay", bad.url) as lost:
            assert lost.end() in (4, 6, 10)
            assert lost.error["hint"]
        with joining(machine, code, "--relay", "http://127.0.0.1:1") as lost:
            assert lost.end() == 4
            assert "cannot be reached" in lost.error["error"]
            assert "not used up" in lost.error["hint"]
        with joining(machine, code) as newcomer:
            inviter.type(str(newcomer.event("digits")["digits"]))
            assert (inviter.end(), newcomer.end()) == (0, 0)


def test_an_invite_that_the_relay_does_not_know_says_so(
    vault: Vault, machine: Machine, tmp_path: Path
) -> None:
    with hasty_relay(tmp_path / "other", seconds=60) as other, inviting(vault.core) as inviter:
        with joining(machine, inviter.code(), "--relay", other.url) as newcomer:
            assert newcomer.end() == 10
        assert "knows no such invite" in newcomer.error["error"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_inviter_withdraws_the_invite_and_says_so(
    vault: Vault, machine: Machine, number: signal.Signals
) -> None:
    with inviting(vault.core) as inviter:
        code = inviter.code()
        with joining(machine, code) as newcomer:
            newcomer.event("digits")
            inviter.stop(number)
            assert (inviter.end(), newcomer.end()) == (130, 7)
    assert inviter.events[-1] == {"event": "stopped", "added": False}
    assert "withdrawn" in newcomer.error["error"]
    assert len(members(vault.core)) == 1
    with joining(machine, code) as late:
        assert late.end() == 7
    assert "withdrawn" in late.error["error"]


def test_a_stopped_newcomer_leaves_nothing_behind_and_the_inviter_learns_of_it(
    vault: Vault, machine: Machine
) -> None:
    with inviting(vault.core) as inviter, joining(machine, inviter.code()) as newcomer:
        newcomer.event("digits")
        inviter.event("digits-wanted")
        newcomer.stop()
        assert newcomer.end() == 130
        assert inviter.end() == 7
    assert newcomer.events[-1] == {"event": "stopped", "added": False}
    assert "left the pairing" in inviter.error["error"]
    assert len(members(vault.core)) == 1
    assert _not_set_up(machine)
    assert pair(vault.core, machine)[0].events[-1]["confirmed"]


def test_a_person_who_does_not_know_the_newcomer_says_no(vault: Vault, machine: Machine) -> None:
    with inviting(vault.core) as inviter, joining(machine, inviter.code()) as newcomer:
        inviter.event("digits-wanted")
        inviter.type("no")
        assert (inviter.end(), newcomer.end()) == (2, 7)
    assert "not added" in inviter.error["error"]
    assert len(members(vault.core)) == 1


def test_an_inviter_that_nobody_can_type_at_adds_nobody(vault: Vault, machine: Machine) -> None:
    with inviting(vault.core) as inviter, joining(machine, inviter.code()) as newcomer:
        newcomer.event("digits")
        assert (inviter.end(), newcomer.end()) == (2, 7)
    assert "no digits were given" in inviter.error["error"]
    assert len(members(vault.core)) == 1


def test_a_newcomer_that_nobody_can_answer_at_says_so_before_it_uses_the_invite(
    vault: Vault, machine: Machine
) -> None:
    with inviting(vault.core) as inviter:
        code = inviter.code()
        outcome = machine.run("pair", "--code", "-", "--json", typed=code + "\n", check=False)
        assert outcome.code == 2
        assert "--yes" in outcome.error["hint"]
        with joining(machine, code) as newcomer:
            inviter.type(str(newcomer.event("digits")["digits"]))
            assert (inviter.end(), newcomer.end()) == (0, 0)


def test_a_key_store_that_is_not_there_says_why_before_the_invite_is_used(
    vault: Vault, machine: Machine
) -> None:
    with inviting(vault.core) as inviter:
        code = inviter.code()
        without = {"CRYSTAL_KEY_STORE": "keyring", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent"}
        with joining(machine, code, **without) as keyless:
            assert keyless.end() == 8
        assert "keyring" in keyless.error["error"]
        assert keyless.events == []
        with joining(machine, code) as newcomer:
            inviter.type(str(newcomer.event("digits")["digits"]))
            assert (inviter.end(), newcomer.end()) == (0, 0)


_SLIPS: dict[str, tuple[Callable[[str], str], str]] = {
    "cut": (lambda code: code[:60], "cut short"),
    "cut near the end": (lambda code: code[:-3], "cut short"),
    "mistyped": (lambda code: code[:30] + ("A" if code[30] != "A" else "B") + code[31:], "mistyped"),
    "a character": (lambda code: code[:30] + "!" + code[31:], "position 31"),
    "an address": (lambda _: "https://relay.example.org", "address"),
    "nothing of ours": (lambda _: "hello", "MC2:"),
}


@pytest.mark.parametrize("slip", [*_SLIPS])
def test_a_code_with_a_slip_is_named_and_uses_nothing_up(vault: Vault, machine: Machine, slip: str) -> None:
    spoil, said = _SLIPS[slip]
    with inviting(vault.core) as inviter:
        code = inviter.code()
        outcome = machine.call(
            "pair", "--code", "-", "--json", "--yes", typed=spoil(code) + "\n", check=False
        )
        assert outcome.code == 7
        assert said in outcome.error["error"]
        assert outcome.error["hint"]
        assert code[8:20] not in outcome.err


def test_two_invites_at_once_from_one_home_are_one_too_many(vault: Vault) -> None:
    with inviting(vault.core) as first:
        first.code()
        with inviting(vault.core) as second:
            assert second.event_unless("invite", lambda: False) is None
            assert second.end() == 9
    assert "crystal pair" in second.error["error"]
