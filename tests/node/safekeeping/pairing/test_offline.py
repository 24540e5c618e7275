"""The offline code: shown with its key check and warnings after a typed word, joined with the same key check."""

import re

from tests.support.machine import Machine, Vault
from tests.support.pairing import inviting

_CHECK = re.compile(r"Key check: ((?:[0-9a-f]{4} ){3}[0-9a-f]{4})\.")


def test_both_machines_show_the_same_key_check(vault: Vault, machine: Machine) -> None:
    shown = vault.core.run("pair", "--offline", typed="show\n")
    joined = machine.run("pair", "--code", "-", "--relay", vault.relay.url, typed=vault.code() + "\n")
    check = _CHECK.findall(shown.err)
    assert len(check) == 1
    assert _CHECK.findall(joined.err) == check
    assert vault.core.call("pair", "--offline", "--yes", "--json").json["key_check"] == check[0]


def test_the_code_comes_with_what_to_run_on_the_other_machine(vault: Vault) -> None:
    shown = vault.core.call("pair", "--offline", "--yes")
    assert f"crystal pair --code - --relay '{vault.relay.url}'" in shown.err
    assert shown.out.startswith("mc3:")


def test_the_warning_names_what_the_code_can_do_and_what_is_safer(vault: Vault) -> None:
    shown = vault.core.run("pair", "--offline", typed="show\n")
    for said in ("opens the whole vault", "never expires", "plain `crystal pair` is safer"):
        assert said in shown.err
    assert "mc3:" not in shown.err


def test_a_machine_that_joined_by_it_is_told_that_it_holds_the_root(vault: Vault, machine: Machine) -> None:
    joined = machine.run("pair", "--code", "-", "--relay", vault.relay.url, typed=vault.code() + "\n")
    assert "holds the vault's root" in joined.out
    assert machine.call("status", "--json").json["holds_root"] is True


def test_an_offline_code_on_a_command_line_which_every_user_can_read_is_refused_before_anything_is_sent(
    vault: Vault, machine: Machine
) -> None:
    code = vault.code()
    for command in (("pair",), ("pair", "--new-keys"), ("init", "--role", "node")):
        for given in (code, f" {code}", code.replace("mc3", "MC3"), code.replace("mc3", "mc1")):
            relay = ("--relay", "http://127.0.0.1:9", "--json")
            refused = machine.call(*command, "--code", given, *relay, check=False)
            assert refused.code == 2, "and not that no relay answers there"
            assert "`--code -`" in refused.error["hint"]
            assert "--code-file FILE" in refused.error["hint"]
            assert code[4:] not in refused.out + refused.err
    assert not machine.home.exists()


def test_an_offline_code_may_come_from_a_file_and_have_a_picture(vault: Vault, machine: Machine) -> None:
    path = vault.core.root / "code.svg"
    shown = vault.core.call("pair", "--offline", "--yes", "--json", "--qr", str(path)).json
    assert path.read_text().startswith("<?xml")
    (machine.root / "code").write_text(str(shown["code"]) + "\n")
    joined = machine.call(
        "pair", "--code-file", str(machine.root / "code"), "--relay", vault.relay.url, "--json"
    )
    assert joined.json["key_check"] == shown["key_check"]


def test_options_that_do_not_go_together_are_refused_by_name(vault: Vault, machine: Machine) -> None:
    for where, options, named in (
        (vault.core, ("--offline", "--code", "-"), "--offline"),
        (vault.core, ("--code", "-", "--code-file", "x"), "--code-file"),
        (vault.core, ("--offline", "--grant"), "--grant"),
        (vault.core, ("--new-keys",), "--new-keys"),
        (machine, ("--grant",), "--grant"),
        (machine, ("--qr", "x.png", "--code", "-"), "--qr"),
        (machine, ("--code-file", "/nonexistent/code"), "/nonexistent/code"),
    ):
        outcome = where.call("pair", "--json", *options, check=False)
        assert outcome.code == 2, options
        assert named in outcome.error["error"]


def test_an_invite_given_to_a_machine_of_the_same_vault_as_offline_code_is_still_an_invite(
    vault: Vault, machine: Machine
) -> None:
    with inviting(vault.core) as inviter:
        outcome = machine.call("pair", "--code", inviter.code(), "--json", check=False)
        assert outcome.code == 2
        assert "--yes" in outcome.error["hint"]
