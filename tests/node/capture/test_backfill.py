"""`crystal backfill`: what it counts, what it records, and what stays out for good."""

import asyncio
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from unittest import mock

import pytest

from crystal_node.base.errors import UsageError
from crystal_node.base.settings import resolve
from crystal_node.capture.adapter import encode_state
from crystal_node.capture.backfill import BackfillRequest, backfill
from crystal_node.capture.tools import adapters_of, discovered
from crystal_node.device.device import opened
from tests.support.machine import Machine, Vault, transcript, turn
from tests.support.workbench import quick_folder


@pytest.fixture
def core(vault: Vault) -> Machine:
    return vault.core


def step_over(machine: Machine) -> None:
    """What stands in transcripts by now is stepped over, as after `crystal up --from-now`."""
    with (
        mock.patch.dict(os.environ, machine.environment, clear=True),
        opened(resolve()) as device,
        device.journal.transaction() as journal,
    ):
        for adapter, found in discovered(adapters_of(device.settings, device.settings.person_home)):
            journal.set_file_state(str(found.path.absolute()), encode_state(adapter.skip(found.path)))


def test_a_dry_run_counts_and_records_nothing(core: Machine) -> None:
    transcript(core, "one", "two", name="a")
    transcript(core, "three", name="b")
    counted = core.call("backfill", "--dry-run", "--json").json
    assert (counted["files"], counted["messages"], counted["new"], counted["taken"]) == (2, 3, 3, 0)
    assert counted["tools"] == {"claude-code": 2}
    assert counted["bytes"] > 500
    assert counted["estimate"]["send_bytes"] > 0
    assert core.call("capture", "--json").json["messages"] == 3


def test_it_says_what_it_comes_to_and_asks(core: Machine) -> None:
    transcript(core, "one", "two")
    refused = core.call("backfill", check=False, typed="no\n")
    assert refused.code == 2
    assert "new          2 parts" in refused.out
    assert core.found("one") == []
    assert "Recorded 2 parts." in core.call("backfill", typed="backfill\n").out
    assert core.found("one") == ["one"]


def test_what_recording_stepped_over_is_read_and_what_it_recorded_is_not_recorded_twice(
    core: Machine,
) -> None:
    transcript(core, "said before Crystal came")
    step_over(core)
    transcript(core, "said afterwards")
    assert core.call("capture", "--json").json["messages"] == 1
    assert core.found("before Crystal") == []
    done = core.call("backfill", "--yes", "--json").json
    assert (done["chunks"], done["already_recorded"], done["taken"]) == (2, 1, 1)
    assert core.found("before Crystal") == ["said before Crystal came"]
    again = core.call("backfill", "--yes", "--json").json
    assert (again["already_recorded"], again["new"], again["taken"]) == (2, 0, 0)
    assert core.call("capture", "--json").json["messages"] == 0
    core.call("sync")
    assert core.call("backfill", "--dry-run", "--json").json["new"] == 0


def test_a_limit_ends_it_and_the_next_run_goes_on_until_all_is_there(core: Machine) -> None:
    transcript(core, *(f"number {number}" for number in range(7)))
    taken: list[int] = []
    for _ in range(4):
        done = core.call("backfill", "--yes", "--json", "--limit", "3").json
        taken.append(done["taken"])
    assert taken == [3, 3, 1, 0]
    assert core.call("backfill", "--dry-run", "--json").json["already_recorded"] == 7


def test_what_was_private_or_forgotten_stays_out(core: Machine) -> None:
    path = transcript(core, "A thing to forget.")
    core.call("capture")
    (hit,) = core.call("search", "--json", "thing to forget").json["results"]
    core.call("forget", hit["id"])
    core.call("sync")
    core.call("private", "on")
    now = datetime.now(UTC).isoformat()
    with path.open("a", encoding="utf-8") as file:
        file.write(turn("A private thing.", session="session", moment=now))
        file.write(turn("A private thing without a time.", session="session", moment=""))
    outcome = core.call("backfill", "--yes", check=False)
    assert outcome.code == 2
    assert "private" in outcome.err
    core.call("private", "off")
    done = core.call("backfill", "--yes", "--json").json
    assert (done["taken"], done["forgotten"], done["skipped_reasons"]["private"]) == (0, 1, 2)
    for words in ("private thing", "forget"):
        assert core.found(words) == []


def test_an_agent_or_a_tool_can_be_named_and_one_that_is_off_is_not_read(core: Machine) -> None:
    transcript(core, "said in Claude Code")
    assert core.call("backfill", "--dry-run", "--json", "--tool", "codex").json["files"] == 0
    assert core.call("backfill", "--dry-run", "--json", "--agent", "somebody").json["files"] == 0
    assert core.call("backfill", "--dry-run", "--json", "--agent", "cc-mini").json["files"] == 1
    assert core.call("backfill", "--tool", "unheard-of", check=False).code == 2
    off = core.call("backfill", "--tool", "claude-code", check=False, CRYSTAL_CAPTURE_WITHOUT="claude-code")
    assert off.code == 2
    assert core.call("backfill", check=False, CRYSTAL_CAPTURE="no").code == 2


def test_what_was_turned_off_while_the_process_goes_on_is_not_read(core: Machine) -> None:
    transcript(core, "one")
    with mock.patch.dict(os.environ, core.environment, clear=True), opened(resolve()) as device:
        core.call("capture", "off", "claude-code")
        assert asyncio.run(backfill(device, BackfillRequest())).files == 0
        core.call("capture", "off")
        with pytest.raises(UsageError):
            asyncio.run(backfill(device, BackfillRequest()))
    assert core.found("one") == []


def test_credentials_are_blanked_out_and_counted(core: Machine) -> None:
    transcript(core, "the key is " + "sk-ant-" + "api03-" + "a1B2c3D4" * 11 + "AA")
    done = core.call("backfill", "--yes", "--json").json
    assert done["redacted"] == 1


def test_killed_around_any_write_the_next_run_records_the_rest_and_nothing_twice(core: Machine) -> None:
    for name in ("a", "b", "c"):
        transcript(core, *(f"{name} says {number}" for number in range(3)), name=name)
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        result = subprocess.run(
            [sys.executable, "-m", "tests.node.capture.killed_backfill", folder, str(core.root)],
            capture_output=True,
            encoding="utf-8",
            timeout=110,
            check=False,
        )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 10
