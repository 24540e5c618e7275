"""A plain `search` that the agent answers loads next to nothing, and says what the command itself says."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from crystal_core.search.by import By
from crystal_node.base.home import Home
from crystal_node.device.access import TEXTS, Access, note_access
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.journal_values import journal_path
from crystal_node.search.finding.documents import SearchRequest
from crystal_node.surfaces.cli.search_plain import request_of
from tests.support.local_api import served
from tests.support.machine import Machine

_LOADED = """
import sys
from crystal_node.surfaces.cli import main
main(sys.argv[1:])
heavy = {"typer", "rich", "numpy", "cryptography", "asyncio", "crystal_core.database", "crystal_node.base.settings"}
heavy |= {"crystal_mirror", "httpx", "typing_extensions", "inspect", "dataclasses", "hashlib"}
if "--json" in sys.argv:
    heavy |= {"msgspec", "apsw"}
sys.stderr.write(" ".join(sorted(heavy & set(sys.modules))))
"""


def asked_of(*arguments: str) -> SearchRequest | None:
    request = request_of([*arguments, "--json"])
    return None if request is None else msgspec.convert(request, SearchRequest)


def test_plain_arguments_make_the_request_that_the_command_makes() -> None:
    assert asked_of("retry", "budget") == SearchRequest(query="retry budget")
    assert asked_of(
        "-n", "3", "retry", "--since=7d", "--fast", "--kind", "memory", "--explain"
    ) == msgspec.convert(
        {"query": "retry", "limit": 3, "since": "7d", "depth": "fast", "kind": "memory", "explain": True},
        SearchRequest,
    )
    assert asked_of("--by", "message", "--thinking", "retry") == SearchRequest(
        query="retry", by=By.MESSAGE, thinking=True
    )
    assert request_of(["--json", "--", "--fast", "-x"]) == {"query": "--fast -x"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json"],
        [],
        ["--deep", "retry"],
        ["--page", "2", "retry"],
        ["--json", " "],
        ["--json", "--deep", "retry"],
        ["--json", "--provider", "openai", "retry"],
        ["--json", "--page", "2", "retry"],
        ["--json", "-n", "-1", "retry"],
        ["--json", "-n", "ten", "retry"],
        ["--json", "--since", "", "retry"],
        ["--json", "--agent", "--fast", "retry"],
        ["--json", "retry", "--agent"],
        ["--json", "--help"],
        ["--json", "--debug", "retry"],
        ["--json", "--quer", "retry"],
    ],
)
def test_what_is_not_plain_is_left_to_the_command(arguments: list[str]) -> None:
    assert request_of(arguments) is None


def test_the_answer_is_the_command_s_and_costs_few_imports(memory: Machine) -> None:
    arguments = ["search", "--json", "--fast", "crane"]
    alone = json.loads(memory.call(*arguments).out)
    of_the_command = memory.call("search", "--json", "--fast", "--page", "1", "crane").json
    with served(memory):
        finished = _watched(memory, *arguments)
    answered = json.loads(finished.stdout)
    del alone["took_ms"], answered["took_ms"], of_the_command["took_ms"]
    assert answered == alone
    assert answered["results"]
    assert answered == of_the_command
    assert list(answered) == list(alone) == list(of_the_command)
    assert finished.stderr == ""


def test_people_read_what_the_command_prints_and_it_costs_few_imports(memory: Machine) -> None:
    plain = ["search", "--fast", "--explain", "crane"]
    alone = memory.call(*plain)
    of_the_command = memory.call(*plain, "--page", "1")
    with served(memory):
        finished = _watched(memory, *plain)
    assert finished.stdout == alone.out == of_the_command.out
    assert "crane" in finished.stdout
    assert "by words" in finished.stdout
    assert finished.stderr == alone.err == of_the_command.err


def test_a_search_without_the_service_loads_no_cryptography_and_no_parser(memory: Machine) -> None:
    """Measured: 10 ms each of 340."""
    finished = _watched(memory, "search", "crane")
    assert "crane" in finished.stdout
    assert {"numpy", "crystal_core.database"} <= set(finished.stderr.split())
    assert not {"typer", "rich", "cryptography", "asyncio", "httpx"} & set(finished.stderr.split())


def test_a_plain_search_says_that_this_device_was_revoked(memory: Machine) -> None:
    journal = SqliteJournal.open(memory.home / "state" / "state.db")
    note_access(journal, Access.REVOKED)
    try:
        with served(memory):
            finished = _watched(memory, "search", "--fast", "crane")
            for_programs = _watched(memory, "search", "--fast", "--json", "crane")
    finally:
        note_access(journal, Access.OPEN)
        journal.close()
    assert TEXTS[Access.REVOKED] in finished.stderr
    assert TEXTS[Access.REVOKED] not in for_programs.stderr


def test_reminders_read_the_journal_of_the_home(tmp_path: Path) -> None:
    assert journal_path(str(tmp_path)) == Home(tmp_path).state_database


def _watched(memory: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A call as a process, which says on standard error what it loaded of what costs much."""
    return subprocess.run(
        [sys.executable, "-c", _LOADED, *arguments],
        env=memory.environment | {"CRYSTAL_HOME": str(memory.home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_what_cannot_be_searched_is_said_as_the_command_says_it(memory: Machine) -> None:
    refused = memory.call("search", "--json", "--kind", "letter", "crane", check=False)
    assert (refused.code, refused.out) == (2, "")
    assert "'letter' is no kind of result" in refused.err
    refused = memory.call("search", "--json", "--by", "letter", "crane", check=False)
    assert (refused.code, refused.out) == (2, "")
    assert "'letter' is no way to search" in refused.err
    refused = memory.call("search", "--json", "--since", "whenever", "crane", check=False)
    assert (refused.code, refused.out) == (2, "")
    assert json.loads(refused.err)["exit_code"] == 2
    for arguments in (["--json"], ["--json", "--page", "1"]):
        refused = memory.call("search", *arguments, "crane\udcff", check=False)
        assert (refused.code, refused.error["error"]) == (2, "the query has bytes that are no UTF-8")


def test_a_home_that_is_none_is_said_as_the_command_says_it(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "crystal_node", "search", "--json", "crane"],
        env={"CRYSTAL_HOME": str(tmp_path / "none"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.stdout == ""
    failure = json.loads(finished.stderr)
    assert finished.returncode == failure["exit_code"] != 0
    assert failure["hint"]
