"""`status` and `remember` load next to nothing where the background service answers, and print what the command prints."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from crystal_node.surfaces.cli import remember_plain
from tests.support.local_api import served
from tests.support.machine import Machine, Vault
from tests.support.relay_process import RelayProcess

_LOADED = """
import sys
from crystal_node.surfaces.cli import main
code = main(sys.argv[1:])
heavy = {"typer", "rich", "numpy", "cryptography", "apsw", "msgspec", "crystal_mirror", "httpx", "crystal_node.base.settings"}
sys.stderr.write(" ".join(sorted(heavy & set(sys.modules))))
sys.exit(code)
"""


@pytest.fixture
def machine(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    core = Vault(relay, tmp_path_factory.mktemp("plain")).core
    core.call("sync")
    core.call("status")  # news of the vault is told
    return core


def _watched(machine: Machine, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _LOADED, *arguments],
        env=machine.environment | {"CRYSTAL_HOME": str(machine.home)},
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def _ageless(text: str) -> str:
    """Without ages, and without the tools: the service that stands in here looks into the home of the tests' own process."""
    text = "\n".join(line for line in text.splitlines() if not line.startswith("capture "))
    return re.sub(r"\d+ (?:s|min)\b", "AGE", text)


def test_people_read_the_same_status(machine: Machine) -> None:
    alone = machine.call("status").out
    with served(machine):
        finished = _watched(machine, "status")
    assert finished.stderr == ""
    assert _ageless(finished.stdout) == _ageless(alone)
    assert finished.stdout.splitlines()


def test_programs_read_the_same_status(machine: Machine) -> None:
    alone = machine.call("status", "--json").json
    with served(machine):
        finished = _watched(machine, "status", "--json")
    assert finished.stderr == ""
    assert json.loads(finished.stdout).keys() == alone.keys()


def test_news_is_shown_by_the_command_itself_and_counts_as_shown(relay: RelayProcess, tmp_path: Path) -> None:
    vault = Vault(relay, tmp_path)
    vault.add()
    vault.core.call("sync")
    with served(vault.core):
        first = _watched(vault.core, "status")
        second = _watched(vault.core, "status")
    assert "\n* " in first.stdout
    assert {"apsw", "msgspec"} <= set(first.stderr.split())
    assert "\n* " not in second.stdout
    assert second.stderr == ""


def test_a_setting_of_this_call_alone_is_no_matter_for_the_service(machine: Machine) -> None:
    with served(machine):
        machine.extra["CRYSTAL_CAPTURE"] = "off"
        finished = _watched(machine, "status")
    assert "capture  OFF" in finished.stdout


def test_a_memory_is_kept_once_and_for_the_project_of_the_folder(machine: Machine) -> None:
    with served(machine):
        kept = _watched(machine, "remember", "-", text="The crane is serviced on Tuesdays.\n")
        again = _watched(machine, "remember", "--json", "the crane is serviced on tuesdays")
    assert kept.stdout.startswith("Remembered as ")
    assert not {"typer", "rich", "cryptography", "crystal_mirror"} & set(kept.stderr.split())
    assert again.stderr == ""
    assert json.loads(again.stdout)["merged"]
    listed = machine.call("memories", "list", "--json").json
    assert [each["text"] for each in listed["memories"]] == ["The crane is serviced on Tuesdays."]
    alone = machine.call("remember", "--json", "The crane is serviced on Tuesdays.").json
    assert json.loads(again.stdout)["project"] == alone["project"]


def test_what_the_service_refuses_the_command_refuses_with_its_own_words(machine: Machine) -> None:
    machine.call("private", "on")
    with served(machine):
        result = subprocess.run(
            [sys.executable, "-c", _LOADED, "remember", "-"],
            env=machine.environment | {"CRYSTAL_HOME": str(machine.home)},
            input="The crane is green.",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert result.returncode != 0
    assert "private" in result.stderr


def test_standard_input_is_read_again_by_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("The crane is green."))
    assert not remember_plain.remembered(["-"], str(tmp_path))
    assert sys.stdin.read() == "The crane is green."


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [""],
        ["one", "two"],
        ["--merge", "one"],
        ["--supersedes", "a1", "one"],
        ["--project", "x", "one"],
        ["--help"],
        ["--scope"],
    ],
)
def test_what_is_not_plain_is_left_to_the_command(arguments: list[str]) -> None:
    assert remember_plain.request_of(arguments)[0] is None


def test_what_follows_two_dashes_is_the_text() -> None:
    request, as_json = remember_plain.request_of(
        ["--keep-both", "--json", "--category=preference", "--", "--json"]
    )
    assert as_json
    assert request is not None
    assert (request["text"], request["keep_both"], request["category"]) == ("--json", True, "preference")


def test_the_command_line_of_the_http_library_is_not_loaded(machine: Machine) -> None:
    program = _LOADED.replace('"httpx", ', "").replace("heavy &", '{"httpx", "pygments"} &')
    finished = subprocess.run(
        [sys.executable, "-c", program, "sync"],
        env=machine.environment | {"CRYSTAL_HOME": str(machine.home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert finished.stderr.rsplit(maxsplit=1)[-1] == "httpx"
