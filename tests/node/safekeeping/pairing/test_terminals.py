"""Pairing as a person sees it: on a terminal, on a dumb one, and with a window too small for a QR."""

import re

import numpy as np
import pytest
import zxingcpp

from crystal_node.surfaces.cli.pair_dialogue import fitting
from tests.support.machine import Machine, Vault
from tests.support.terminal import Terminal, terminal

_CODE = re.compile(r"^(http://127\.0\.0\.1:\d+/(?:[0-9A-Z]{4}-){2}[0-9A-Z]{4})\r$", re.MULTILINE)
_DIGITS = re.compile(r"^(\d{3} \d{3})\r$", re.MULTILINE)
_ROW = re.compile(r"\x1b\[38;5;16;48;5;231m([ \u2580\u2584\u2588]+)\x1b\[0m")


def _code(shown: str) -> str:
    return str(_CODE.findall(shown)[0])


def _join(newcomer: Terminal, code: str) -> str:
    """Gives the code, and returns the digits that are shown."""
    newcomer.until("The code that")
    newcomer.type(code + "\n")
    newcomer.until("Waiting for the digits")
    return str(_DIGITS.findall(newcomer.shown)[0])


def _scanned(shown: str) -> str:
    rows: list[list[bool]] = []
    for line in _ROW.findall(shown):
        rows += [[char in "\u2580\u2588" for char in line], [char in "\u2584\u2588" for char in line]]
    image = np.where(np.kron(np.array(rows), np.ones((6, 6), bool)), 0, 255).astype(np.uint8)
    (found,) = zxingcpp.read_barcodes(image)
    return str(found.text)


def test_two_people_at_two_terminals_pair_their_machines(vault: Vault, machine: Machine) -> None:
    with terminal(vault.core, "pair") as inviter, terminal(machine, "pair") as newcomer:
        inviter.until("Waiting for the new machine")
        code = _code(inviter.shown)
        assert re.fullmatch("MC2:[A-Z2-7]{100,}", _scanned(inviter.shown))
        assert "MC2:" not in inviter.shown
        digits = _join(newcomer, code.lower())
        assert code.lower() in newcomer.shown
        inviter.until("Digits: ")
        assert "wants to join" in inviter.shown
        inviter.type(digits + "\n")
        newcomer.until("[yes/no]")
        newcomer.type("yes\n")
        assert (inviter.end(), newcomer.end()) == (0, 0)
    assert "is now a device of this vault" in inviter.shown
    assert "has joined vault" in newcomer.shown
    assert re.search(r"\(9 min 5\d s left\)", inviter.shown)


def test_the_line_that_counts_down_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    line = fitting(
        "Waiting until it says that it is set up: answer there. Ctrl-C leaves it", "(9 min 58 s left)"
    )
    assert len(line) < 60
    assert line.endswith("... (9 min 58 s left)")
    assert fitting("Waiting", "(5 s left)") == "Waiting (5 s left)"


def test_a_dumb_terminal_gets_text_and_a_hint_and_no_control_sequence(vault: Vault, machine: Machine) -> None:
    with (
        terminal(vault.core, "pair", TERM="dumb") as inviter,
        terminal(machine, "pair", TERM="dumb") as newcomer,
    ):
        inviter.until("Waiting for the new machine")
        assert "--qr" in inviter.shown
        digits = _join(newcomer, _code(inviter.shown))
        inviter.until("Digits: ")
        inviter.type(digits + "\n")
        newcomer.until("[yes/no]")
        newcomer.type("yes\n")
        assert (inviter.end(), newcomer.end()) == (0, 0)
    assert "\x1b" not in inviter.shown + newcomer.shown


def test_a_window_that_is_too_small_gets_no_half_qr(vault: Vault) -> None:
    with terminal(vault.core, "pair", COLUMNS="40") as inviter:
        inviter.until("Waiting for the n")
        assert "too small" in inviter.shown
        assert "\u2588" not in inviter.shown
        assert _code(inviter.shown)


def test_without_utf8_the_qr_is_made_of_colours_alone(vault: Vault) -> None:
    with terminal(
        vault.core, "pair", COLUMNS="200", LINES="80", PYTHONIOENCODING="ascii", PYTHONUTF8="0"
    ) as inviter:
        inviter.until("Waiting for the new machine")
        assert "\x1b[48;5;16m  " in inviter.shown
        assert inviter.shown.isascii()


def test_ctrl_c_while_a_person_is_asked_withdraws_the_invite(vault: Vault, machine: Machine) -> None:
    with terminal(vault.core, "pair") as inviter, terminal(machine, "pair") as newcomer:
        inviter.until("Waiting for the new machine")
        _join(newcomer, _code(inviter.shown))
        inviter.until("Digits: ")
        inviter.stop()
        assert inviter.end() == 130
        newcomer.until("the invite was withdrawn")
        newcomer.until("The code that", times=2)
        newcomer.stop()
        assert newcomer.end() == 130
    assert "withdrawn; nobody was added" in inviter.shown


def test_a_name_with_escapes_reaches_no_terminal(vault: Vault, machine: Machine) -> None:
    machine.extra["CRYSTAL_DEVICE_NAME"] = "laptop\x1b]0;owned\x07"
    with terminal(vault.core, "pair", TERM="dumb") as inviter, terminal(machine, "pair") as newcomer:
        inviter.until("Waiting for the new machine")
        _join(newcomer, _code(inviter.shown))
        inviter.until("Digits: ")
        assert "\x1b" not in inviter.shown


def test_what_went_wrong_stands_on_a_line_of_its_own(vault: Vault, machine: Machine) -> None:
    with terminal(vault.core, "pair") as inviter, terminal(machine, "pair") as newcomer:
        inviter.until("Waiting for the new machine")
        _join(newcomer, _code(inviter.shown))
        inviter.until("Digits: ")
        newcomer.stop()
        inviter.until("Show another invite?")
        inviter.type("no\n")
        assert (inviter.end(), newcomer.end()) == (7, 130)
    assert "Digits: \r\nthe new machine has left" in inviter.shown
    with terminal(vault.core, "pair") as inviter, terminal(machine, "pair") as newcomer:
        inviter.until("Waiting for the new machine")
        _join(newcomer, _code(inviter.shown))
        inviter.until("Digits: ")
        inviter.type("no\n")
        assert inviter.end() == 2
        newcomer.until("\r\x1b[Kthe invite was withdrawn")


def test_a_slip_at_the_last_question_is_no_refusal(vault: Vault, machine: Machine) -> None:
    with terminal(vault.core, "pair") as inviter, terminal(machine, "pair") as newcomer:
        inviter.until("Waiting for the new machine")
        digits = _join(newcomer, _code(inviter.shown))
        inviter.until("Digits: ")
        inviter.type(digits + "\n")
        newcomer.until("[yes/no]")
        newcomer.type("yse\n")
        newcomer.until("Please type yes or no")
        newcomer.type("yes\n")
        assert (inviter.end(), newcomer.end()) == (0, 0)


def test_a_window_closed_at_the_last_question_keeps_the_keys_that_were_added(
    vault: Vault, machine: Machine
) -> None:
    """Nobody said no, and the inviting machine may have left: what it added comes again with the next invite."""
    with terminal(vault.core, "pair") as inviter, terminal(machine, "pair") as newcomer:
        inviter.until("Waiting for the new machine")
        digits = _join(newcomer, _code(inviter.shown))
        inviter.until("Digits: ")
        inviter.type(digits + "\n")
        newcomer.until("[yes/no]")
        inviter.kill()
        newcomer.type("\x04")
        assert newcomer.end() == 130
    assert "identity" in {path.name for path in (machine.home / "state" / "secrets").iterdir()}
    with terminal(vault.core, "pair") as inviter, terminal(machine, "pair") as newcomer:
        inviter.until("Waiting for the new machine")
        digits = _join(newcomer, _code(inviter.shown))
        inviter.until("Digits: ")
        inviter.type(digits + "\n")
        newcomer.until("[yes/no]")
        newcomer.type("yes\n")
        assert (inviter.end(), newcomer.end()) == (0, 0)
    assert "was a device of this vault before" in inviter.shown
    assert len(vault.core.call("devices", "--all", "--json").json["devices"]) == 2
