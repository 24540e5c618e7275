"""The second machine comes: the vault moves from the first one's own relay to one that both reach."""

import json
import time
from pathlib import Path

import pytest

from tests.support.machine import Machine, transcript
from tests.support.pairing import inviting, joining
from tests.support.relay_process import RelayProcess
from tests.support.terminal import terminal


@pytest.fixture
def other(tmp_path: Path) -> Machine:
    (tmp_path / "other").mkdir()
    return Machine(tmp_path / "other")


@pytest.fixture
def first(machine: Machine) -> Machine:
    """Set up alone, with something recorded, durable and searchable."""
    transcript(machine, "The lighthouse was painted.")
    machine.run("up", "--no-service", "--yes")
    machine.run("sync")
    return machine


def test_what_was_recorded_alone_goes_along(first: Machine, other: Machine, relay: RelayProcess) -> None:
    vault = first.call("status", "--json").json["vault"]
    first.extra["CRYSTAL_RELAY_ENROLL_TOKEN"] = relay.enroll_token
    with inviting(first, "--relay", relay.url) as inviter, joining(other, inviter.code()) as newcomer:
        inviter.type(newcomer.event("digits")["digits"])
        assert inviter.end() == newcomer.end() == 0
    other.run("sync")
    assert other.found("lighthouse") == ["The lighthouse was painted."]
    status = first.call("status", "--json").json
    assert (status["vault"], status["relay"]) == (vault, relay.url)
    assert "lost" not in json.dumps(status), "a move is no loss"
    assert not (first.home / "state" / "relay").exists()
    assert "relay has everything" in first.run("verify", "--deep").out


def test_a_wrong_address_or_token_is_asked_for_again(first: Machine, relay: RelayProcess) -> None:
    with terminal(first, "pair", TERM="dumb") as shown:
        shown.until("Your machines meet at a relay")
        shown.until("relay.example.org:")
        shown.type("relay.example.org\n")
        shown.until("is no http or https address")
        shown.until("relay.example.org:", times=2)
        shown.type(f"{relay.url}\n")
        shown.until("enrolment token:")
        shown.type("not-the-token-of-this-relay\n")
        shown.until("does not accept that enrolment token")
        shown.until("relay.example.org:", times=3)
        shown.type(f"{relay.url}\n")
        shown.until("enrolment token:", times=2)
        shown.type(f"{relay.enroll_token}\n")
        shown.until("with all that it had")
        shown.until("MC2:")
        shown.stop()
        shown.end()
    assert first.call("status", "--json").json["relay"] == relay.url


def test_without_anybody_to_ask_it_says_what_is_missing(first: Machine) -> None:
    refused = first.call("pair", "--json", typed="\n", check=False)
    assert refused.code == 3
    assert "--relay URL" in refused.error["hint"]


def test_killed_in_the_middle_it_goes_on_and_loses_nothing(
    first: Machine, other: Machine, relay: RelayProcess
) -> None:
    first.extra["CRYSTAL_RELAY_ENROLL_TOKEN"] = relay.enroll_token
    for hundredths in (40, 55, 70, 85):
        started = first.start("pair", "--json", "--relay", relay.url)
        time.sleep(hundredths / 100)
        started.kill()
        started.communicate()
    with inviting(first, "--relay", relay.url) as inviter, joining(other, inviter.code()) as newcomer:
        inviter.type(newcomer.event("digits")["digits"])
        assert inviter.end() == newcomer.end() == 0
    other.run("sync")
    assert other.found("lighthouse") == ["The lighthouse was painted."]
