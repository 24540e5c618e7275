"""Two processes on one file at once: every operation once, digests true, nobody fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from crystal_core.database import Database
from crystal_core.schema import MIGRATIONS
from tests.core.builders import DEVICE, INCARNATION, new_replica, texts

WORKER = """
import sys
from crystal_mirror.types import Origin
from tests.core.builders import capture, forget, new_replica, origin, windows

path, name = sys.argv[1], sys.argv[2]
replica = new_replica(path)
applied = 0
for sequence in range(60):
    place = origin(sequence)
    with replica.transaction() as transaction:
        if transaction.done(place):
            continue
        operation = capture(f"text {sequence}", "a text of both", session=f"{sequence}")
        transaction.apply(place, operation, windows)
        transaction.apply(place, forget(f"text {sequence - 5}"), windows)
        transaction.mark_done(place)
        applied += 1
    replica.index_provisional(origin(1000 + sequence), capture(f"pending {sequence}", session=name))
    if sequence % 2:
        replica.drop_provisional(origin(1000 + sequence))
print(applied)
"""


def start(script: str, *arguments: str) -> "subprocess.Popen[str]":
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(workers: list["subprocess.Popen[str]"]) -> list[str]:
    outputs: list[str] = []
    for worker in workers:
        output, errors = worker.communicate(timeout=60)
        assert worker.returncode == 0, errors
        outputs.append(output)
    return outputs


def test_two_processes_apply_each_operation_once(tmp_path: Path) -> None:
    """Neither exists beforehand: they also race to make the file."""
    path = tmp_path / "crystal.db"
    outputs = finish([start(WORKER, str(path), name) for name in ("one", "two", "three")])
    assert sum(int(output) for output in outputs) == 60
    replica = new_replica(path)
    assert replica.ack(DEVICE, INCARNATION) == 59
    assert replica.digest() == replica.recompute_digest()
    assert replica.database.check() == []
    assert texts(replica.database) == {"a text of both", *(f"text {i}" for i in range(55, 60))}
    replica.close()


KILLED = """
import sys
from tests.core.builders import capture, forget, new_replica, origin, windows
replica = new_replica(sys.argv[1])
print("ready", flush=True)
sequence = replica.ack(origin(0).device, origin(0).incarnation) + 1
while True:
    with replica.transaction() as transaction:
        for _ in range(5):
            transaction.apply(origin(sequence), capture(*(f"{sequence} {i} word" for i in range(20))), windows)
            if sequence > 3:
                transaction.apply(origin(sequence), forget(f"{sequence - 3} 7 word"), windows)
            transaction.mark_done(origin(sequence))
            sequence += 1
    print(sequence, flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.003, 0.01, 0.02, 0.05])
def test_a_process_killed_at_any_moment_leaves_whole_transactions(tmp_path: Path, delay: float) -> None:
    path = tmp_path / "crystal.db"
    for _ in range(3):
        worker = start(KILLED, str(path))
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        told = 0
        for _ in range(3):
            told = int(worker.stdout.readline())
        try:
            worker.wait(timeout=delay or 0.000_1)
        except subprocess.TimeoutExpired:
            worker.kill()
        rest, _ = worker.communicate(timeout=30)
        told = max([told, *(int(line) for line in rest.split("\n")[:-1] if line)])
        replica = new_replica(path)
        ack = replica.ack(DEVICE, INCARNATION)
        assert ack >= told - 1, "what was reported is on the disk"
        assert (ack + 1) % 5 == 0, "five operations commit together"
        assert replica.digest() == replica.recompute_digest()
        assert replica.database.check() == []
        assert len(texts(replica.database)) == (ack + 1) * 20 - max(ack - 3, 0)
        replica.close()


OPENED = """
import sys
from crystal_core.database import Database
from crystal_core.schema import MIGRATIONS
print(Database.open(sys.argv[1]).value("PRAGMA user_version"))
"""


def test_opening_while_another_makes_the_file(tmp_path: Path) -> None:
    for attempt in range(3):
        path = tmp_path / f"{attempt}.db"
        outputs = finish([start(OPENED, str(path)) for _ in range(4)])
        assert outputs == [f"{len(MIGRATIONS)}\n"] * 4
        with Database.open(path) as database:
            assert database.check() == []
