"""`python -m tests.node.capture.killed_backfill DIRECTORY MACHINE`: processes that backfill die around each write.

``MACHINE`` is a machine's root that is set up and has transcripts; it is copied. Prints how many died. Raises when the next run
does not record the rest, or when anything was recorded twice.
"""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from crystal_mirror.operations import Capture, decode_operation
from crystal_node.base.settings import resolve
from crystal_node.device.device import Device, opened
from crystal_node.device.journal import SqliteJournal
from tests.support.dying_process import kill_at_each_step
from tests.support.machine import Machine

Step = Callable[[Callable[..., Any]], Callable[..., Any]]


def recorded(machine: Machine) -> Counter[str]:
    """The texts in the outbox, with how often each is there."""
    texts: Counter[str] = Counter()
    with mock.patch.dict(os.environ, machine.environment, clear=True), opened(resolve()) as device:
        for name in device.journal.names():
            row = device.journal.row(name.incarnation, name.sequence)
            assert row is not None
            operation = decode_operation(row.operation)
            assert isinstance(operation, Capture)
            texts.update(piece.text for piece in operation.pieces)
    return texts


def main() -> None:
    folder, source = Path(sys.argv[1]), Path(sys.argv[2])
    machine = Machine(folder / "machine")
    whole = Machine(folder / "whole")
    shutil.copytree(source, whole.root)
    whole.call("backfill", "--yes")
    wanted = recorded(whole)
    assert len(wanted) > 5
    assert set(wanted.values()) == {1}

    def prepare() -> None:
        shutil.rmtree(machine.root, ignore_errors=True)
        shutil.copytree(source, machine.root)

    def work(step: Step) -> None:
        Device.accept = step(Device.accept)  # type: ignore[method-assign]
        SqliteJournal.set_file_state = step(SqliteJournal.set_file_state)  # type: ignore[method-assign]
        machine.call("backfill", "--yes")

    def check(done: bool) -> None:
        machine.call("backfill", "--yes")
        assert recorded(machine) == wanted
        assert machine.call("capture", "--json").json["messages"] == 0

    sys.stdout.write(f"{kill_at_each_step(prepare, work, check)}\n")


if __name__ == "__main__":
    main()
