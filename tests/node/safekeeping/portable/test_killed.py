"""Whoever is killed while a memory goes out, comes in or is taken over loses nothing, and what was decided stays so."""

import json
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from crystal_core.memories import MemoryStatus, memory
from crystal_mirror.operations import Forget, PutDocument, PutSource, Remember
from crystal_node.base.settings import resolve
from crystal_node.device.device import Device, opened
from crystal_node.safekeeping.portable import record_import
from crystal_node.safekeeping.portable.export import export
from crystal_node.safekeeping.portable.export_format import MemoryRecord
from crystal_node.safekeeping.portable.importer import import_export
from crystal_node.safekeeping.portable.record_import import RecordImporter
from crystal_prototype.home import takeover
from tests.prototype.home import prototypes
from tests.support.machine import Machine, Vault
from tests.support.relay_process import RelayProcess

NOW = 1_700_000_000_000


class Killed(BaseException):
    pass


@pytest.fixture(scope="module")
def machines(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> list[Machine]:
    return [Vault(relay, tmp_path_factory.mktemp("vault")).core for _ in range(2)]


@contextmanager
def device_of(machine: Machine) -> Generator[Device]:
    with opened(resolve(None, machine.environment | {"CRYSTAL_HOME": str(machine.home)})) as device:
        yield device


def hash_of(text: str) -> bytes:
    return sha256(text.encode()).digest()


def status_of(device: Device, text: str) -> MemoryStatus:
    found = memory(device.replica.database, hash_of(text))
    assert found is not None
    return found.status


def test_a_retired_memory_never_comes_in_as_a_current_one(
    machines: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [MemoryRecord(text="It is so now.")]  # one operation, where each of the others takes two
    records += [
        MemoryRecord(text=f"It was so once, number {number}.", status="retired", created_at=number)
        for number in range(record_import.BATCH_OPERATIONS)
    ]
    with device_of(machines[0]) as device:
        accept = Device.accept

        def dying(self: Device, *arguments: object, **more: object) -> None:
            accept(self, *arguments, **more)  # type: ignore[arg-type]
            raise Killed

        while True:
            with monkeypatch.context() as kill:
                kill.setattr(Device, "accept", dying)
                taker = RecordImporter(device, dry_run=False)
                try:
                    taker.memories(iter(records))
                except Killed:
                    continue
                break
        assert {status_of(device, each.text) for each in records[1:]} == {MemoryStatus.RETIRED}


def test_what_a_forgotten_memory_took_the_place_of_does_not_come_back_by_an_export(
    machines: list[Machine], tmp_path: Path
) -> None:
    """Whether it was forgotten where the export was made, or where it comes in."""
    source, target = machines
    pairs = [("The office is in Ulm.", "The office is in Bonn."), ("The key is blue.", "The key is red.")]
    with device_of(source) as device:
        keyed = device.member.secret.forget_hash
        for old, new in pairs:
            device.accept([Remember(old, "fact", "a", NOW)])
            device.accept([Remember(new, "fact", "a", NOW, 100, (keyed(hash_of(old)),))])
        device.accept([Forget((keyed(hash_of(pairs[0][1])),))])
        export(device, tmp_path / "export")
    with device_of(target) as device:
        device.accept([Forget((device.member.secret.forget_hash(hash_of(pairs[1][1])),))])
        import_export(device, tmp_path / "export")
        for old, new in pairs:
            assert status_of(device, old) is not MemoryStatus.ACTIVE
            assert memory(device.replica.database, hash_of(new)) is None


def test_many_memories_that_one_took_the_place_of_all_stay_superseded(machines: list[Machine]) -> None:
    new = "All of these are one."
    records = [MemoryRecord(text=new)]
    records += [
        MemoryRecord(
            text=f"This is one, and is number {number}.",
            superseded_by=hash_of(new).hex(),
            status="superseded",
        )
        for number in range(40)
    ]
    with device_of(machines[0]) as device:
        RecordImporter(device, dry_run=False).memories(iter(records))
        assert {status_of(device, each.text) for each in records[1:]} == {MemoryStatus.SUPERSEDED}


def test_a_document_that_is_half_replaced_goes_out_as_neither_version(
    machines: list[Machine], tmp_path: Path
) -> None:
    with device_of(machines[0]) as device:
        device.accept([PutSource("half", "notes", (), (), NOW)])
        old, new = bytes([1]) * 32, bytes([2]) * 32
        device.accept([PutDocument("half", "a.md", old, NOW, "md", 0, 2, ("old one", "old two"), ("", ""))])
        device.accept([PutDocument("half", "a.md", new, NOW, "md", 0, 2, ("new one",), ("",))])
        export(device, tmp_path / "export")
    lines = [json.loads(line) for line in (tmp_path / "export" / "documents.jsonl").read_text().splitlines()]
    (found,) = [line for line in lines if line["source"] == "half"]
    assert [piece["text"] for piece in found["pieces"]] == ["new one", "old two"]
    assert found["version"] not in (old.hex(), new.hex())


def test_a_takeover_that_is_killed_while_it_takes_things_out_still_names_the_database(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prototypes.home(machine.home)
    left = machine.home.with_name(f".{machine.home.name}-prototype-20260101-000000.0123abcd")
    left.mkdir()
    (left / "half.md").write_text("half of a copy")
    out = shutil.rmtree
    where = prototypes.places_of(machine.home)

    def dying(path: Path, **more: Any) -> None:
        if Path(path).name == "state":
            raise Killed
        out(path, **more)

    with monkeypatch.context() as kill:
        kill.setattr(shutil, "rmtree", dying)
        with pytest.raises(Killed):
            takeover.take_over(where, datetime(2026, 1, 2, tzinfo=UTC), even_so=True)
    assert not left.exists()
    done = takeover.take_over(where, datetime(2026, 1, 3, tzinfo=UTC), even_so=True)
    assert done.database is not None
    assert done.database.is_file()
    assert not (machine.home / "config.json").exists()
