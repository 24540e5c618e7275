"""Several processes of one home at once, watchers that run for a while, and what the relay learns from all of
it."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.support.machine import Machine, Vault, transcript, turn
from tests.support.relay_process import RelayProcess
from tests.support.watchers import until, watchers


def test_two_syncs_and_captures_at_once_on_one_home_are_safe(vault: Vault) -> None:
    node = vault.add()
    for machine in vault.machines:
        transcript(
            machine,
            *(f"Entry {number} of {machine.root.name}." for number in range(20)),
            name=machine.root.name,
        )
    running = [
        machine.start(command, "--json")
        for machine in vault.machines
        for command in ("capture", "sync", "capture", "sync", "sync")
    ]
    for process in running:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, out + err
    vault.settle()
    for machine in vault.machines:
        status = machine.call("status", "--json").json
        assert (status["memory"]["places"], status["outbox"]["pending"]) == (40, 0)
        assert status["notices"] == []
    assert len(vault.digests()) == 1
    assert node.call("verify", "--json").json["ok"]


def test_watchers_carry_a_conversation_to_every_device_and_stop_cleanly(vault: Vault) -> None:
    laptop, tablet = vault.add(), vault.add()
    path = transcript(laptop, "The first line.", name="live")
    with watchers(*vault.machines, quiet=True) as running:
        until(lambda: tablet.found("first line") == ["The first line."], "the first line on the tablet")
        with path.open("a") as file:
            line = turn("The second line, written in two halves.", session="live")
            file.write(line[:40])
            file.flush()
            time.sleep(0.3)
            file.write(line[40:])
        until(
            lambda: "The second line, written in two halves." in tablet.found("second line"),
            "the second line",
        )
        made = tablet.call("remember", "--json", "A memory from the tablet.").json["id"]
        until(
            lambda: "A memory from the tablet." in laptop.found("memory tablet"), "the memory on the laptop"
        )
        laptop.call("forget", made)
        until(
            lambda: "A memory from the tablet." not in tablet.found("memory tablet"),
            "the forget on the tablet",
        )
        assert laptop.call("sync", "--json").code == 0, "a manual sync gets its turn beside a watcher"
        second = laptop.call("sync", "--watch", "--json", check=False)
        assert (second.code, second.error["exit_code"]) == (9, 9)
        assert f"process {running[1].pid}" in second.error["error"]
    until(lambda: not laptop.call("status", "--json").json["watching"], "the end of the watch")
    vault.settle()
    assert len(vault.digests()) == 1


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_watcher_outlives_its_relay_and_says_so_once_an_attempt(vault: Vault, relay: RelayProcess) -> None:
    node = vault.add()
    watcher = node.start("sync", "--watch", "--json")
    try:
        until(lambda: bool(node.call("status", "--json").json["watching"]), "a watcher")
        relay.kill()
        node.call("remember", "Said while the relay was away.")
        time.sleep(1.5)
        assert watcher.poll() is None
        relay.start()
        until(
            lambda: node.call("status", "--json").json["outbox"]["unsent"] == 0, "the outbox on the relay", 40
        )
        watcher.send_signal(signal.SIGINT)
        out, err = watcher.communicate(timeout=30)
    finally:
        if watcher.poll() is None:
            watcher.kill()
    assert watcher.returncode == 0
    failures = [json.loads(line) for line in err.splitlines()]
    assert 1 <= len(failures) <= 3
    assert all("trying again in" in failure["text"] for failure in failures)
    assert any(json.loads(line)["event"] == "recovered" for line in out.splitlines())


def test_nudging_is_quick_and_silent_with_or_without_a_watcher(
    vault: Vault, machine_without_home: Machine
) -> None:
    for machine in (vault.core, machine_without_home):
        outcome = machine.run("nudge")
        assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert not machine_without_home.home.exists()


@pytest.fixture
def machine_without_home(tmp_path: Path) -> Machine:
    (tmp_path / "bare").mkdir()
    return Machine(tmp_path / "bare")


_SECRET_WORDS = ("Zugspitzenwetterwarte", "quokkaharbour", "BlueHeronProject", "transcript-of-the-heron")


@pytest.fixture
def told(vault: Vault) -> Vault:
    """A vault whose devices have exchanged telling words: texts, file names, projects, device names, queries."""
    node = vault.add()
    node.call("pair", "--code", "-", "--name", "kingfisher-laptop", typed=vault.code())
    path = node.projects / "-home-me-BlueHeronProject" / "transcript-of-the-heron.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(turn(f"About {_SECRET_WORDS[0]}.", cwd=f"{node.root}/BlueHeronProject", session="heron"))
    node.call("capture")
    node.call("remember", f"Remember {_SECRET_WORDS[1]}.")
    vault.settle()
    assert vault.core.found(_SECRET_WORDS[0])
    return vault


def _needles(vault: Vault) -> dict[str, bytes]:
    """What must be nowhere at the relay, by name: words, names and every secret key of every device."""
    needles = {word: word.encode() for word in _SECRET_WORDS}
    for machine in vault.machines:
        needles[f"name of {machine.root.name}"] = json.loads((machine.home / "config.json").read_text())[
            "name"
        ].encode()
        for secret in (machine.home / "state" / "secrets").iterdir():
            if secret.name != "relay-token":
                data = secret.read_bytes()
                needles[f"{secret.name} of {machine.root.name}"] = data[-40:] if len(data) > 60 else data
                needles[f"{secret.name} of {machine.root.name} in hex"] = data[:32].hex().encode()
    host = os.uname().nodename.encode()
    return {name: needle for name, needle in needles.items() if len(needle) > 4 and needle != host}


def test_the_relays_folder_and_its_log_hold_no_text_no_name_and_no_key(
    told: Vault, relay: RelayProcess
) -> None:
    held = {path: path.read_bytes() for path in relay.directory.parent.rglob("*") if path.is_file()}
    assert sum(map(len, held.values())) > 50_000
    found = [
        (str(path), name)
        for path, data in held.items()
        for name, needle in _needles(told).items()
        if needle in data
    ]
    assert found == []
    assert [
        path
        for path in held
        if re.search("heron|kingfisher|jsonl", str(path).removeprefix(str(relay.directory)))
    ] == []
    token = (told.nodes[0].home / "state" / "secrets" / "relay-token").read_bytes()
    assert [str(path) for path, data in held.items() if token in data] == [], "tokens are kept as hashes"


def test_the_relays_memory_holds_no_text_no_name_and_no_key(told: Vault, relay: RelayProcess) -> None:
    needles = _needles(told)
    found: set[str] = set()
    looked = 0
    mapped = Path(f"/proc/{relay.pid}/mem")
    if not os.access(mapped, os.R_OK):
        pytest.skip("the memory of another process cannot be read here")
    with mapped.open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{relay.pid}/maps").read_text().splitlines():
            span, access = line.split()[:2]
            if not access.startswith("rw"):
                continue
            start, end = (int(part, 16) for part in span.split("-"))
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except (OSError, OverflowError, ValueError):
                continue
            looked += len(data)
            found.update(name for name, needle in needles.items() if needle in data)
    assert looked > 5_000_000
    assert found == set()
