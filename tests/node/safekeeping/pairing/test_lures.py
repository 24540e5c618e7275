"""Invites in the wrong hands: photographed, phished, refused at the last moment."""

import json
import re

from crystal_crypto.invite import Inviter
from crystal_crypto.invite_code import encode_invite
from tests.node.sync.administration.test_devices import device_id
from tests.support.machine import Machine, Vault
from tests.support.pairing import inviting, joining, members, pair
from tests.support.relay_process import RelayProcess
from tests.support.terminal import Terminal


def _active(machine: Machine) -> list[str]:
    machine.call("sync")
    return [str(entry["id"]) for entry in members(machine) if not entry["revoked"]]


def _secrets(machine: Machine) -> dict[str, bytes]:
    folder = machine.home / "state" / "secrets"
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def _to_the_question(machine: Machine, code: str) -> Terminal:
    path = machine.root / "code"
    path.write_text(code)
    return Terminal(machine, "pair", "--code-file", str(path))


def test_a_photographed_invite_adds_nobody(vault: Vault, machine: Machine) -> None:
    """The thief is faster than the owner. The owner's machine shows no digits, so there are none to type."""
    thief = Machine(machine.root.parent / "thief")
    thief.root.mkdir()
    thief.extra["CRYSTAL_DEVICE_NAME"] = "laptop"
    with inviting(vault.core) as inviter:
        code = inviter.code()
        with joining(thief, code) as stealing:
            stealing.event("digits")
            with joining(machine, code) as owner:
                assert owner.end() == 7
                assert "already used" in owner.error["error"]
                assert "somebody has seen the code" in owner.error["hint"]
            inviter.event("digits-wanted")
            inviter.type("no")
            assert (inviter.end(), stealing.end()) == (2, 7)
    assert len(members(vault.core)) == 1
    assert thief.call("status", "--json", check=False).code == 3


def test_a_photograph_of_an_invite_is_worth_nothing_once_it_was_used(vault: Vault, machine: Machine) -> None:
    inviter, _ = pair(vault.core, machine)
    thief = Machine(machine.root.parent / "thief")
    thief.root.mkdir()
    with joining(thief, str(inviter.events[0]["code"])) as late:
        assert late.end() == 7
    assert len(members(vault.core)) == 2


def test_a_phished_invite_sets_up_nothing_once_the_person_is_asked(
    relay: RelayProcess, machine: Machine
) -> None:
    """The code is a stranger's, who also talks the victim out of the digits. The last question names the stranger's machine."""
    stranger = Vault(relay, machine.root.parent / "stranger")
    stranger.core.call("devices", "rename", device_id(stranger.core), "helpdesk")
    with inviting(stranger.core) as inviter:
        victim = _to_the_question(machine, inviter.code())
        try:
            victim.until("Waiting for the digits")
            digits = re.findall(r"^(\d{3} \d{3})\r$", victim.shown, re.MULTILINE)[0]
            inviter.type(digits)
            victim.until("[yes/no]")
            assert "Did helpdesk" in victim.shown
            victim.type("no\n")
            assert victim.end() == 2
        finally:
            victim.kill()
        assert inviter.end() == 7
    assert "taken out again" in inviter.error["error"]
    assert "Nothing was set up here" in victim.shown
    assert machine.call("status", "--json", check=False).code == 3
    assert not {"identity", "relay-token", "root"} & _secrets(machine).keys()
    assert len(_active(stranger.core)) == 1


def test_a_home_that_refused_a_stranger_joins_its_own_vault_afterwards(
    vault: Vault, relay: RelayProcess, machine: Machine
) -> None:
    test_a_phished_invite_sets_up_nothing_once_the_person_is_asked(relay, machine)
    inviter, _ = pair(vault.core, machine)
    assert inviter.events[-1]["confirmed"]


def test_ctrl_c_at_the_last_question_takes_the_newcomer_out_again_and_its_next_invite_lets_it_in(
    vault: Vault, machine: Machine
) -> None:
    with inviting(vault.core) as inviter:
        newcomer = _to_the_question(machine, inviter.code())
        try:
            newcomer.until("Waiting for the digits")
            inviter.type(re.findall(r"^(\d{3} \d{3})\r$", newcomer.shown, re.MULTILINE)[0])
            newcomer.until("[yes/no]")
            newcomer.stop()
            assert newcomer.end() == 130
        finally:
            newcomer.kill()
        assert inviter.end() == 7
    assert "nothing was set up here" in newcomer.shown
    assert "still" not in newcomer.shown
    assert len(_active(vault.core)) == 1
    pair(vault.core, machine)
    assert len(_active(vault.core)) == 2


def test_a_revoked_machine_that_is_set_up_comes_back_with_new_keys_and_what_it_had(
    vault: Vault, machine: Machine
) -> None:
    _, first = pair(vault.core, machine)
    machine.call("remember", "Said before the revocation.")
    machine.call("sync")
    vault.core.call("sync")
    revoked = str(first.events[-1]["device"])
    vault.core.call("devices", "revoke", revoked[:8], "--yes")
    with inviting(vault.core) as inviter, joining(machine, inviter.code()) as refused:
        assert (inviter.end(), refused.end()) == (7, 7)
    assert "--new-keys" in refused.error["hint"]
    with inviting(vault.core) as inviter, joining(machine, inviter.code(), "--new-keys") as again:
        inviter.type(str(again.event("digits")["digits"]))
        assert (inviter.end(), again.end()) == (0, 0)
    assert again.events[-1]["device"] != revoked
    machine.call("remember", "Said after it.")
    machine.call("sync")
    vault.core.call("sync")
    assert vault.core.found("after it")[:1] == ["Said after it."]
    assert machine.found("before the revocation")[:1] == ["Said before the revocation."]


def test_an_invite_that_would_move_a_machine_to_another_relay_says_so_before_it_asks(
    vault: Vault, machine: Machine
) -> None:
    """The vault's id is no secret: an ex-device, or the operator of a relay, can make an invite with it."""
    pair(vault.core, machine)
    known = machine.call("config", "--json").json
    vault_id = bytes.fromhex(str(machine.call("status", "--json").json["vault"]))
    lure = Inviter.begin(
        vault=vault_id, url="https://127.0.0.1:9", device=bytes(range(16)), name="core", system="Linux"
    )
    code = encode_invite(lure.code)
    refused = machine.call("pair", "--code", "-", "--yes", typed=code + "\n", check=False)
    assert refused.code == 4
    assert "would move it to https://127.0.0.1:9" in refused.err
    assert machine.call("config", "--json").json == known


def test_a_program_is_told_of_the_move_to_another_relay_before_it_answers(
    vault: Vault, machine: Machine
) -> None:
    """The same relay under another address: whether it is the same, the machine cannot know."""
    _, first = pair(vault.core, machine)
    assert next(event for event in first.events if event["event"] == "met")["relay_now"] is None
    known = machine.call("config", "--json").json
    other = vault.relay.url.replace("127.0.0.1", "localhost")
    assert other != vault.relay.url
    with inviting(vault.core) as inviter:
        path = machine.root / "code"
        path.write_text(inviter.code())
        program = Terminal(machine, "pair", "--json", "--code-file", str(path), "--relay", other)
        try:
            program.until('"expires_in"')
            inviter.type(re.findall(r'"digits":\s*"(\d{6})"', program.shown)[0])
            program.until('"confirm"')
            program.type("no\n")
            assert program.end() == 2
        finally:
            program.kill()
        assert inviter.end() == 7
    assert "still is one" in inviter.error["hint"]
    lines = (line for line in program.shown.splitlines() if line.startswith('{"event"'))
    told = {event["event"]: event for event in map(json.loads, lines)}
    for event in (told["met"], told["confirm"]):
        assert (event["relay"], event["relay_now"]) == (other, vault.relay.url)
    assert machine.call("config", "--json").json == known
    machine.call("sync")
