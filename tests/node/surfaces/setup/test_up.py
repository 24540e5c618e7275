"""`crystal up` brings a machine from nothing to one that records by itself, and can be run at any time."""

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Generator
from typing import Any

import pytest

from tests.support.machine import Machine, Outcome, Vault, transcript
from tests.support.pairing import inviting
from tests.support.relay_process import RelayProcess
from tests.support.s3_servers.daemons import free_port
from tests.support.terminal import terminal
from tests.support.user_manager import UserManager, with_manager


@pytest.fixture
def person(machine: Machine) -> Machine:
    """Somebody who uses Claude Code."""
    transcript(machine, "The lighthouse was painted.")
    return machine


@pytest.fixture
def manager(person: Machine) -> Generator[UserManager]:
    found = with_manager(person)
    yield found
    found.stop_all()


def _core(machine: Machine, relay: RelayProcess, *more: str) -> Outcome:
    return machine.call(
        *("up", "--role", "core", "--relay", relay.url, "--yes", "--json", *more),
        check=False,
        CRYSTAL_RELAY_ENROLL_TOKEN=relay.enroll_token,
    )


def _events(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.out.splitlines()]


def _states(outcome: Outcome) -> dict[str, str]:
    return {event["name"]: event["state"] for event in _events(outcome) if event["event"] == "step"}


def _until_found(machine: Machine, text: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while text not in machine.found(text):
        assert time.monotonic() < deadline, f"{text!r} was not recorded"
        time.sleep(0.1)


def test_one_command_makes_a_machine_that_records_by_itself_and_down_undoes_it(
    person: Machine, relay: RelayProcess, manager: UserManager
) -> None:
    first = _core(person, relay)
    assert first.code == 0, first.out + first.err
    assert _states(first) == dict.fromkeys(
        ["home", "vault", "capture", "history", "hooks", "mcp", "service"], "done"
    )
    assert _events(first)[-1]["agent"] is True
    assert person.found("lighthouse") == ["The lighthouse was painted."]
    [agent] = manager.running()
    transcript(person, "Said a moment ago.")
    _until_found(person, "Said a moment ago.")

    again = person.call("up", "--json")
    assert set(_states(again).values()) == {"was-so"}
    assert manager.running() == [agent]

    down = person.call("down", "--json").json
    assert {step["name"]: step["state"] for step in down["steps"]} == {
        "service": "done",
        "agent": "was-so",
        "hooks": "done",
    }
    assert manager.running() == []
    assert list(manager.units.rglob("*.service")) == []
    assert {step["state"] for step in person.call("down", "--json").json["steps"]} == {"was-so"}
    transcript(person, "Said while it was down.")

    assert _states(person.call("up", "--json"))["service"] == "done"
    _until_found(person, "Said while it was down.")
    assert person.found("lighthouse", "-n", "9").count("The lighthouse was painted.") == 1


def test_without_a_service_manager_all_else_is_done_and_it_says_what_to_do(
    person: Machine, relay: RelayProcess
) -> None:
    outcome = _core(person, relay)
    states = _states(outcome)
    assert states.pop("service") == "could-not"
    assert set(states.values()) == {"done"}
    told = next(event for event in _events(outcome) if event.get("name") == "service")
    assert "crystal agent run" in told["hint"]
    assert outcome.code == told["exit_code"] == _events(outcome)[-1]["exit_code"] == 8


def test_agents_get_the_memory_unless_the_person_does_not_want_that(
    person: Machine, relay: RelayProcess
) -> None:
    file = person.root / ".claude.json"
    assert _states(_core(person, relay, "--no-service", "--no-mcp"))["mcp"] == "left-out"
    assert not file.exists()
    assert _states(person.call("up", "--no-service", "--json"))["mcp"] == "done"
    assert json.loads(file.read_text())["mcpServers"]["crystal"]["args"][-1] == "mcp"


def test_the_first_machine_needs_one_enter_and_no_relay(person: Machine) -> None:
    with terminal(person, "up", "--no-service", TERM="dumb") as shown:
        shown.until("claude-code  1 transcript")
        shown.until("Go on?")
        assert not person.home.exists(), "nothing was done before the yes"
        shown.type("perhaps\n")
        shown.until("Go on?", times=2)
        shown.type("\n")
        assert shown.end() == 0
    assert "\x1b" not in shown.shown
    assert person.found("lighthouse") == ["The lighthouse was painted."]
    assert person.call("hooks", "status", "claude-code", "--json").json["tools"][0]["installed"] is True
    status = person.call("status", "--json").json
    assert (status["role"], status["relay"], status["outbox"]["pending"]) == ("core", "local", 1)
    person.call("sync")
    assert person.call("status", "--json").json["outbox"]["pending"] == 0
    assert person.call("doctor", check=False).code == 0


def test_without_anybody_to_ask_the_first_machine_is_set_up_as_well(person: Machine) -> None:
    outcome = person.call("up", "--no-service", "--json")
    assert _events(outcome)[-1]["relay"] == "local"
    assert person.found("lighthouse") == ["The lighthouse was painted."]


def test_a_search_right_behind_it_names_this_machine(person: Machine) -> None:
    person.call("up", "--yes", "--no-service", "--name", "attic")
    (hit,) = person.call("search", "--json", "lighthouse").json["results"]
    assert hit["device_name"] == "attic"


def test_at_a_terminal_each_step_can_be_chosen(person: Machine, relay: RelayProcess) -> None:
    with terminal(person, "up", TERM="dumb") as shown:
        shown.until("Go on?")
        shown.type("choose\n")
        shown.until("relay.example.org")
        shown.type("127.0.0.1\n")
        shown.until("is no http or https address")
        shown.until("relay.example.org", times=2)
        shown.type(f"{relay.url}\n")
        shown.until("(all)")
        shown.type("claude\n")
        shown.until("There is no claude")
        shown.until("(all)", times=2)
        shown.type("claude-code, codex\n")
        shown.until("Record what was said before now")
        shown.type("no\n")
        shown.until("Install hooks")
        shown.type("\n")
        shown.until("Give the agents")
        shown.type("\n")
        shown.until("Run the background service")
        shown.type("no\n")
        shown.until("Go on?", times=2)
        assert not person.home.exists(), "nothing was done before the yes"
        shown.type("yes\n")
        shown.until("enrolment token")
        shown.type(f"{relay.enroll_token}\n")
        shown.until("Show the recovery kit now?")
        shown.type("no\n")
        assert shown.end() == 0
    assert relay.enroll_token not in shown.shown
    assert "stepped over 1 transcript" in shown.shown
    status = person.call("capture", "status", "--json").json
    assert [tool["name"] for tool in status["tools"] if tool["on"]] == ["claude-code", "codex"]
    assert person.call("hooks", "status", "claude-code", "--json").json["tools"][0]["installed"] is True


def test_a_no_to_the_plan_leaves_nothing(person: Machine) -> None:
    with terminal(person, "up", "--no-service") as shown:
        shown.until("Go on?")
        shown.type("no\n")
        assert shown.end() == 2
    assert not person.home.exists()
    assert not (person.root / ".claude" / "settings.json").exists()


def test_killed_half_way_it_goes_on_when_it_is_run_again(person: Machine, relay: RelayProcess) -> None:
    with terminal(
        person, "up", "--role", "core", "--relay", relay.url, "--capture", "all", "--no-service"
    ) as shown:
        shown.until("Go on?")
        shown.type("yes\n")
        shown.until("enrolment token")
        shown.kill()
    again = _core(person, relay, "--no-service")
    assert again.code == 0
    assert _states(again) == {
        "home": "was-so",
        "vault": "done",
        "capture": "done",
        "history": "done",
        "hooks": "done",
        "mcp": "done",
        "service": "left-out",
    }
    assert person.found("lighthouse") == ["The lighthouse was painted."]


def test_killed_anywhere_and_run_again_it_makes_one_vault_and_doubles_nothing(
    person: Machine, relay: RelayProcess
) -> None:
    seen: set[str] = set()
    for hundredths in (25, 35, 45, 55, 65, 75):
        started = person.start(
            *("up", "--role", "core", "--relay", relay.url, "--yes", "--no-service"),
            CRYSTAL_RELAY_ENROLL_TOKEN=relay.enroll_token,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.communicate(timeout=hundredths / 100)
        started.kill()
        started.communicate()
        config = person.home / "config.json"
        seen |= {json.loads(config.read_text()).get("vault", "")} if config.exists() else set()
    assert _core(person, relay, "--no-service").code == 0
    vault = person.call("status", "--json").json["vault"]
    assert seen <= {"", vault}
    assert person.found("lighthouse") == ["The lighthouse was painted."]
    assert person.call("status", "--json").json["outbox"]["pending"] == 1
    assert person.call("hooks", "status", "claude-code", "--json").json["tools"][0]["installed"] is True


def test_what_was_said_before_is_left_out_when_asked_and_that_is_decided_once(
    person: Machine, relay: RelayProcess
) -> None:
    assert _core(person, relay, "--from-now", "--no-service").code == 0
    transcript(person, "Said from then on.")
    person.call("capture")
    assert person.found("said", "-n", "9") == ["Said from then on."]
    again = person.call("up", "--history", "--no-service", "--json")
    assert _states(again)["history"] == "was-so"
    assert person.found("said", "-n", "9") == ["Said from then on."]


def test_damaged_settings_of_a_tool_stop_no_other_step_and_no_other_tool_and_stay_as_they_are(
    person: Machine, relay: RelayProcess
) -> None:
    file = person.root / ".claude" / "settings.json"
    file.write_text('{"hooks": }')
    cut, codex = person.root / ".gemini" / "settings.json", person.root / ".codex"
    cut.parent.mkdir(exist_ok=True)
    cut.write_text("{\n  // mine\n")
    codex.mkdir(exist_ok=True)
    outcome = _core(person, relay, "--no-service")
    told = next(event for event in _events(outcome) if event.get("name") == "hooks")
    assert (told["state"], outcome.code) == ("could-not", 8)
    assert "line 1, column 11" in told["text"]
    assert (file.read_text(), cut.read_text()) == ('{"hooks": }', "{\n  // mine\n")
    assert person.call("status", "--json").json["role"] == "core"
    assert "crystal" in (codex / "hooks.json").read_text()
    assert "crystal" in (codex / "config.toml").read_text()
    person.call("uninstall", check=False)
    assert list(codex.iterdir()) == []


def test_what_a_variable_decides_is_left_as_it_is(person: Machine, relay: RelayProcess) -> None:
    person.extra["CRYSTAL_CAPTURE"] = "off"
    outcome = _core(person, relay, "--no-service")
    assert (outcome.code, _states(outcome)["capture"]) == (0, "was-so")
    assert _events(outcome)[-1]["capture"] is False
    assert person.found("lighthouse") == []


def test_a_relay_that_is_away_stops_it_where_nothing_could_be_built_on(person: Machine) -> None:
    outcome = person.call(
        *("up", "--role", "core", "--relay", "http://127.0.0.1:9", "--yes", "--json"),
        check=False,
        CRYSTAL_RELAY_ENROLL_TOKEN="0" * 64,
    )
    states = _states(outcome)
    assert (states["vault"], outcome.code) == ("could-not", 4)
    assert [states[name] for name in ("capture", "history", "hooks", "mcp", "service")] == ["left-out"] * 5
    assert not (person.root / ".claude" / "settings.json").exists()


def test_a_node_joins_by_one_command_and_says_no_secret(vault: Vault, machine: Machine) -> None:
    code = vault.code()
    outcome = machine.run(
        *("up", "--code", "-", "--relay", vault.relay.url, "--capture", "none", "--no-service", "--yes"),
        typed=f"{code}\n",
    )
    assert "is a Node of vault" in outcome.out
    assert code[4:20] not in outcome.out + outcome.err
    status = machine.call("capture", "status", "--json").json
    assert status["capture"] is False
    assert machine.call("status", "--json").json["role"] == "node"


def test_a_person_at_a_terminal_joins_by_an_invite_and_its_digits(vault: Vault, machine: Machine) -> None:
    with (
        inviting(vault.core) as inviter,
        terminal(machine, "up", "--no-service") as newcomer,
    ):
        newcomer.until("Go on?")
        newcomer.type("join\n")
        newcomer.until("Go on?", times=2)
        newcomer.type("\n")
        newcomer.until("The code that")
        newcomer.type(f"{inviter.code()}\n")
        newcomer.until("Type these digits")
        newcomer.until("Waiting for the digits")
        found = re.search(r"\b([0-9]{3}) ([0-9]{3})\b", newcomer.shown.partition("Type these digits")[2])
        assert found is not None
        inviter.type(found[1] + found[2])
        newcomer.until("added this machine?")
        newcomer.type("yes\n")
        assert newcomer.end() == 0
        assert inviter.end() == 0
    assert "is a Node of vault" in newcomer.shown
    assert machine.call("status", "--json").json["role"] == "node"


def test_why_old_conversations_wait_stands_last_with_what_to_do(vault: Vault, person: Machine) -> None:
    code = vault.core.call("pair", "--offline", "--yes", "--json").json["code"]
    person.call("pair", "--code", "-", "--relay", vault.relay.url, typed=f"{code}\n")
    away = f"http://127.0.0.1:{free_port()}"
    waits = person.call("up", "--no-service", "--no-mcp", "--no-hooks", "--yes", CRYSTAL_RELAY_URL=away)
    assert "later      record what was said before now" in waits.out
    why, hint = waits.err.strip().splitlines()[-2:]
    assert "1 transcript of before will be read after a sync" in why
    assert "That sync failed: the relay cannot be reached" in why
    assert "`crystal sync`" in hint
    assert person.found("lighthouse") == []
    person.call("sync")
    person.call("capture")
    assert person.found("lighthouse") == ["The lighthouse was painted."]


def test_two_at_once_make_one_vault(person: Machine, relay: RelayProcess) -> None:
    words = ("up", "--role", "core", "--relay", relay.url, "--yes", "--no-service", "--json")
    both = [person.start(*words, CRYSTAL_RELAY_ENROLL_TOKEN=relay.enroll_token) for _ in range(2)]
    vaults = {json.loads(one.communicate(timeout=60)[0].splitlines()[-1])["vault"] for one in both}
    assert 0 in {one.returncode for one in both} <= {0, 9}, "one of them may find the home in use"
    assert vaults - {None} == {person.call("status", "--json").json["vault"]}
    assert person.found("lighthouse") == ["The lighthouse was painted."]
    hooks = json.loads((person.root / ".claude" / "settings.json").read_text())["hooks"]
    assert {event: len(groups) for event, groups in hooks.items()} == dict.fromkeys(
        (
            *("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"),
            *("PostToolUseFailure", "SubagentStart"),
        ),
        1,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--enroll-token", "0" * 64), "but no relay"),
        (("--role", "core", "--code", "MC2:x"), "does not join"),
        (("--role", "node", "--enroll-token", "-"), "needs no enrolment token"),
        (("--role", "node", "--code", "mc3:AAAA"), "not taken from a command line"),
        (("--role", "core", "--capture", "nope"), "no tool 'nope'"),
        (("--role", "core", "--capture", " ,"), "no tool is named"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_done(
    machine: Machine, arguments: tuple[str, ...], said: str
) -> None:
    refused = machine.call("up", *arguments, "--json", check=False)
    assert refused.code == 2
    assert said in refused.error["error"]
    assert not machine.home.exists()


def test_a_machine_that_is_set_up_is_not_made_into_another_one(vault: Vault) -> None:
    for arguments in (
        ("--role", "node"),
        ("--code", "MC2:x"),
        ("--relay", "http://127.0.0.1:9"),
        ("--name", "other"),
    ):
        assert vault.core.call("up", *arguments, "--json", check=False).code == 2
