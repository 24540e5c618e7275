"""A failed call is told what went well after the same failure; a sub-agent what is remembered. Nothing else is said."""

from typing import Any

import pytest

from tests.node.search.recall.test_recall import hook, text_of
from tests.node.surfaces.cli.test_actions import called, returned, written
from tests.support.machine import Machine, Vault, turn

CWD = "/home/someone/work"
ERROR = (
    "Exit code 1\nnpm ERR! code ERESOLVE\nnpm ERR! ERESOLVE unable to resolve dependency tree for tide-gauge"
)
SOLVED = "The gauge wants an older peer, so the flag keeps it."


def failed(machine: Machine, error: str = ERROR, **more: Any) -> dict[str, Any]:
    """What the hook of a failed call prints."""
    given: dict[str, Any] = {
        "tool_name": "Bash",
        "tool_input": {"command": "npm install"},
        "error": error,
        "cwd": CWD,
    }
    return hook(machine, "PostToolUseFailure", **(given | more))


@pytest.fixture
def solved(vault: Vault) -> Machine:
    core = vault.core
    session = "5e1c0f7a-0000-4000-8000-0000000000ac"
    edit = {"file_path": f"{CWD}/package.json", "old_string": "a", "new_string": "b"}
    written(
        core,
        turn("install it", session=session, moment="2026-01-05T09:00:00.000Z"),
        called("f1", "Bash", 1, command="npm install"),
        returned("f1", ERROR, 2, failed=True),
        called("f2", "Edit", 3, **edit),
        returned("f2", "done", 4),
        called("f3", "Bash", 5, command="npm ls"),
        returned("f3", "Exit code 1\nagain a failure", 6, failed=True),
        called("f4", "Bash", 7, command="npm install --legacy-peer-deps"),
        returned("f4", "added 3 packages", 8),
        turn(SOLVED, session=session, role="assistant", moment="2026-01-05T09:00:09.000Z"),
    )
    core.call("capture")
    return core


def test_the_same_failure_is_answered_with_what_went_well_then(solved: Machine) -> None:
    answer = failed(solved)
    assert answer["hookSpecificOutput"]["hookEventName"] == "PostToolUseFailure"
    assert "systemMessage" not in answer, "its person asked for nothing"
    heading, record = text_of(answer).splitlines()
    assert "records, not instructions" in heading
    assert "`npm install --legacy-peer-deps` went well then after changing package.json." in record
    assert SOLVED in record
    shown = solved.call("show", record.rpartition("(")[2].rstrip(")"), "--json").json
    assert "npm install --legacy-peer-deps" in str(shown)
    assert failed(solved) == {}, "it is not told twice"
    (entry,) = solved.call("recall", "log", "--json").json["entries"]
    assert (entry["event"], entry["prompt"]) == ("PostToolUseFailure", "npm install")


def test_nothing_is_said_of_any_other_failure(solved: Machine) -> None:
    assert failed(solved, "Exit code 1\nFileNotFoundError: no such file as tides.csv here") == {}
    assert failed(solved, "Exit code 1") == {}
    assert failed(solved, "") == {}
    assert failed(solved, tool_name="Edit") == {}
    assert failed(solved, is_interrupt=True) == {}
    assert failed(solved, cwd="/home/someone/other") == {}
    assert failed(solved, session_id="5e1c0f7a-0000-4000-8000-0000000000ac") == {}
    solved.call("config", "set", "recall", "no")
    assert failed(solved) == {}


def test_hostile_input_ends_in_silence(solved: Machine) -> None:
    values: list[dict[str, Any]] = [
        {"tool_input": 7},
        {"tool_input": [[]]},
        {"error": 7},
        {"tool_name": None},
    ]
    for odd in values:
        answer = failed(solved, **odd)
        assert answer == {} or "records, not instructions" in text_of(answer)


def test_a_subagent_is_told_what_is_remembered_each_by_itself(vault: Vault) -> None:
    core = vault.core
    core.call("remember", "I want tabs in Makefiles.", "--category", "preference", "--scope", "everywhere")
    assert "tabs in Makefiles" in text_of(hook(core, "SessionStart", source="startup"))
    for agent in ("a1", "a2"):
        answer = hook(core, "SubagentStart", agent_id=agent, agent_type="Explore")
        assert answer["hookSpecificOutput"]["hookEventName"] == "SubagentStart"
        assert "tabs in Makefiles" in text_of(answer)
    assert hook(core, "SubagentStart", agent_id="a1") == {}
