"""Pairing by invite from end to end: real processes, a real relay over loopback, digits typed by the test."""

import stat
from pathlib import Path

import pytest

from tests.node.sync.administration.test_devices import device_id
from tests.support.machine import Machine, Vault
from tests.support.pairing import inviting, joining, members, pair

_WORDS = "The tide gauge was moved to the north pier."


def test_an_invite_brings_a_machine_in_and_both_share_one_memory(vault: Vault, machine: Machine) -> None:
    vault.core.call("remember", _WORDS)
    vault.core.call("sync")
    inviter, newcomer = pair(vault.core, machine)
    paired, joined = inviter.events[-1], newcomer.events[-1]
    assert (paired["event"], paired["again"], paired["confirmed"]) == ("paired", False, True)
    assert (joined["event"], joined["fresh"], joined["synced"]) == ("joined", True, True)
    assert joined["device"] == paired["device"]
    assert joined["vault"] == vault.core.call("status", "--json").json["vault"]
    assert machine.found("tide gauge")[:1] == [_WORDS]
    machine.call("remember", "Written on the new machine.")
    machine.call("sync")
    vault.core.call("sync")
    assert vault.core.found("new machine")[:1] == ["Written on the new machine."]
    assert machine.call("status", "--json").json["holds_root"] is False


def test_each_side_shows_who_is_at_the_other(vault: Vault, machine: Machine) -> None:
    machine.extra["CRYSTAL_DEVICE_NAME"] = "travelling laptop"
    inviter, newcomer = pair(vault.core, machine)
    arrived = next(event for event in inviter.events if event["event"] == "newcomer")
    core = vault.core.call("role", "--json").json
    digits = next(event for event in newcomer.events if event["event"] == "digits")
    assert arrived["name"] == "travelling laptop"
    assert arrived["system"]
    assert digits["inviter"]["device"] == core["device"]
    assert [entry["name"] for entry in members(vault.core)][1:] == ["travelling laptop"]


def test_a_grant_is_given_only_when_asked_for(vault: Vault, tmp_path: Path) -> None:
    for number, options in enumerate(((), ("--grant",))):
        machine = Machine(tmp_path / f"machine-{number}")
        machine.root.mkdir()
        inviter, _ = pair(vault.core, machine, *options)
        assert inviter.events[-1]["grant"] is bool(options)


def test_digits_may_be_typed_with_spaces_and_what_is_no_six_digits_does_not_count(
    vault: Vault, machine: Machine
) -> None:
    with inviting(vault.core) as inviter, joining(machine, inviter.code()) as newcomer:
        digits = str(newcomer.event("digits")["digits"])
        for slip in ("", digits[:5], "abcdef", digits + "1"):
            inviter.type(slip)
            inviter.event("digits-unreadable")
        inviter.type(f" {digits[:3]}-{digits[3:]} ")
        assert (inviter.end(), newcomer.end()) == (0, 0)


def test_pairing_again_mends_a_lost_token_and_adds_nobody(vault: Vault, machine: Machine) -> None:
    pair(vault.core, machine)
    (machine.home / "state" / "secrets" / "relay-token").unlink()
    assert machine.call("sync", check=False).code != 0
    inviter, newcomer = pair(vault.core, machine)
    assert (inviter.events[-1]["again"], newcomer.events[-1]["fresh"]) == (True, False)
    machine.call("sync")
    assert len(members(vault.core)) == 2


def test_the_code_may_be_lower_case_broken_into_lines_and_spaced(vault: Vault, machine: Machine) -> None:
    with inviting(vault.core) as inviter:
        code = inviter.code().lower()
        broken = "\n".join(code[at : at + 40] for at in range(0, len(code), 40))
        with joining(machine, broken) as newcomer:
            inviter.type(str(newcomer.event("digits")["digits"]))
            assert (inviter.end(), newcomer.end()) == (0, 0)


def test_the_qr_goes_to_a_private_file_when_one_is_named(vault: Vault, machine: Machine) -> None:
    path = vault.core.root / "invite.png"
    with inviting(vault.core, "--qr", str(path)) as inviter:
        assert inviter.event("invite")["qr"] == str(path)
        assert path.read_bytes().startswith(b"\x89PNG")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_picture_that_cannot_be_written_is_said_before_an_invite_is_made(vault: Vault) -> None:
    outcome = vault.core.call("pair", "--json", "--qr", "invite.gif", check=False)
    assert (outcome.code, outcome.out) == (2, "")
    assert "PNG or an SVG" in outcome.error["error"]


def test_a_member_that_may_not_invite_is_told_who_can(vault: Vault, machine: Machine) -> None:
    vault.core.call("devices", "rename", device_id(vault.core), "the desktop")
    pair(vault.core, machine)
    name = members(machine)[0]["name"]
    assert name == "the desktop"
    outcome = machine.call("pair", "--json", check=False)
    assert outcome.code == 7
    assert str(name) in outcome.error["error"]
    assert f"Run `crystal pair` on {name}" in outcome.error["hint"]


def test_a_node_that_holds_the_root_may_invite(vault: Vault, machine: Machine) -> None:
    holder = vault.add()
    inviter, _ = pair(holder, machine)
    assert inviter.events[-1]["confirmed"]
    vault.core.call("sync")
    assert len(members(vault.core)) == 3


def test_the_relay_of_the_code_is_kept_and_one_given_outright_comes_before_it(
    vault: Vault, machine: Machine, tmp_path: Path
) -> None:
    pair(vault.core, machine)
    assert machine.call("status", "--json").json["relay"] == vault.relay.url
    second = Machine(tmp_path / "second")
    second.root.mkdir()
    other_name = vault.relay.url.replace("127.0.0.1", "localhost")
    pair(vault.core, second, relay=other_name)
    assert second.call("status", "--json").json["relay"] == other_name


@pytest.mark.parametrize("years", [(-30, 40), (40, -30)], ids=["inviter behind", "inviter ahead"])
def test_both_clocks_decades_off_change_nothing(
    vault: Vault, machine: Machine, tmp_path: Path, years: tuple[int, int]
) -> None:
    for side, off in zip((vault.core, machine), years, strict=True):
        folder = tmp_path / f"skewed{off}"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(
            "import time\n"
            f"_OFF = {off} * 31_557_600\n"
            "_time, _time_ns = time.time, time.time_ns\n"
            "time.time = lambda: _time() + _OFF\n"
            "time.time_ns = lambda: _time_ns() + _OFF * 1_000_000_000\n"
        )
        side.extra["PYTHONPATH"] = str(folder)
    inviter, newcomer = pair(vault.core, machine)
    shown = next(event for event in inviter.events if event["event"] == "invite")
    digits = next(event for event in newcomer.events if event["event"] == "digits")
    assert 500 < digits["expires_in"] <= shown["expires_in"] <= 600
    machine.run("sync")
