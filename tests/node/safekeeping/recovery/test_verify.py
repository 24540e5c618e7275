"""`crystal recovery show` and `verify`: the kit comes out only when it is meant to, and is judged as it is typed back."""

import json
import stat
from pathlib import Path

import pytest

from crystal_crypto.hierarchy import Root
from crystal_crypto.kit import decode_kit
from crystal_crypto.pairing import decode
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.membership.member import load_log
from crystal_node.base.settings import read_config
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.recovery_kit import KitPage, KitState, kit_state
from tests.support.machine import Machine, Vault
from tests.support.terminal import Terminal


def kit_of(machine: Machine) -> str:
    """The page as it is shown."""
    return str(machine.call("recovery", "show", "--yes", "--json").json["text"])


def test_the_kit_is_shown_only_after_a_typed_confirmation(vault: Vault) -> None:
    refused = vault.core.run("recovery", "show", typed="no\n", check=False)
    assert refused.code == 2
    assert refused.out == ""
    shown = vault.core.run("recovery", "show", typed="show\n")
    assert decode_kit(shown.out).root == decode(vault.code()).root
    assert "opens the whole vault" in shown.err


def test_the_kit_can_be_kept_off_the_screen(vault: Vault) -> None:
    folder = vault.core.root
    text, picture = folder / "kit.txt", folder / "kit.svg"
    text.write_text("an older file, readable by all")
    text.chmod(0o644)
    outcome = vault.core.call("recovery", "show", "--yes", "--out", str(text), "--qr", str(picture))
    kit = decode_kit(text.read_text())
    assert kit.root == decode(vault.code()).root
    assert outcome.out == ""
    assert kit.root.to_bytes().hex() not in outcome.err
    assert [stat.S_IMODE(path.stat().st_mode) for path in (text, picture)] == [0o600, 0o600]
    assert picture.read_text().startswith("<?xml")
    assert sorted(path.name for path in folder.iterdir() if "kit" in path.name) == ["kit.svg", "kit.txt"]
    told = vault.core.call("recovery", "show", "--yes", "--json", "--out", str(text)).json
    assert {"lines", "code", "text"}.isdisjoint(told)


def test_a_file_that_cannot_be_is_refused_before_anything_is_shown(vault: Vault) -> None:
    for option, name in (("--out", "nowhere/kit.txt"), ("--qr", "kit.gif"), ("--qr", "nowhere/kit.png")):
        outcome = vault.core.call(
            "recovery", "show", "--yes", option, str(vault.core.root / name), check=False
        )
        assert outcome.code == 2
        assert outcome.out == ""


def test_for_programs_the_kit_has_lines_code_and_page(vault: Vault) -> None:
    told = vault.core.call("recovery", "show", "--yes", "--json").json
    given = ("\n".join(told["lines"]), told["code"], told["text"])
    assert all(decode_kit(each).root == decode(vault.code()).root for each in given)
    assert told["vault"] == vault.core.call("status", "--json").json["vault"]


def test_a_kit_that_was_typed_back_counts_as_verified_and_no_longer_when_the_root_is_replaced(
    vault: Vault,
) -> None:
    laptop = vault.add()
    kit = kit_of(vault.core)
    config = vault.core.home / "config.json"
    log = _log(vault.core)
    assert kit_state(read_config(config), log.root) is KitState.NEVER
    assert vault.core.call("recovery", "verify", "--json", typed=kit).json == {
        "verified": True,
        "vault": log.vault.hex(),
        "root_here": True,
        "root_removed": False,
    }
    assert kit_state(read_config(config), log.root) is KitState.VERIFIED
    root = decode_kit(kit).root
    assert root.to_bytes().hex() not in config.read_text()
    vault.core.call("devices", "revoke", laptop.call("status", "--json").json["device"], "--yes")
    assert kit_state(read_config(config), _log(vault.core).root) is KitState.OUTDATED
    outcome = vault.core.call("recovery", "verify", "--json", typed=kit, check=False)
    assert outcome.code == 7
    assert "outdated" in outcome.error["error"]
    newer = kit_of(vault.core)
    assert "takes the place of every kit" in newer
    vault.core.call("recovery", "verify", typed=newer)
    assert kit_state(read_config(config), _log(vault.core).root) is KitState.VERIFIED


def test_the_config_outlives_another_set_up_of_the_same_home(vault: Vault) -> None:
    vault.core.call("recovery", "verify", typed=kit_of(vault.core))
    before = read_config(vault.core.home / "config.json")
    vault.core.call(
        *("init", "--role", "core", "--relay", vault.relay.url, "--yes"),
        CRYSTAL_RELAY_ENROLL_TOKEN=vault.relay.enroll_token,
    )
    assert before.kit_verified
    assert read_config(vault.core.home / "config.json") == before


def test_a_kit_is_checked_on_a_device_that_has_no_root_too(vault: Vault) -> None:
    kit = kit_of(vault.core)
    vault.core.call("recovery", "verify", "--remove-root", "--yes", typed=kit)
    refused = vault.core.call("recovery", "show", "--yes", "--json", check=False)
    assert (refused.code, refused.out) == (7, "")
    assert "does not hold the vault's root" in refused.error["error"]
    again = vault.core.call("recovery", "verify", "--json", typed=kit).json
    assert (again["verified"], again["root_here"]) == (True, False)
    other = Root.generate()
    foreign = KitPage(other, decode_kit(kit).vault, "", "2026-03-04", "").text()
    outcome = vault.core.call("recovery", "verify", "--json", typed=foreign, check=False)
    assert outcome.code == 7
    assert "never this vault's" in outcome.error["error"]


def test_a_removed_root_is_gone_from_the_disk_and_the_kit_takes_its_place(vault: Vault) -> None:
    kit = kit_of(vault.core)
    removed = vault.core.call("recovery", "verify", "--remove-root", "--yes", "--json", typed=kit).json
    assert (removed["root_here"], removed["root_removed"]) == (False, True)
    root = decode_kit(kit).root.to_bytes()
    for path in vault.core.home.rglob("*"):
        assert not path.is_file() or root not in path.read_bytes()
    assert vault.core.call("pair", "--offline", "--yes", "--json", check=False).code == 7
    machine = Machine(vault.folder / "another")
    machine.root.mkdir()
    machine.call("recovery", "restore", "--relay", vault.relay.url, typed=kit)
    assert machine.call("status", "--json").json["vault"] == decode_kit(kit).vault.hex()


def test_a_kit_of_another_vault_is_told_apart(vault: Vault) -> None:
    root = Root.generate()
    other = KitPage(root, root.vault, "", "2026-03-04", "").text()
    outcome = vault.core.call("recovery", "verify", "--json", typed=other, check=False)
    assert outcome.code == 7
    assert "another vault" in outcome.error["error"]
    assert not read_config(vault.core.home / "config.json").kit_verified


@pytest.mark.parametrize("line", [1, 4, 6])
def test_a_slip_in_a_piped_kit_is_named_by_its_line(vault: Vault, line: int) -> None:
    told = vault.core.call("recovery", "show", "--yes", "--json").json
    good = told["lines"][line - 1]
    slipped = good[:-1] + ("7" if good[-1] != "7" else "8")
    outcome = vault.core.call(
        "recovery", "verify", "--json", typed=told["text"].replace(good, slipped), check=False
    )
    assert outcome.code == 7
    assert f"line {line} " in outcome.error["error"]
    assert slipped[5:] not in outcome.err


def test_nothing_given_is_no_kit(vault: Vault) -> None:
    assert vault.core.call("recovery", "verify", "--json", check=False).code == 2
    file = vault.core.root / "empty"
    outcome = vault.core.call("recovery", "verify", "--json", "--file", str(file), check=False)
    assert outcome.code == 2
    file.write_text(kit_of(vault.core))
    assert vault.core.call("recovery", "verify", "--json", "--file", str(file)).json["verified"] is True


def test_at_a_terminal_each_line_is_judged_as_it_is_typed_and_none_is_shown(vault: Vault) -> None:
    lines = vault.core.call("recovery", "show", "--yes", "--json").json["lines"]
    root = Root.generate()
    foreign = KitPage(root, root.vault, "", "2026-03-04", "").lines[1]
    terminal = Terminal(vault.core, "recovery", "verify")
    typed = [
        (lines[0].lower().replace("-", " "), "line 1 is right"),
        (lines[1][:-1], "line 2 of the kit is too short by 1 characters"),
        (lines[2], "that is line 3 of the kit, not line 2"),
        (foreign, "is it from another kit?"),
        *((lines[number - 1], f"line {number} is right") for number in range(2, 7)),
    ]
    for prompt, (line, said) in enumerate(typed, start=1):
        terminal.until("of 6: ", prompt)
        terminal.type(line + "\n")
        terminal.until(said)
    terminal.until("Remove it from this machine?")
    terminal.type("no\n")
    assert terminal.end() == 0
    assert "The kit is right" in terminal.shown
    assert not any(line[3:7] in terminal.shown for line in lines)
    assert vault.core.call("pair", "--offline", "--yes", "--json").code == 0


def test_a_whole_page_may_be_pasted_and_what_is_left_of_it_reaches_no_shell(vault: Vault) -> None:
    page = vault.core.call("recovery", "show", "--yes").out
    terminal = Terminal(vault.core, "recovery", "verify")
    terminal.until("line 1 of 6: ")
    terminal.type(page)
    terminal.until("Remove it from this machine?")
    terminal.type("no\n")
    assert terminal.end() == 0
    assert "The kit is right" in terminal.shown
    assert "WHAT IT IS" not in terminal.shown


def test_a_program_that_cannot_confirm_gets_one_document(vault: Vault) -> None:
    vault.add()
    vault.settle()
    node = vault.nodes[0]
    name = node.call("role", "--json").json["device"]
    for machine, command in (
        (vault.core, ["recovery", "show"]),
        (vault.core, ["recovery", "replace"]),
        (vault.core, ["pair", "--offline"]),
        (vault.core, ["devices", "revoke", name]),
        (node, ["role", "--claim"]),
    ):
        outcome = machine.call(*command, "--json", check=False)
        assert outcome.code == 2, command
        assert json.loads(outcome.err)["error"] == "not confirmed, nothing was done"
        assert outcome.out == ""


def test_init_offers_the_kit_at_a_terminal(vault: Vault, machine: Machine) -> None:
    terminal = Terminal(
        machine,
        *("init", "--role", "core", "--relay", vault.relay.url),
        CRYSTAL_RELAY_ENROLL_TOKEN=vault.relay.enroll_token,
    )
    terminal.until("[yes/no]")
    terminal.type("yes\n")
    terminal.until("Show the recovery kit now?")
    assert "the vault is lost" in terminal.shown
    terminal.type("yes\n")
    assert terminal.end() == 0
    assert "CRYSTAL RECOVERY KIT" in terminal.shown
    page = terminal.shown[terminal.shown.index("CRYSTAL RECOVERY KIT") :]
    assert decode_kit(page).root == decode_kit(kit_of(machine)).root


def _log(machine: Machine) -> DeviceLog:
    vault = bytes.fromhex(json.loads((machine.home / "config.json").read_text())["vault"])
    journal = SqliteJournal.open(machine.home / "state" / "state.db")
    try:
        return load_log(journal, vault)
    finally:
        journal.close()


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_the_root_is_not_removed_through_a_pipe_unless_that_was_confirmed(
    vault: Vault, tmp_path: Path, as_json: tuple[str, ...]
) -> None:
    kit = kit_of(vault.core)
    path = tmp_path / "kit.txt"
    path.write_text(kit)
    verify = ("recovery", "verify", "--remove-root", *as_json)
    assert vault.core.call(*verify, typed=kit, check=False).code == 2
    assert vault.core.call(*verify, "--file", str(path), typed="", check=False).code == 2
    assert vault.core.call("recovery", "verify", "--json", typed=kit).json["root_here"]
    vault.core.call(*verify, "--file", str(path), typed="remove\n")
    assert not vault.core.call("recovery", "verify", "--json", typed=kit).json["root_here"]
