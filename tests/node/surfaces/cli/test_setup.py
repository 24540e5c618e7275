"""Setting up: founding and joining a vault, what is shown, what is kept private, and what can be repeated."""

import base64
import json
import stat
from collections.abc import Callable

import pytest

from crystal_crypto.hierarchy import Root
from crystal_crypto.pairing import encode
from tests.support.machine import Machine, Vault
from tests.support.relay_process import RelayProcess


def _init(
    machine: Machine, relay: RelayProcess, *more: str, check: bool = True
) -> "tuple[int, dict[str, object]]":
    outcome = machine.call(
        *("init", "--role", "core", "--relay", relay.url, "--yes", "--json", *more),
        check=check,
        CRYSTAL_RELAY_ENROLL_TOKEN=relay.enroll_token,
    )
    return outcome.code, (outcome.json if outcome.code == 0 else outcome.error)


def test_a_core_says_what_it_made_and_where_the_root_is(machine: Machine, relay: RelayProcess) -> None:
    outcome = machine.run(
        *("init", "--role", "core", "--relay", relay.url, "--name", "desktop", "--yes"),
        CRYSTAL_RELAY_ENROLL_TOKEN=relay.enroll_token,
    )
    assert "this machine (desktop) is its Core" in outcome.out
    assert "crystal recovery show" in outcome.out
    assert "the vault is lost" in outcome.out
    status = machine.call("status", "--json").json
    assert (status["role"], status["epoch"], status["quarantined"]) == ("core", 1, 0)
    assert status["outbox"]["pending"] == 0
    assert {"vault", "device", "mirror", "relay", "home"} <= status.keys()
    assert {"seq", "digest"} <= status["mirror"].keys()


def test_no_secret_is_readable_by_others_and_none_is_in_config_json(vault: Vault) -> None:
    home = vault.core.home
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*")}
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
    root = base64.b64decode(vault.code().removeprefix("mc3:"))[:32]
    config = (home / "config.json").read_bytes()
    assert root not in config
    assert root.hex().encode() not in config
    assert set(json.loads(config)) <= {"version", "vault", "relay_url", "agent", "name", "key_store"}


def test_the_code_brings_a_node_in_and_both_name_each_other(vault: Vault) -> None:
    node = vault.add()
    vault.core.call("sync")
    for machine, role in ((vault.core, "core"), (node, "node")):
        listed = machine.call("devices", "--json").json["devices"]
        assert [entry["role"] for entry in listed] == ["core", "node"]
        assert [entry["joined_by"] for entry in listed] == ["root", "root"]
        this = next(entry for entry in listed if entry["this"])
        assert this["role"] == role
        shown = machine.call("role", "--json").json
        assert (shown["role"], shown["device"], shown["core"]["id"]) == (role, this["id"], listed[0]["id"])


def test_the_code_is_shown_only_after_a_typed_confirmation(vault: Vault) -> None:
    refused = vault.core.run("pair", "--offline", typed="no\n", check=False)
    assert refused.code == 2
    assert "mc3:" not in refused.out + refused.err
    assert "mc3:" not in vault.core.run("pair", "--offline", "--json", check=False).out
    shown = vault.core.run("pair", "--offline", typed="show\n")
    assert shown.out.strip() == vault.code()
    assert "opens the whole vault" in shown.err


_SLIPS: list[tuple[Callable[[str], str], str]] = [
    (lambda code: code[:-5], "too short"),
    (lambda code: code + "AAAA", "too long"),
    (lambda code: "xc3:" + "A/" + code[6:], "begin"),
    (lambda code: code[:10] + "!" + code[11:], "position 11"),
    (lambda code: code[:10] + ("B" if code[10] == "A" else "A") + code[11:], "mistyped"),
    (lambda _: "", "no code"),
]


@pytest.mark.parametrize(
    ("spoil", "said"), _SLIPS, ids=["cut", "long", "prefix", "character", "slip", "nothing"]
)
def test_a_code_with_a_slip_is_refused_by_what_is_wrong_with_it(
    vault: Vault, machine: Machine, spoil: Callable[[str], str], said: str
) -> None:
    code = vault.code()
    outcome = machine.call(
        "pair", "--code", "-", "--relay", vault.relay.url, "--json", typed=spoil(code) + "\n", check=False
    )
    assert outcome.error["exit_code"] == outcome.code
    assert outcome.code in (2, 7)
    assert said in outcome.error["error"]
    assert outcome.error["hint"]
    assert code[8:20] not in outcome.err


@pytest.mark.parametrize("form", ["standard", "url-safe", "with white space", "of an earlier version"])
def test_a_code_is_accepted_in_every_form_of_base64(vault: Vault, machine: Machine, form: str) -> None:
    code = vault.code()
    given = {
        "standard": code,
        "url-safe": code.replace("+", "-").replace("/", "_"),
        "with white space": f"  {code}  ",
        "of an earlier version": "mc1:" + base64.b64encode(base64.b64decode(code[4:])[:32]).decode(),
    }[form]
    joined = machine.call(
        "pair", "--code", "-", "--relay", vault.relay.url, "--json", typed=given + "\n"
    ).json
    assert joined["vault"] == vault.core.call("status", "--json").json["vault"]


def test_a_well_formed_code_of_another_vault_is_the_wrong_key(vault: Vault, machine: Machine) -> None:
    outcome = machine.call(
        "pair",
        "--code",
        "-",
        "--relay",
        vault.relay.url,
        "--json",
        typed=encode(Root(bytes(range(32)))),
        check=False,
    )
    assert outcome.code == 7
    assert "knows no vault" in outcome.error["error"]
    assert "prototype" not in outcome.error["hint"], "whose codes begin otherwise"
    assert machine.call("status", "--json", check=False).code == 3, (
        "a failed join leaves a home that is not set up"
    )
    machine.call("pair", "--code", "-", "--relay", vault.relay.url, typed=vault.code())
    assert machine.call("role", "--json").json["role"] == "node"


def test_a_code_of_the_prototype_is_recognised_and_what_to_do_with_it_is_said(
    vault: Vault, machine: Machine
) -> None:
    """It is `mc1:` and base64 of 32 bytes, as an earlier version's offline code."""
    given = "mc1:" + base64.b64encode(bytes(range(32))).decode()
    for command in (("pair",), ("up", "--role", "node", "--yes")):
        outcome = machine.call(
            *command, "--code", "-", "--relay", vault.relay.url, "--json", typed=given, check=False
        )
        assert outcome.code == 7
        for said in ("knows no vault", "published prototype", "takeover`", "bridge add`", "behind an @"):
            assert said in outcome.out + outcome.err


def test_a_wrong_enrolment_token_is_named_and_the_right_one_goes_on_from_there(
    machine: Machine, relay: RelayProcess
) -> None:
    outcome = machine.call(
        *("init", "--role", "core", "--relay", relay.url, "--yes", "--json"),
        check=False,
        CRYSTAL_RELAY_ENROLL_TOKEN="not-the-token-of-this-relay",
    )
    assert outcome.code == 3
    assert "enrolment token" in outcome.error["error"]
    assert "not-the-token" not in outcome.err
    assert _init(machine, relay)[0] == 0


def test_without_an_enrolment_token_it_says_where_to_get_one(machine: Machine, relay: RelayProcess) -> None:
    outcome = machine.call("init", "--role", "core", "--relay", relay.url, "--json", check=False)
    assert outcome.code == 3
    assert "CRYSTAL_RELAY_ENROLL_TOKEN" in outcome.error["hint"]


def test_the_enrolment_token_can_be_piped(machine: Machine, relay: RelayProcess) -> None:
    machine.run(
        "init", "--role", "core", "--relay", relay.url, "--enroll-token", "-", typed=relay.enroll_token + "\n"
    )
    assert machine.call("role", "--json").json["role"] == "core"


def test_init_again_keeps_the_vault_and_registers_it_again(vault: Vault) -> None:
    before = vault.core.call("status", "--json").json
    code, again = _init(vault.core, vault.relay)
    assert (code, again["fresh"], again["vault"], again["device"]) == (
        0,
        False,
        before["vault"],
        before["device"],
    )


def test_pairing_again_keeps_the_device(vault: Vault) -> None:
    node = vault.add()
    before = node.call("status", "--json").json["device"]
    again = node.call("pair", "--code", "-", "--relay", vault.relay.url, "--json", typed=vault.code()).json
    assert (again["fresh"], again["device"]) == (False, before)
    assert len(node.call("devices", "--json").json["devices"]) == 2


def test_a_home_never_goes_from_one_vault_to_another(vault: Vault, machine: Machine) -> None:
    _init(machine, vault.relay)
    before = machine.call("status", "--json").json["vault"]
    outcome = machine.call(
        "pair", "--code", "-", "--relay", vault.relay.url, "--json", typed=vault.code(), check=False
    )
    assert outcome.code == 7
    assert "another vault" in outcome.error["error"]
    assert machine.call("status", "--json").json["vault"] == before


def test_a_lost_config_does_not_open_the_home_to_another_vault(vault: Vault, machine: Machine) -> None:
    _init(machine, vault.relay)
    machine.run("remember", "not sent anywhere yet")
    config = machine.home / "config.json"
    before = config.read_bytes()
    config.unlink()
    code = machine.call(
        "pair", "--code", "-", "--relay", vault.relay.url, typed=vault.code(), check=False
    ).code
    assert code == 7
    config.write_bytes(before)
    assert machine.call("status", "--json").json["outbox"]["pending"] == 1
    machine.run("sync")
    assert machine.found("not sent anywhere yet")


def test_a_node_is_readied_without_a_code_and_told_how_to_join(vault: Vault, machine: Machine) -> None:
    outcome = machine.run("init", "--role", "node", "--relay", vault.relay.url)
    assert "crystal pair --code -" in outcome.out
    machine.run("pair", "--code", "-", typed=vault.code() + "\n")
    assert machine.call("role", "--json").json["role"] == "node"


def test_a_node_can_join_as_it_is_readied(vault: Vault, machine: Machine) -> None:
    machine.call("init", "--role", "node", "--code", "-", "--relay", vault.relay.url, typed=vault.code())
    assert machine.call("role", "--json").json["role"] == "node"


def test_a_relay_on_another_machine_without_tls_needs_an_explicit_word(machine: Machine) -> None:
    outcome = machine.call(
        *("init", "--role", "core", "--relay", "http://192.0.2.1:1", "--json"),
        check=False,
        CRYSTAL_RELAY_ENROLL_TOKEN="t" * 40,
    )
    assert outcome.code in (2, 3)
    assert "https" in outcome.error["hint"]


def test_a_device_whose_keys_are_gone_says_how_to_come_back_and_loses_nothing(vault: Vault) -> None:
    node = vault.add()
    node.call("remember", "The spare key of the archive hangs behind the door.")
    for secret in (node.home / "state" / "secrets").iterdir():
        secret.unlink()
    outcome = node.call("status", "--json", check=False)
    assert outcome.code == 8
    assert "crystal pair" in outcome.error["hint"]
    node.call("pair", "--code", "-", "--relay", vault.relay.url, typed=vault.code())
    vault.settle()
    assert node.call("status", "--json").json["outbox"]["pending"] == 0
    assert vault.core.found("spare key of the archive") == [
        "The spare key of the archive hangs behind the door."
    ]
    assert len(vault.digests()) == 1
