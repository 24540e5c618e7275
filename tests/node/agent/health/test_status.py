"""`crystal status`, as whoever wonders what is going on asks it: with the relay down, beside others, and followed along."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from crystal_node.base.locking import FileLock
from tests.support.clocks import DAY, ClockedMachine
from tests.support.machine import Machine, Vault, transcript
from tests.support.relay_process import RelayProcess
from tests.support.terminal import Terminal
from tests.support.watchers import watchers


def document(machine: Machine) -> dict[str, Any]:
    return machine.call("status", "--json").json


def names(machine: Machine) -> set[str]:
    return {each["name"] for each in document(machine)["stuck"]}


@pytest.fixture
def nowhere() -> Generator[str]:
    """The address of a relay that is down."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@contextmanager
def following(machine: Machine, *arguments: str) -> Generator["subprocess.Popen[str]"]:
    process = machine.start("status", "--watch", *arguments)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_relay_that_is_down_is_told_with_since_when_and_what_waits(vault: Vault, nowhere: str) -> None:
    node = vault.add()
    node.call("remember", "Said while the relay was down.")
    assert node.call("sync", check=False, CRYSTAL_RELAY_URL=nowhere).code == 4
    told = document(node)
    assert names(node) == {"relay"}
    assert (told["sync"]["ok"], told["sync"]["exit_code"]) == (False, 4)
    assert told["sync"]["failing_since"]
    assert told["channels"]["conversations"]["unsent"] == 1
    said = node.call("status").out
    assert "The relay could not be reached for" in said
    assert "waits here" in said
    node.call("sync")
    assert document(node)["sync"]["ok"] is True
    assert names(node) == set()


def test_devices_are_listed_with_their_lag_and_the_core_by_its_name(vault: Vault) -> None:
    laptop, phone = vault.add(), vault.add()
    laptop.call("remember", "The first one.")
    vault.settle()
    transcript(laptop, "One more.")
    laptop.call("capture")
    for machine in (laptop, vault.core, laptop):
        machine.call("sync")
    rows = document(laptop)["devices"]
    behind = {row["id"]: row["behind"] for row in rows}
    assert behind[document(laptop)["device"]] == 0
    assert behind[document(phone)["device"]] > 0
    assert [row["role"] for row in rows].count("core") == 1
    said = laptop.call("status").out
    assert ", the Core: heard of" in said
    assert " behind" in said
    phone.call("devices")
    mirror = document(phone)["channels"]["mirror"]
    assert mirror["behind"] == 1
    assert mirror["oldest_seconds"] >= 0
    assert "; 1 change behind, the oldest for " in phone.call("status").out


def test_a_transcript_that_cannot_be_read_is_told_until_it_is_looked_at_again(vault: Vault) -> None:
    path = transcript(vault.core, "Readable.")
    link = path.with_name("link.jsonl")
    link.symlink_to(path)
    vault.core.call("capture", str(path), str(link))
    assert names(vault.core) == {"capture"}
    vault.core.call("capture")
    assert names(vault.core) == set()


@pytest.fixture
def clocked(relay: RelayProcess, tmp_path: Path) -> Vault:
    """A vault of machines with clocks of their own."""
    return Vault(relay, tmp_path, ClockedMachine)


def test_a_core_that_sleeps_for_days_is_told_by_name_with_what_waits_for_it(clocked: Vault) -> None:
    node = clocked.add()
    clocked.settle()
    assert isinstance(node, ClockedMachine)
    node.clock.set(3 * DAY)
    node.call("remember", "Said while the Core slept.")
    node.call("sync")
    told = [each for each in document(node)["stuck"] if each["name"] == "core"]
    assert len(told) == 1
    assert "was last heard of 3 days ago" in told[0]["text"]
    assert "1 change of this device lie" in told[0]["text"]
    assert "crystal promote" in told[0]["remedy"]
    clocked.core.call("sync")
    node.call("sync")
    assert document(node)["outbox"]["pending"] == 0


def test_a_clock_that_was_set_back_is_told_by_status_and_doctor(clocked: Vault) -> None:
    core = clocked.core
    core.call("sync")
    assert isinstance(core, ClockedMachine)
    core.clock.set(-5 * DAY)
    assert "clock" in names(core)
    assert "5 days behind its own notes" in core.call("status").out
    checks = {
        check["name"]: check
        for check in core.call("doctor", "--json", "--offline", check=False).json["checks"]
    }
    assert checks["clock here"]["state"] == "warning"


def test_a_command_that_was_asked_for_is_open_until_its_result_is_here(vault: Vault) -> None:
    node = vault.add()
    vault.settle()
    assert document(node)["channels"]["commands"] is None
    node.call("run", "status", "--on", "core", "--seconds", "1", check=False)
    assert document(node)["channels"]["commands"]["asked"] == 1
    assert "1 asked and open" in node.call("status").out


def test_a_database_of_another_part_that_is_damaged_hides_nothing_else(vault: Vault) -> None:
    for name in ("commands.db", "works.db"):
        (vault.core.home / "state" / name).write_bytes(b"\x55" * 9_000)
        (vault.core.home / "state" / name).chmod(0o600)
    told = document(vault.core)
    assert [each["name"] for each in told["stuck"]] == ["database", "database"]
    assert told["role"] == "core"


def test_who_watches_is_named_with_its_process(vault: Vault) -> None:
    with watchers(vault.core):
        told = document(vault.core)
        assert told["watching"] is True
        assert told["background"]["what"] == "crystal sync --watch"
        assert isinstance(told["background"]["pid"], int)


def test_followed_by_a_program_each_change_is_one_document_and_time_alone_is_none(vault: Vault) -> None:
    with following(vault.core, "--json") as process:
        first = json.loads(line(process))
        vault.core.call("remember", "A change.")
        second = json.loads(line(process))
    assert (first["outbox"]["pending"], second["outbox"]["pending"]) == (0, 1)


def test_followed_without_a_terminal_each_change_is_a_line(vault: Vault) -> None:
    with following(vault.core) as process:
        while "recovery show" not in line(process):
            pass
        vault.core.call("remember", "A change.")
        lines = [line(process), line(process)]
    assert any("outbox: 1 not sent" in each for each in lines)


def test_followed_on_a_terminal_it_is_drawn_in_place_until_ctrl_c(vault: Vault) -> None:
    terminal = Terminal(vault.core, "status", "--watch")
    terminal.until("Ctrl-C ends this.")
    terminal.stop()
    assert terminal.end() == 0


def test_a_wrong_word_of_another_process_does_not_break_it(vault: Vault) -> None:
    """The lock's note is cut, or was never written: a full disk takes no notes."""
    lock = vault.core.home / "state" / "watch.lock"
    with FileLock(lock, purpose="crystal sync --watch"):
        Path(lock).write_bytes(b"\xff\xfe no number")
        told = document(vault.core)["background"]
    assert (told["running"], told["pid"]) == (True, None)


def test_it_loads_nothing_that_only_rounds_and_searches_need(vault: Vault) -> None:
    """Measured: 0.2 s from a cold process, of which the half is loading. It is asked for often, by people who wait."""
    program = (
        "import sys; from crystal_node.surfaces.cli import main; main(['status']); "
        "sys.stderr.write(' '.join(sorted(name for name, each in sys.modules.items() if each)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=vault.core.environment,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    heavy = {
        "numpy",
        "onnxruntime",
        "httpx",
        "httpcore",
        "rich",
        "asyncio",
        "apscheduler",
        "typer",
        "click",
        "pathspec",
    }
    rules = {"crystal_node.capture.credentials", "crystal_node.base.secret_files"}
    assert not (heavy | rules) & set(done.stderr.split())


@pytest.mark.parametrize("name", ["memory/crystal.db", "state/state.db", "state/files.db", "state/jobs.db"])
def test_it_waits_for_nobody_who_writes(name: str, vault: Vault) -> None:
    vault.core.call("sync")
    vault.core.call("jobs", "run", "artefacts", check=False)
    other = apsw.Connection(str(vault.core.home / name))
    other.execute("BEGIN IMMEDIATE")
    try:
        started = time.monotonic()
        assert document(vault.core)["role"] == "core"
        assert time.monotonic() - started < 5, "the shortest wait for a lock is longer"
    finally:
        other.execute("ROLLBACK")
        other.close()


def test_recording_that_was_turned_off_is_told(vault: Vault) -> None:
    assert document(vault.core)["capture"] == {"on": True, "without": [], "tools": []}
    vault.core.call("capture", "off", "codex")
    assert "capture  no AI tool is found here; not of codex" in vault.core.call("status").out
    for folder in (".codex", ".qwen"):
        (vault.core.root / folder).mkdir()
    assert document(vault.core)["capture"]["tools"] == ["codex", "qwen-code"]
    assert "capture  qwen-code; not of codex" in vault.core.call("status").out
    assert "qwen-code; not of codex" in vault.core.run("doctor").out
    vault.core.call("capture", "off")
    assert document(vault.core)["capture"]["on"] is False
    assert "capture  OFF" in vault.core.call("status").out
