"""Every command that asks nothing, in a terminal that takes no control sequences, and with no terminal at all."""

import subprocess
import sys

import pytest

from tests.support.machine import SECONDS_MAX, Vault
from tests.support.terminal import Terminal

COMMANDS = (
    ("status",),
    ("role",),
    ("verify",),
    ("config",),
    ("doctor",),
    ("devices",),
    ("devices", "--all"),
    ("devices", "rename", "core", "desktop"),
    ("devices", "renew-keys"),
    ("keys",),
    ("recovery", "show", "--yes"),
    ("pair", "--offline", "--yes"),
    ("capture",),
    ("sync",),
    ("remember", "A \x1b[31mred\x1b[0m memory."),
    ("search", "memory"),
    ("search", "--explain", "memory"),
    ("private", "on"),
    ("private", "off"),
)


@pytest.mark.slow
def test_no_command_writes_a_control_sequence_to_a_dumb_terminal(vault: Vault) -> None:
    vault.core.call("devices", "rename", own_id(vault), "core")
    for command in (*COMMANDS, ("--help",), ("pair", "--help")):
        terminal = Terminal(vault.core, *command, TERM="dumb")
        assert terminal.end() == 0, f"{command}: {terminal.shown}"
        assert "\x1b" not in terminal.shown, command
        assert terminal.shown.strip(), command


def test_every_command_works_without_a_terminal_and_with_standard_input_closed(vault: Vault) -> None:
    vault.core.call("devices", "rename", own_id(vault), "core")
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "crystal_node", *command],
            env={name: value for name, value in vault.core.environment.items() if name != "TERM"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS_MAX,
            start_new_session=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert "\x1b" not in done.stdout + done.stderr, command


@pytest.mark.parametrize(
    "command",
    [
        ("pair", "--offline"),
        ("pair", "--code", "-"),
        ("devices", "revoke", "laptop"),
        ("recovery", "show"),
        ("recovery", "verify"),
        ("recovery", "replace"),
        ("recovery", "restore"),
        ("keys", "passphrase"),
    ],
)
def test_what_has_to_ask_and_cannot_says_so_at_once_and_changes_nothing(
    vault: Vault, command: tuple[str, ...]
) -> None:
    before = standing(vault)
    done = vault.core.run(*command, check=False, TERM="dumb")
    assert done.code not in (0, 1), f"{command}: {done.out}{done.err}"
    assert "\n  " in done.err, "a hint"
    assert standing(vault) == before


def standing(vault: Vault) -> tuple[int, list[tuple[str, str]], str]:
    """The keys' generation, the devices, and whether a passphrase is set."""
    listed = vault.core.call("devices", "--all", "--json").json
    devices = [(each["id"], each["role"]) for each in listed["devices"]]
    return listed["generation"], devices, vault.core.call("keys", "--json").json["passphrase"]


def own_id(vault: Vault) -> str:
    devices = vault.core.call("devices", "--json").json["devices"]
    return str(next(each["id"] for each in devices if each["this"]))


def test_no_invite_is_made_where_nobody_can_ever_type_the_digits(vault: Vault) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "crystal_node", "pair"],
        env=dict(vault.core.environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 2
    assert "no invite was made" in done.stderr
    assert "MC2:" not in done.stdout + done.stderr
