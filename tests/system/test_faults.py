"""What goes wrong outside of the program: relays, credentials, disks, clocks. A clear error or a quiet retry,
nothing lost."""

import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.bad_relay import ANSWERS, bad_relay
from tests.support.machine import Machine, Vault, transcript
from tests.support.relay_process import RelayProcess, running_relay
from tests.support.small_disk import grow, mounted_disk

pytestmark = pytest.mark.disk

_WORDS = "The anchor chain was replaced in spring."


def _everything_arrives(
    vault: Vault, node: Machine, query: str = "anchor chain", expected: str = _WORDS
) -> None:
    vault.settle()
    for machine in vault.machines:
        assert expected in machine.found(query)
    assert node.call("status", "--json").json["outbox"]["pending"] == 0
    assert len(vault.digests()) == 1


def test_with_the_relay_stopped_everything_but_sync_works_and_sync_says_why(vault: Vault) -> None:
    node = vault.add()
    vault.relay.stop()
    transcript(node, _WORDS)
    assert node.call("capture", "--json").json["messages"] == 1
    node.call("remember", "Remembered without a relay.")
    assert node.found("anchor chain")[:1] == [_WORDS]
    outcome = node.call("sync", "--json", check=False)
    assert (outcome.code, outcome.error["exit_code"]) == (4, 4)
    assert "cannot be reached" in outcome.error["error"]
    assert node.call("status", "--json").json["outbox"]["pending"] == 2
    vault.relay.start()
    _everything_arrives(vault, node)


@pytest.mark.parametrize("name", [*ANSWERS, "hang"])
def test_a_relay_that_answers_nonsense_or_hangs_is_an_error_within_bounds_and_nothing_is_lost(
    vault: Vault, name: str
) -> None:
    node = vault.add()
    transcript(node, _WORDS)
    node.call("capture")
    with bad_relay(ANSWERS.get(name)) as bad:
        outcome = node.call(
            "sync", "--json", check=False, CRYSTAL_RELAY_URL=bad.url, CRYSTAL_RELAY_TIMEOUT="1"
        )
        assert bad.requests
    assert outcome.code in (4, 6)
    assert outcome.error["hint"]
    _everything_arrives(vault, node)


def test_an_interrupted_sync_says_nothing_more_and_ends_as_interrupted(vault: Vault) -> None:
    node = vault.add()
    with bad_relay(None) as bad:
        process = node.start("sync", CRYSTAL_RELAY_URL=bad.url)
        deadline = time.monotonic() + 30
        while not bad.requests and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in out + err


def test_another_vaults_token_is_refused_and_pairing_again_mends_it(
    vault: Vault, relay: RelayProcess, tmp_path: Path
) -> None:
    node = vault.add()
    foreign = Vault(relay, tmp_path / "foreign").add()
    secrets = node.home / "state" / "secrets"
    own, theirs = (
        (machine.home / "state" / "secrets" / "relay-token").read_text() for machine in (node, foreign)
    )
    (secrets / "relay-token").write_text(theirs)
    node.call("remember", _WORDS)
    foreigner = node.call("sync", "--json", check=False)
    assert foreigner.code == 3, "a token that names another device is none of this one's"
    assert "no token" in foreigner.error["error"]
    # Nor does it get in under this device's own name.
    (secrets / "relay-token").write_text(f"{own.partition('.')[0]}.{theirs.partition('.')[2]}")
    outcome = node.call("sync", "--json", check=False)
    assert (outcome.code, outcome.error["exit_code"]) == (5, 5)
    assert "crystal pair" in outcome.error["hint"]
    assert node.call("status", "--json").json["outbox"]["pending"] == 1
    node.call("pair", "--code", "-", "--relay", relay.url, typed=vault.code())
    _everything_arrives(vault, node)


def test_another_vaults_identity_opens_nothing_and_destroys_nothing(
    vault: Vault, relay: RelayProcess, tmp_path: Path
) -> None:
    node = vault.add()
    node.call("remember", _WORDS)
    foreign = Vault(relay, tmp_path / "foreign").add()
    secret = node.home / "state" / "secrets" / "identity"
    own = secret.read_bytes()
    shutil.copy(foreign.home / "state" / "secrets" / "identity", secret)
    outcome = node.call("sync", "--json", check=False)
    assert outcome.code in (7, 8)
    assert outcome.error["hint"]
    secret.write_bytes(own)
    _everything_arrives(vault, node)


def test_a_home_with_another_vaults_memory_is_refused_untouched(
    vault: Vault, relay: RelayProcess, tmp_path: Path
) -> None:
    node = vault.add()
    foreign = Vault(relay, tmp_path / "foreign").core
    foreign.call("remember", "Somebody else's secret.")
    foreign.call("sync")
    database = node.home / "memory" / "crystal.db"
    for path in database.parent.iterdir():
        path.unlink()
    shutil.copy(foreign.home / "memory" / "crystal.db", database)
    before = database.read_bytes()
    outcome = node.call("sync", "--json", check=False)
    assert outcome.code == 7
    assert "another vault" in outcome.error["error"]
    assert database.read_bytes() == before


def test_a_relay_that_was_emptied_is_filled_again_once_its_vault_is_registered(
    vault: Vault, relay: RelayProcess
) -> None:
    node = vault.add()
    node.call("remember", _WORDS)
    vault.settle()
    relay.kill()
    shutil.rmtree(relay.directory)
    relay.start()
    assert node.call("sync", check=False).code == 5
    vault.core.call(
        "init", "--role", "core", "--relay", relay.url, "--yes", CRYSTAL_RELAY_ENROLL_TOKEN=relay.enroll_token
    )
    node.call("pair", "--code", "-", typed=vault.code())
    node.call("remember", "Said after the flood.")
    vault.settle()
    late = vault.add()
    vault.settle()
    assert late.found("anchor chain")[:1] == [_WORDS]
    assert vault.core.found("after the flood")[:1] == ["Said after the flood."]
    assert len(vault.digests()) == 1


@pytest.mark.parametrize("bytes_max", [40_000, 200_000])
def test_a_home_that_may_not_grow_says_so_and_loses_nothing(vault: Vault, bytes_max: int) -> None:
    node = vault.add()
    texts = [f"Reading {number}: {'the swell was moderate, ' * 40}" for number in range(60)]
    path = transcript(node, *texts)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, resource.RLIM_INFINITY))

    limited = subprocess.run(
        [sys.executable, "-m", "crystal_node", "capture", "--json"],
        env=node.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=limit,
    )
    assert limited.returncode == 8, limited.stdout + limited.stderr
    assert '"hint": "' in limited.stderr
    assert path.read_text().count("\n") == 60
    node.call("capture")
    vault.settle()
    assert vault.core.call("status", "--json").json["memory"]["places"] == 60
    assert len(vault.digests()) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of 1.5 MiB of its own."""
    with mounted_disk(tmp_path / "small", 1536) as folder:
        yield folder


def test_a_full_disk_on_a_device_is_named_and_all_is_there_once_there_is_room(
    vault: Vault, small_disk: Path
) -> None:
    node = Machine(small_disk)
    node.call("pair", "--code", "-", "--relay", vault.relay.url, typed=vault.code())
    vault.nodes.append(node)
    source = vault.folder / "talk"
    elsewhere = Machine(source)
    path = transcript(elsewhere, *(f"Log {number}: {'wind and weather, ' * 20}" for number in range(150)))
    (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free - 40_000))
    outcome = node.call("capture", str(path), "--json", check=False)
    assert (outcome.code, outcome.error["exit_code"]) == (8, 8)
    assert "room" in outcome.error["hint"] or "space" in outcome.error["hint"]
    grow(small_disk)
    node.call("capture", str(path))
    vault.settle()
    assert vault.core.call("status", "--json").json["memory"]["places"] == 150
    assert len(vault.digests()) == 1


def test_a_full_disk_at_the_relay_is_named_and_all_arrives_once_there_is_room(
    tmp_path: Path, small_disk: Path
) -> None:
    grow(small_disk)
    with running_relay(small_disk / "store") as relay:
        vault = Vault(relay, tmp_path / "devices")
        node = vault.add()
        noise = random.Random(1)
        transcript(node, *(f"Log {number}: {noise.randbytes(3000).hex()}" for number in range(300)))
        node.call("capture")
        (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free - 500_000))
        outcome = node.call("sync", "--json", check=False)
        assert (outcome.code, outcome.error["exit_code"]) == (8, 8), outcome
        assert "relay" in outcome.error["hint"]
        (small_disk / "ballast").unlink()
        assert node.call("sync", "--json").json["pushed_bytes"] > 0
        assert node.call("status", "--json").json["outbox"]["unsent"] == 0


@pytest.mark.parametrize("years", [-30, 40])
def test_a_clock_that_is_years_off_changes_nothing_but_what_is_shown(
    vault: Vault, tmp_path: Path, years: int
) -> None:
    (tmp_path / "skewed").mkdir()
    (tmp_path / "skewed" / "sitecustomize.py").write_text(
        "import time\n"
        f"_OFF = {years} * 31_557_600\n"
        "_time, _time_ns = time.time, time.time_ns\n"
        "time.time = lambda: _time() + _OFF\n"
        "time.time_ns = lambda: _time_ns() + _OFF * 1_000_000_000\n"
    )
    node = vault.add()
    node.extra["PYTHONPATH"] = str(tmp_path / "skewed")
    node.run("remember", _WORDS)
    node.run("sync")
    vault.core.call("sync")
    assert node.run("sync", "--json").json["durable"] == 1
    (hit,) = vault.core.call("search", "--json", "anchor chain").json["results"]
    assert hit["text"] == _WORDS
    assert node.run("search", "--json", "anchor chain").json["results"][0]["text"] == _WORDS
    node.run("forget", hit["id"])
    node.run("sync")
    vault.core.call("sync")
    node.run("sync")
    assert vault.core.found("anchor chain") == []
    assert node.run("status", "--json").json["outbox"]["pending"] == 0
    assert len(vault.digests()) == 1
