"""`crystal sessions`: what was said on any machine is listed, read whole and written out."""

import json
import stat
from pathlib import Path

import pytest

from tests.support.machine import Machine, Vault, turn
from tests.support.relay_process import RelayProcess

FIRST = "5e1c0f7a-0000-4000-8000-000000000001"
SECOND = "5e1c0f7a-0000-4000-8000-000000000002"
LONG = 230
"""Messages: more than one answer of the service holds."""


@pytest.fixture(scope="module")
def machine(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = Vault(relay, tmp_path_factory.mktemp("sessions")).core
    folder = machine.projects / "-home-someone-tide"
    folder.mkdir(parents=True)
    (folder / "one.jsonl").write_text(
        "".join(turn(f"the gauge reads {n} mm", session=FIRST, cwd="/home/someone/tide") for n in range(LONG))
    )
    (folder / "two.jsonl").write_text(
        turn("the pelican ate the <b>log</b>", session=SECOND, cwd="/home/someone/sea")
    )
    machine.call("capture")
    machine.call("sync")
    return machine


def listed(machine: Machine, *arguments: str) -> list[str]:
    found = machine.call("sessions", "list", "--json", *arguments).json["conversations"]
    return [each["session"] for each in found]


def test_they_are_listed_by_project_tool_and_machine(machine: Machine) -> None:
    assert sorted(listed(machine)) == [FIRST, SECOND]
    assert listed(machine, "--project", "sea") == [SECOND]
    name = machine.call("status", "--json").json["name"]
    assert sorted(listed(machine, "--tool", "claude-code", "--device", name)) == [FIRST, SECOND]
    assert len(listed(machine, "--limit", "1")) == 1
    lines = machine.call("sessions", "list", "--project", "sea").out.splitlines()
    assert "the pelican ate the log" in lines[0]
    assert f"claude-code on {name}" in lines[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("list", "--project", "nowhere"), "no project"),
        (("list", "--tool", "abacus"), "no tool"),
        (("list", "--device", "toaster"), "no device"),
        (("show", "5e1"), "too short"),
        (("show", "5e1c0f7a"), "2 conversations"),
        (("show", "ffffffffffff"), "no conversation's id"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(
    machine: Machine, arguments: tuple[str, ...], said: str
) -> None:
    refused = machine.call("sessions", *arguments, "--json", check=False)
    assert said in refused.error["error"]
    assert refused.error["hint"]


def test_a_conversation_is_read_whole_by_its_id_or_its_tools(machine: Machine) -> None:
    shown = machine.call("sessions", "show", FIRST, "--json").json
    assert len(shown["messages"]) == LONG
    again = machine.call("sessions", "show", shown["conversation"]["id"][:12]).out
    assert f"the gauge reads {LONG - 1} mm" in again


def test_it_is_written_to_a_new_private_file_or_to_standard_output(machine: Machine, tmp_path: Path) -> None:
    text = machine.call("sessions", "export", SECOND).out
    assert "ate the &lt;b>log&lt;/b>" in text
    page = tmp_path / "page.html"
    machine.call("sessions", "export", SECOND, "--format", "html", "--to", str(page))
    assert "ate the &lt;b&gt;log&lt;/b&gt;" in page.read_text()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    before = page.read_bytes()
    refused = machine.call("sessions", "export", FIRST, "--to", str(page), "--json", check=False)
    assert "is there already" in refused.error["error"]
    assert page.read_bytes() == before
    missing = machine.call(
        "sessions", "export", FIRST, "--to", str(tmp_path / "no" / "file.md"), "--json", check=False
    )
    assert "cannot be written" in missing.error["error"]


def test_a_name_that_others_begin_with_means_the_one_that_has_it(machine: Machine) -> None:
    names = ["evening", "evening-2", "evening-3"]
    for day, name in enumerate(names, start=1):
        said = {
            "role": "user",
            "text": f"the {name} tide",
            "session": name,
            "timestamp": f"2026-01-0{day}T18:00:00Z",
        }
        path = machine.home / "drop" / "aide" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(said) + "\n")
    machine.call("capture")
    machine.call("sync")
    assert listed(machine, "--tool", "drop") == names[::-1]
    assert machine.call("sessions", "show", "evening", "--json").json["conversation"]["session"] == "evening"
