"""How a pairing ends when a person takes long, stops it, or the relay is away: each side says whether anybody was added."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.fault_proxy import Fault, fault_proxy
from tests.support.hasty_relay import hasty_relay
from tests.support.machine import Machine, Vault
from tests.support.pairing import Side, hurried, inviting, joining, members, pair
from tests.support.terminal import Terminal, terminal


@pytest.fixture
def brief(tmp_path: Path) -> Generator[Vault]:
    """A vault on a relay of its own whose invites live a few seconds longer than it takes to add somebody.

    Its Core adds until the last second, so that a slow machine has the invite's whole life to come to the digits.
    """
    with hasty_relay(tmp_path / "brief", seconds=16) as relay:
        made = Vault(relay, tmp_path / "brief-vault")
        made.core.extra["PYTHONPATH"] = hurried(tmp_path / "hurry", {"inviter.ADD_SECONDS_MIN": 1.0})
        yield made


def _to_the_question(inviter: Side, newcomer: Terminal) -> None:
    newcomer.until("Waiting for the digits")
    inviter.type(re.findall(r"^(\d{3} \d{3})\r$", newcomer.shown, re.MULTILINE)[0])
    newcomer.until("[yes/no]")


def _code_file(machine: Machine, code: str) -> str:
    path = machine.root / "code"
    path.write_text(code)
    return str(path)


def _added(inviter: Side) -> str:
    return str(inviter.event("added")["device"])


def test_a_no_after_the_inviting_machine_has_left_names_what_to_take_out(
    vault: Vault, machine: Machine
) -> None:
    with (
        inviting(vault.core) as inviter,
        terminal(machine, "pair", "--code-file", _code_file(machine, inviter.code())) as newcomer,
    ):
        _to_the_question(inviter, newcomer)
        device = _added(inviter)
        inviter.stop()
        assert inviter.end() == 130
        assert inviter.events[-1] == {"event": "stopped", "added": True}
        newcomer.type("no\n")
        assert newcomer.end() == 2
    assert f"crystal devices revoke {device[:8]}" in newcomer.shown.replace("\r\n", " ")
    vault.core.call("devices", "revoke", device[:8], "--yes")
    pair(vault.core, machine)


def test_who_leaves_the_wait_for_the_last_word_is_told_that_the_machine_stays_added(
    vault: Vault, machine: Machine
) -> None:
    with (
        terminal(vault.core, "pair") as inviter,
        terminal(
            machine,
            "pair",
            "--code-file",
            _code_file(machine, _shown_code(inviter)),
        ) as newcomer,
    ):
        newcomer.until("Waiting for the digits")
        inviter.until("Digits: ")
        inviter.type(re.findall(r"^(\d{3} \d{3})\r$", newcomer.shown, re.MULTILINE)[0] + "\n")
        inviter.until("Waiting until it says")
        inviter.until("left)")
        newcomer.until("[yes/no]")
        inviter.stop()
        assert inviter.end() == 130
        assert "stays added" in inviter.shown
        assert "crystal devices revoke" in inviter.shown
        newcomer.type("yes\n")
        assert newcomer.end() == 0


def _shown_code(inviter: Terminal) -> str:
    inviter.until("Waiting for the new machine")
    return str(re.findall(r"^http://127\S+/[0-9A-Z-]{14}(?=\r)", inviter.shown, re.MULTILINE)[0])


@pytest.mark.slow
def test_a_yes_that_comes_after_the_invite_is_over_still_sets_the_machine_up(
    brief: Vault, machine: Machine
) -> None:
    with (
        inviting(brief.core) as inviter,
        terminal(machine, "pair", "--code-file", _code_file(machine, inviter.code())) as newcomer,
    ):
        _to_the_question(inviter, newcomer)
        assert inviter.end() == 0
        assert inviter.events[-1]["confirmed"] is False
        newcomer.type("yes\n")
        assert newcomer.end() == 0
    machine.call("sync")


def test_ctrl_c_at_the_last_question_of_a_machine_that_was_added_before_keeps_its_keys(
    vault: Vault, machine: Machine
) -> None:
    """The pairing before broke off once it was added: the refusal puts nobody out, so that the keys are of use still."""
    with (
        inviting(vault.core) as inviter,
        terminal(machine, "pair", "--code-file", _code_file(machine, inviter.code())) as newcomer,
    ):
        _to_the_question(inviter, newcomer)
        device = _added(inviter)
        newcomer.kill()
        inviter.stop()
        inviter.end()
    with (
        inviting(vault.core) as inviter,
        terminal(machine, "pair", "--code-file", _code_file(machine, inviter.code())) as newcomer,
    ):
        _to_the_question(inviter, newcomer)
        newcomer.stop()
        assert newcomer.end() == 130
        assert inviter.end() == 7
    assert "still is one" in inviter.error["hint"]
    assert f"crystal devices revoke {device[:8]}" in newcomer.shown.replace("\r\n", " ")
    inviter, _ = pair(vault.core, machine)
    assert inviter.events[-1]["again"]
    assert [entry["id"] for entry in members(vault.core)][1:] == [device]


@pytest.mark.slow
def test_a_relay_that_is_away_when_the_digits_are_typed_is_waited_for(
    machine: Machine, tmp_path: Path
) -> None:
    with hasty_relay(tmp_path / "own", seconds=120) as relay:
        vault = Vault(relay, tmp_path / "vault")
        with inviting(vault.core) as inviter, joining(machine, inviter.code()) as newcomer:
            digits = str(newcomer.event("digits")["digits"])
            inviter.event("digits-wanted")
            relay.kill()
            newcomer.event("relay-away")
            inviter.type(digits)
            inviter.event("relay-away")
            relay.start()
            inviter.event("relay-back")
            assert (inviter.end(), newcomer.end()) == (0, 0)
        assert inviter.events[-1]["confirmed"]


@pytest.mark.slow
def test_a_relay_that_stays_away_ends_in_the_word_that_nobody_was_added(
    brief: Vault, machine: Machine
) -> None:
    with inviting(brief.core) as inviter, joining(machine, inviter.code()) as newcomer:
        digits = str(newcomer.event("digits")["digits"])
        inviter.event("digits-wanted")
        brief.relay.kill()
        inviter.type(digits)
        assert (inviter.end(), newcomer.end()) == (4, 4)
    assert "nobody was added" in inviter.error["error"]
    assert "new invite" in inviter.error["hint"]
    assert "nothing was set up here" in newcomer.error["error"]
    brief.relay.start()
    brief.core.call("sync")
    assert len(members(brief.core)) == 1


@pytest.mark.slow
def test_a_stop_while_the_relay_is_away_ends_at_once_and_nobody_was_added(
    machine: Machine, tmp_path: Path
) -> None:
    with hasty_relay(tmp_path / "own", seconds=120) as relay:
        vault = Vault(relay, tmp_path / "vault")
        with inviting(vault.core) as inviter, joining(machine, inviter.code()) as newcomer:
            digits = str(newcomer.event("digits")["digits"])
            inviter.event("digits-wanted")
            relay.kill()
            inviter.type(digits)
            inviter.event("relay-away")
            inviter.stop()
            assert inviter.end() == 130
        assert inviter.events[-1] == {"event": "stopped", "added": False}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "exit_code", "said"),
    [("/devlog/", 4, "is not known"), ("/tokens", 7, "is added, and could not be let in")],
)
def test_an_answer_that_never_comes_is_no_word_that_nobody_was_added(
    brief: Vault, machine: Machine, where: str, exit_code: int, said: str
) -> None:
    gone = False

    def breaks(method: str, path: str) -> Fault | None:
        nonlocal gone
        first = not gone and method in ("PUT", "POST") and where in path
        gone = gone or first
        return (Fault.LOSE_ANSWER if first else Fault.BROKEN) if gone else None

    with (
        fault_proxy(brief.relay.url) as proxy,
        inviting(brief.core, CRYSTAL_RELAY_URL=proxy.url) as inviter,
        joining(machine, inviter.code(), "--relay", brief.relay.url) as newcomer,
    ):
        proxy.always = breaks
        inviter.type(str(newcomer.event("digits")["digits"]))
        assert inviter.end() == exit_code
        assert newcomer.end() == 7
    assert said in inviter.error["error"]
    assert "not added twice" in inviter.error["hint"]
    inviter, _ = pair(brief.core, machine)
    assert inviter.events[-1]["again"]
