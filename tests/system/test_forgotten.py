"""A text that was forgotten is nowhere after seven days: not in any byte of any device's home, nor of the relay's disk, sealed
or not. Found by opening everything with every key, and by looking for the very bytes that had held it."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from unittest import mock

import pytest

from crystal_mirror.membership.member import Member
from crystal_node.base.settings import resolve
from crystal_node.device.device import opened
from tests.mirror.revealing import contents, entries
from tests.support.clocks import Clock, ClockedMachine
from tests.support.machine import Machine, Vault, transcript
from tests.support.relay_process import RelayProcess

MARKER = "The password of the old lighthouse is guillemot-forty-two"
REMEMBERED = f"{MARKER}, said the keeper."
SAID = f"Please note: {MARKER}."
LATE = f"From a laptop that was away: {MARKER}!"
SLICE = 48
"""Bytes of ciphertext by which a sealed object is known again on the relay's disk."""


@pytest.fixture
def clocked(tmp_path: Path) -> Generator[Vault]:
    clock = Clock(tmp_path / "relay-clock")
    relay = RelayProcess(tmp_path / "relay" / "store", environment=clock.environment)
    relay.start()
    try:
        vault = Vault(relay, tmp_path / "devices", ClockedMachine)
        vault.add()
        vault.add()
        yield vault
    finally:
        relay.stop()


def _objects(relay: RelayProcess) -> Iterator[tuple[str, bytes]]:
    """What the relay has, by key."""
    (database,) = [path for path in relay.directory.rglob("*") if path.name.endswith((".db", ".sqlite"))]
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        for key, body, file in connection.execute("SELECT key, body, file FROM object").fetchall():
            (path,) = relay.directory.rglob(Path(file).name) if body is None else (None,)
            content: object = body if path is None else path.read_bytes()
            assert isinstance(content, bytes)
            yield key, content
    finally:
        connection.close()


def _member_holds(member: Member, home: Path) -> list[str]:
    """Where the device's own databases hold the marker, opened with all of its keys."""
    found: list[str] = []
    for path in sorted(home.rglob("*.db")):
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            tables = [
                name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            ]
            for table in tables:
                try:
                    rows = connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608
                except sqlite3.OperationalError:
                    continue  # a table of an extension; its rows lie in others, too
                held = any(_reveals(member, value) for row in rows for value in row)
                found += [f"{path.name} {table}"] * held
        finally:
            connection.close()
    return found


def _reveals(member: Member, value: object) -> bool:
    if isinstance(value, str):
        return MARKER in value
    if not isinstance(value, bytes):
        return False
    return MARKER.encode() in value or any(MARKER.encode() in content for content in entries(member, value))


def _homes_hold(vault: Vault) -> list[str]:
    found: list[str] = []
    for machine in vault.machines:
        files = (path for path in sorted(machine.home.rglob("*")) if path.is_file())
        plain = [path for path in files if MARKER.encode() in path.read_bytes()]
        found += [f"{machine.root.name}: {path.relative_to(machine.home)}" for path in plain]
        with mock.patch.dict(os.environ, machine.environment, clear=True), opened(resolve()) as device:
            found += [f"{machine.root.name}: {where}" for where in _member_holds(device.member, machine.home)]
    return found


def _relay_holds(vault: Vault) -> dict[str, bytes]:
    """The objects that hold the marker, as any device can open them: key to bytes."""
    with mock.patch.dict(os.environ, vault.core.environment, clear=True), opened(resolve()) as device:
        return {
            key: data
            for key, data in _objects(vault.relay)
            if any(MARKER.encode() in content for content in contents(device.member, key, data))
        }


def _disk_holds(relay: RelayProcess, sealed: dict[str, bytes]) -> list[str]:
    """Those of the objects of which bytes are still anywhere on the relay's disk."""
    disk = [path.read_bytes() for path in sorted(relay.directory.rglob("*")) if path.is_file()]
    return [
        key
        for key, data in sealed.items()
        if any(data[len(data) // 2 : len(data) // 2 + SLICE] in content for content in disk)
    ]


def _go_to(vault: Vault, tmp_path: Path, hours: int) -> None:
    for machine in vault.machines:
        assert isinstance(machine, ClockedMachine)
        machine.clock.set(hours * 3600)
    (tmp_path / "relay-clock" / "offset").write_text(str(hours * 3600))


def _sweep(vault: Vault, tmp_path: Path) -> None:
    """What the relay does by itself every minute."""
    store = vault.relay.directory.absolute().as_uri()
    subprocess.run(
        [sys.executable, "-m", "crystal_relay", "sweep", "--store", store],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "relay-clock")},
        check=True,
        capture_output=True,
    )


def _forget_all(machine: Machine) -> None:
    hits = machine.call("search", "--json", "lighthouse guillemot").json["results"]
    ids = [hit["id"] for hit in hits if MARKER in hit["text"]]
    assert ids
    machine.call("forget", *ids)


@pytest.mark.slow
def test_a_forgotten_text_is_nowhere_after_seven_days(clocked: Vault, tmp_path: Path) -> None:
    core, (laptop, tablet) = clocked.core, clocked.nodes
    core.call("remember", "The lamp is lit at sunset.")
    core.call("remember", REMEMBERED)
    transcript(laptop, SAID, "And nothing else.")
    laptop.call("capture")
    clocked.settle()
    core.call("snapshot")
    core.call("jobs", "run", "artefacts")
    clocked.settle()
    assert list(laptop.home.glob("agents/*/memory/transcripts/*.jsonl")), "files hold it, too"
    (laptop.home / "memory" / "crystal.db.schema-1").write_bytes(b"as it was before: " + REMEMBERED.encode())
    transcript(tablet, LATE, SAID)
    tablet.call("capture")  # and it is not sent
    assert len(_homes_hold(clocked)) > 8, "the search finds what is there"
    _forget_all(core)
    sealed = _relay_holds(clocked)
    for day in range(10):
        machines = clocked.machines if day >= 2 else [core, laptop]
        for hours in (0, 2, 4):
            _go_to(clocked, tmp_path, 24 * day + hours)
            for machine in [*machines, core] if hours == 0 else [core]:
                machine.call("sync")
                sealed |= _relay_holds(clocked)
        if day == 2:
            assert any("conversations" in key for key in _relay_holds(clocked)), (
                "the tablet was away, and sent it"
            )
            _forget_all(core)
        _sweep(clocked, tmp_path)
    assert len(sealed) > 5, "the search finds what is there"
    assert _homes_hold(clocked) == []
    assert _relay_holds(clocked) == {}
    assert len(clocked.digests()) == 1
    assert laptop.found("lamp lit sunset")
    assert clocked.relay.stop() == 0
    assert _disk_holds(clocked.relay, sealed) == []
