"""A Node asks the Core's agent over a real relay, waits, leaves, takes back, and is refused."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from crystal_mirror.commands.messages import Action
from crystal_node.agent.commands.policy import denial
from crystal_node.base.errors import ExitCode
from tests.support.machine import Machine, Vault, transcript
from tests.support.relay_process import running_relay

SECONDS_MAX = 60.0


@dataclass
class Shop:
    """A vault whose Core runs the agent, and a Node that asks."""

    vault: Vault
    node: Machine
    agent: "subprocess.Popen[str]"

    @property
    def core(self) -> Machine:
        return self.vault.core


def started(machine: Machine) -> "subprocess.Popen[str]":
    """An agent that listens for commands."""
    agent = machine.start("agent", "run")
    assert agent.stdout is not None
    deadline = time.monotonic() + SECONDS_MAX
    for line in agent.stdout:
        if "the background service runs" in line:
            return agent
        assert time.monotonic() < deadline
    pytest.fail(f"the agent ended: {agent.stderr.read() if agent.stderr else ''}")


def ended(agent: "subprocess.Popen[str]") -> None:
    agent.send_signal(signal.SIGTERM)
    agent.communicate(timeout=SECONDS_MAX)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    with running_relay(folder / "store") as relay:
        vault = Vault(relay, folder)
        node = vault.add()
        transcript(node, "the tide gauge has four sensors")
        node.call("capture")
        vault.settle()
        found = Shop(vault, node, started(vault.core))
        # Until the agent has looked once, what is asked is refused: its list is new.
        until_done(found)
        try:
            yield found
        finally:
            ended(found.agent)


def until_done(shop: Shop) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while shop.node.call("run", "status", "--json", check=False).code != ExitCode.OK:
        assert time.monotonic() < deadline


def test_a_node_has_the_core_tell_how_it_stands(shop: Shop) -> None:
    done = shop.node.call("run", "status", "--json").json
    assert done["state"] == "done"
    result = done["result"]
    assert result["role"] == "core"
    assert result["device"] == done["device"]
    assert [each["name"] for each in result["concerns"]] == ["recovery-kit"], "nobody has checked it"
    assert (result["stuck"], done["text"]) == ([], "1 thing needs a person")
    assert "the tide gauge" not in json.dumps(result)


def test_a_node_has_the_core_verify_its_memory_and_the_digests_agree(shop: Shop) -> None:
    done = shop.node.call("run", "verify", "--json").json
    shop.node.call("sync")
    assert done["result"]["ok"] is True
    assert done["result"]["digest"] == shop.node.call("verify", "--json").json["digest"]


def test_a_snapshot_that_was_asked_for_is_announced(shop: Shop) -> None:
    done = shop.node.call("run", "snapshot", "--json").json
    assert done["state"] == "done"
    shop.node.call("sync")
    assert shop.node.call("status", "--json").json


def test_what_the_core_cannot_do_is_told_with_its_reason(shop: Shop) -> None:
    said = shop.node.call("run", "backup", "--json", check=False)
    assert said.code == ExitCode.NO_ANSWER
    assert said.json["state"] == "failed"
    assert "no folder for backups" in said.json["text"]


def test_what_was_not_waited_for_is_found_later(shop: Shop) -> None:
    sent = shop.node.call("run", "backfill", "--dry-run", "--no-wait", "--json").json
    assert sent["state"] == "sent"
    deadline = time.monotonic() + SECONDS_MAX
    while (now := shop.node.call("commands", "show", sent["id"][:8], "--json").json)["state"] != "done":
        assert time.monotonic() < deadline
    assert now["result"]["taken"] == 0
    listed = shop.node.call("commands", "list", "--json").json
    assert sent["id"] in [each["id"] for each in listed["asked"]]
    for words in (("commands", "list"), ("commands",), ("commands", "list", "--offline")):
        assert sent["id"][:8] in shop.node.call(*words).out
    assert sent["id"] in [
        each["id"] for each in shop.core.call("commands", "list", "--json").json["received"]
    ]


def test_what_is_denied_on_the_core_is_refused_from_that_moment_on(shop: Shop) -> None:
    shop.core.call("commands", "deny", "*", "verify")
    try:
        assert shop.node.call("run", "verify", "--json", check=False).json["state"] == "refused"
    finally:
        shop.core.call("commands", "allow", "*", "verify")


def test_the_core_asks_itself_for_nothing_and_there_is_no_other_action(shop: Shop) -> None:
    assert shop.core.call("run", "status", check=False).code == ExitCode.USAGE
    assert shop.node.call("run", "reboot", check=False).code == ExitCode.USAGE
    assert shop.node.call("run", "dream-weave", "--mode", "ful", check=False).code == ExitCode.USAGE
    assert shop.node.call("run", "status", "--on", "nobody", check=False).code == ExitCode.NOT_FOUND


def test_a_device_whose_agent_does_not_run_gives_no_answer_and_the_request_is_taken_back(shop: Shop) -> None:
    node = shop.node.call("devices", "--json").json
    other = next(device["id"] for device in node["devices"] if device["this"])
    asked = shop.core.call("run", "verify", "--on", other, "--seconds", "1", "--json", check=False)
    assert asked.code == ExitCode.NO_ANSWER
    given = asked.json["id"][:8]
    assert shop.core.call("commands", "cancel", given, "--json").json["told"] is True
    waited = shop.core.call("run", "verify", "--on", other, "--seconds", "3", check=False)
    assert waited.code == ExitCode.NO_ANSWER
    assert "No answer yet; it is waited for 3 s at most" in waited.err
    (given,) = set(re.findall(r"commands show ([0-9a-f]{8})", waited.err))
    assert shop.core.call("commands", "cancel", given, "--json").json["told"] is True


def test_it_is_kept_while_the_relay_is_away_and_can_be_taken_back(shop: Shop, tmp_path: Path) -> None:
    away = {"CRYSTAL_RELAY_URL": "http://127.0.0.1:9"}
    other = next(d["id"] for d in shop.node.call("devices", "--json").json["devices"] if not d["this"])
    failed = shop.node.call("run", "verify", "--on", other, "--no-wait", "--json", check=False, **away)
    assert failed.code == ExitCode.RELAY_UNREACHABLE
    listed = shop.node.call("commands", "list", "--offline", "--json").json
    kept = listed["asked"][-1]
    assert kept["state"] == "unsent"
    assert kept["id"][:8] in failed.error["hint"]
    assert shop.node.call("commands", "cancel", kept["id"], "--json").json["state"] == "refused"


def test_rules_name_devices_by_their_ids_beginning_and_anything_by_a_star() -> None:
    sender = bytes.fromhex("1a2b3c4d" + "00" * 12)
    for rules, denied in (
        ((), False),
        (("1a2b3c4d:backup",), True),
        (("1a2b3c4e:backup",), False),
        (("1a2b3c4d:verify",), False),
        (("*:backup",), True),
        (("1a2b3c4d:*",), True),
        (("*:*",), True),
    ):
        assert bool(denial(rules, sender, Action.BACKUP)) is denied
