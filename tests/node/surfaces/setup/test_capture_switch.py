"""Recording can be turned off, as a whole or for a tool; what is said meanwhile is not lost, and the agent obeys at once."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.node.agent.daemon.running import children
from tests.support.machine import Machine, Vault, transcript, turn


@pytest.fixture
def person(vault: Vault) -> Machine:
    return vault.core


def _tool(machine: Machine, name: str) -> dict[str, Any]:
    tools: list[dict[str, Any]] = machine.call("capture", "status", "--json").json["tools"]
    return next(tool for tool in tools if tool["name"] == name)


def _drop(machine: Machine, text: str) -> Path:
    path = machine.home / "drop" / "aide" / "talk.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({"role": "user", "text": text}) + "\n")
    return path


def test_what_is_said_while_recording_is_off_is_recorded_when_it_is_on_again(person: Machine) -> None:
    transcript(person, "Before.")
    person.call("capture")
    assert person.call("capture", "off", "--json").json == {
        "capture": False,
        "without": [],
        "excluded": [],
        "changed": True,
    }
    transcript(person, "Meanwhile.")
    assert "off" in person.call("capture").out
    assert "Meanwhile." not in person.found("meanwhile")
    assert person.call("capture", "off", "--json").json["changed"] is False
    person.call("capture", "on")
    assert person.call("capture", "--json").json["messages"] == 1, "nothing is lost, nothing is doubled"
    assert person.found("meanwhile") == ["Meanwhile."]


def test_one_tool_can_be_off_and_the_others_go_on(person: Machine) -> None:
    transcript(person, "Said to Claude.")
    path = _drop(person, "Dropped by the aide.")
    person.call("capture", "off", "drop")
    assert person.call("capture", "--json").json["messages"] == 1
    looked = _tool(person, "drop")
    assert (looked["on"], looked["transcripts"], looked["waiting_bytes"]) == (False, 1, path.stat().st_size)
    assert looked["last_recorded"] is None
    assert "Still off: drop (`crystal capture on drop`)." in person.call("capture", "on").out
    person.call("capture", "on", "drop")
    assert person.call("capture", "--json").json["messages"] == 1
    looked = _tool(person, "drop")
    assert (looked["on"], looked["waiting_bytes"]) == (True, 0)
    assert looked["last_recorded"] is not None
    assert "drop" in person.call("capture", "status").out


def test_the_choice_of_a_later_version_is_kept(person: Machine) -> None:
    config = json.loads((person.home / "config.json").read_text())
    (person.home / "config.json").write_text(json.dumps(config | {"capture_without": "codex,later-tool"}))
    person.call("capture", "on", "codex")
    assert json.loads((person.home / "config.json").read_text())["capture_without"] == "later-tool"


def test_a_file_of_such_a_name_is_named_with_its_folder(
    person: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(person.root)
    Path("on").write_text(turn("In a file named on."))
    assert person.call("capture", "./on", "--json").json["messages"] == 1


def test_unknown_tools_are_refused_and_a_variable_is_not_overridden(person: Machine) -> None:
    refused = person.call("capture", "off", "../../x", "--json", check=False)
    assert refused.code == 2
    assert "claude-code" in refused.error["hint"]
    assert person.call("capture", "on", "--json", check=False, CRYSTAL_CAPTURE="off").code == 2


def test_it_says_how_things_stand_before_anything_is_set_up(machine: Machine) -> None:
    transcript(machine, "Before anything.")
    assert _tool(machine, "claude-code")["waiting_bytes"] > 0
    assert machine.call("capture", "off", "--json", check=False).code == 3
    assert not machine.home.exists()


def test_a_running_agent_obeys_at_once_and_a_thousand_nudges_leave_it_at_work(person: Machine) -> None:
    agent = person.start("sync", "--watch", "--json")
    try:
        transcript(person, "First words.")
        _until(person, "First words.")
        person.call("capture", "off")
        transcript(person, "Words meanwhile.")
        begun = time.monotonic()
        for _ in range(1000):
            assert person.call("nudge", "--home", str(person.home)).code == 0
        assert time.monotonic() - begun < 60, "a thousand a minute"
        assert "Words meanwhile." not in person.found("meanwhile")
        person.call("capture", "on")
        _until(person, "Words meanwhile.")
        assert agent.poll() is None
        assert children(agent.pid) == []
    finally:
        agent.terminate()
        out, _ = agent.communicate(timeout=60)
    assert agent.returncode == 0
    captured = [event for event in map(json.loads, out.splitlines()) if event["event"] == "captured"]
    assert len(captured) == 2, "nudges for nothing are no captures"


def _until(machine: Machine, text: str) -> None:
    deadline = time.monotonic() + 20
    while text not in machine.found(text):
        assert time.monotonic() < deadline, f"{text!r} was not recorded"
        time.sleep(0.05)
