"""On a real terminal: the code with its QR, prompts that do not echo, tables."""

import pytest

from tests.support.machine import Machine, Vault
from tests.support.terminal import Terminal


def test_the_offline_code_comes_with_a_qr_after_show_was_typed(vault: Vault) -> None:
    terminal = Terminal(vault.core, "pair", "--offline")
    terminal.until("Type show")
    assert "mc3:" not in terminal.shown
    terminal.type("show\n")
    assert terminal.end() == 0
    drawing = terminal.shown
    assert "opens the whole vault" in drawing.partition("Type show")[0]
    assert vault.code() in drawing
    assert drawing.count("\u2588") + drawing.count("\u2580") + drawing.count("\u2584") > 100


def test_a_code_that_is_typed_is_not_shown(vault: Vault, machine: Machine) -> None:
    code = vault.code()
    terminal = Terminal(machine, "pair", "--relay", vault.relay.url)
    terminal.until("The code that")
    terminal.type(code + "\n")
    assert terminal.end() == 0
    assert "has joined vault" in terminal.shown
    assert code[4:] not in terminal.shown


def test_init_asks_before_it_begins_and_no_means_no(machine: Machine, vault: Vault) -> None:
    variables = {"CRYSTAL_RELAY_ENROLL_TOKEN": vault.relay.enroll_token}
    refused = Terminal(machine, "init", "--role", "core", "--relay", vault.relay.url, **variables)
    refused.until("[yes/no]")
    refused.type("no\n")
    assert refused.end() == 2
    assert not (machine.home / "config.json").exists()
    accepted = Terminal(machine, "init", "--role", "core", "--relay", vault.relay.url, **variables)
    accepted.until("[yes/no]")
    accepted.type("yes\n")
    accepted.until("recovery kit now?")
    accepted.type("no\n")
    assert accepted.end() == 0
    assert "is its Core" in accepted.shown


@pytest.mark.parametrize("more", [(), ("--explain",)])
def test_results_are_shown_without_foreign_escapes(vault: Vault, more: tuple[str, ...]) -> None:
    vault.core.call("remember", "A [bold]bracketed[/bold] \x1b]0;title\x07 memory.")
    terminal = Terminal(vault.core, "search", "bracketed", *more)
    assert terminal.end() == 0
    assert "A [bold]\x1b[1;33mbracketed\x1b[0m[/bold]" in terminal.shown, "only what was found stands out"
    assert "\x1b]0;" not in terminal.shown
    assert "memory: fact" in terminal.shown
    devices = Terminal(vault.core, "devices")
    assert devices.end() == 0
    assert "core" in devices.shown
