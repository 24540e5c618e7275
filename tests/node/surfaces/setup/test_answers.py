"""At a terminal a wrong answer is asked for again, and who stops at a question goes on with the next `crystal up`."""

import re

import pytest

from crystal_node.base.errors import describe
from crystal_node.surfaces.cli.up_dialogue import Stopped, stopping
from tests.support.machine import Machine, Vault, transcript
from tests.support.pairing import inviting
from tests.support.relay_process import RelayProcess
from tests.support.terminal import Terminal, terminal

pytestmark = pytest.mark.timeout(400)
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def person(machine: Machine) -> Machine:
    transcript(machine, "The lighthouse was painted.")
    return machine


def test_an_address_a_token_and_a_name_that_are_wrong_are_asked_for_again(
    person: Machine, relay: RelayProcess
) -> None:
    with terminal(person, "up", "--no-service", "--capture", "all", TERM="dumb") as shown:
        shown.until("Go on?")
        shown.type("name\n")
        shown.until("This machine's name (")
        shown.type("bench\n")
        shown.until("This machine will be called bench")
        shown.until("Go on?", times=2)
        shown.type("choose\n")
        shown.until("(Enter: none")
        shown.type("relay.example.org\n")
        shown.until("Write it whole: https://relay.example.org")
        shown.until("(Enter: none", times=2)
        shown.type(f"{NOWHERE}\n")
        shown.until("Record what was said before now")
        shown.type("\n")
        shown.until("Install hooks")
        shown.type("\n")
        shown.until("Give the agents")
        shown.type("\n")
        shown.until("Go on?", times=3)
        shown.type("\n")
        shown.until("enrolment token: ")
        shown.type("\n")  # nothing is asked for again, too
        shown.until("enrolment token: ", times=2)
        shown.type("no-token\n")
        shown.until(f"(Enter: {NOWHERE})")
        shown.type(f"{relay.url}\n")
        shown.until("does not accept that enrolment token")
        shown.until("enrolment token: ", times=3)
        shown.type(f"{relay.enroll_token}\n")
        shown.until("Show the recovery kit now?")
        shown.type("no\n")
        assert shown.end() == 0
    status = person.call("status", "--json").json
    assert (status["name"], status["relay"], status["role"]) == ("bench", relay.url, "core")


def test_a_wrong_code_is_asked_for_again_until_one_is_right(vault: Vault, machine: Machine) -> None:
    with inviting(vault.core) as gone:
        withdrawn = gone.code()
        gone.stop()
        gone.end()
    with inviting(vault.core) as inviter, terminal(machine, "up", "--no-service", TERM="dumb") as newcomer:
        newcomer.until("Go on?")
        newcomer.type("join\n")
        newcomer.until("Go on?", times=2)
        newcomer.type("\n")
        invite = inviter.code()
        for number, (code, said) in enumerate(
            [
                ("perhaps", "does not begin with"),
                (invite[:-9], "was cut short"),
                ("https://relay.example.org", "this is an address"),
                (withdrawn, "withdrawn"),
            ],
            start=1,
        ):
            newcomer.until("The code that", times=number)
            newcomer.type(f"{code}\n")
            newcomer.until(said)
        newcomer.until("The code that", times=5)
        newcomer.type(f"{invite}\n")
        newcomer.until("Waiting for the digits")
        found = re.search(r"\b([0-9]{3}) ([0-9]{3})\b", newcomer.shown.partition("Type these digits")[2])
        assert found is not None
        inviter.type(found[1] + found[2])
        newcomer.until("added this machine?")
        newcomer.type("\n")  # not a yes: whose machine that is has to be said
        newcomer.until("Please type yes or no")
        newcomer.type("yes\n")
        assert (newcomer.end(), inviter.end()) == (0, 0)
    assert machine.call("status", "--json").json["role"] == "node"


def _stopped(shown: Terminal, question: str) -> None:
    shown.until(question)
    shown.stop()
    assert shown.end() == 130


def test_who_stops_it_is_told_that_it_goes_on() -> None:
    """Not on a terminal: what a process writes last may be gone with it, before anybody has read it there."""
    with pytest.raises(Stopped) as raised, stopping():
        raise KeyboardInterrupt
    told = describe(raised.value)
    assert (told.message, told.exit_code) == ("stopped", 130)
    assert "Run `crystal up` again: it goes on" in told.hint


def test_ctrl_c_at_any_question_leaves_a_home_that_the_next_up_finishes(
    person: Machine, relay: RelayProcess
) -> None:
    with terminal(person, "up", "--no-service") as shown:
        _stopped(shown, "Go on?")
    with terminal(person, "up", "--no-service") as shown:
        shown.until("Go on?")
        shown.type("choose\n")
        for question in ("(Enter: none", "(all)", "Record what was said", "Install hooks"):
            shown.until(question)
            shown.type("\n")
        _stopped(shown, "Give the agents")
    assert not person.home.exists(), "nothing was done before the yes"
    with terminal(person, "up", "--no-service", "--role", "core", "--relay", relay.url) as shown:
        shown.until("Go on?")
        shown.type("\n")
        _stopped(shown, "enrolment token")
    with terminal(person, "up", "--no-service") as shown:
        shown.until("Go on?")
        shown.type("join\n")
        shown.until("Go on?", times=2)
        shown.type("\n")
        _stopped(shown, "The code that")
    done = person.call("up", "--no-service", "--yes")
    assert "is a Core of vault" in done.out, "no half of an earlier answer is kept"
    assert person.call("status", "--json").json["relay"] == "local"
    assert person.found("lighthouse") == ["The lighthouse was painted."]


def test_a_founding_that_failed_keeps_the_home_from_no_other_vault_and_its_reason_stands_last(
    person: Machine, vault: Vault
) -> None:
    failed = person.call(
        *("up", "--role", "core", "--relay", NOWHERE, "--no-service", "--yes"),
        check=False,
        CRYSTAL_RELAY_ENROLL_TOKEN="0" * 64,
    )
    assert failed.code == 4
    assert "Not done because of that: capture, history, hooks, mcp, service." in failed.out
    last = failed.err.splitlines()[-2:]
    assert last[0].startswith("crystal: could not make a vault")
    assert last[1].startswith("  Is the relay running")
    joined = person.call(
        *("up", "--code", "-", "--relay", vault.relay.url, "--no-service", "--yes"),
        typed=f"{vault.code()}\n",
    )
    assert "is a Node of vault" in joined.out
    assert person.call("status", "--json").json["holds_root"] is True
