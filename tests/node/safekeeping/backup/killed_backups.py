"""`python -m tests.node.safekeeping.backup.killed_backups HOME DIRECTORY`: processes that back up a
home, and that bring a backup back, die
at each step.

Prints how many died. Raises when a backup has a name and is not whole, when an older one is gone too early, when a crash leaves
something for good, or when a home came back with a part of what it was.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from crystal_node.base.settings import Settings, resolve
from crystal_node.device.device import opened
from crystal_node.safekeeping.backup import creation
from crystal_node.safekeeping.backup import restore as restoring
from crystal_node.safekeeping.backup.creation import Subject, back_up
from crystal_node.safekeeping.backup.folder import backups
from crystal_node.safekeeping.backup.restore import restore_device
from crystal_node.safekeeping.backup.verification import verify_backup
from crystal_node.sync.maintenance.verification import verify
from tests.support.dying_process import kill_at_each_step

Step = Callable[[Callable[..., Any]], Callable[..., Any]]
KEPT = 2


def main() -> None:
    home, folder = Path(sys.argv[1]), Path(sys.argv[2])
    original = _settings(home)
    with opened(original) as device:
        subject, digest = Subject.of(device), verify(device).computed
        waiting = sorted(name.origin for name in device.journal.names())
    destination = folder / "destination"
    older = [back_up(original, subject, folder / "older").folder.name for _ in range(KEPT)]

    def prepare_backup() -> None:
        shutil.rmtree(destination, ignore_errors=True)
        shutil.copytree(folder / "older", destination)

    def make(step: Step) -> None:
        _patch(creation, "copy_database", step)
        back_up(original, subject, destination, count=KEPT)

    def check_backups(done: bool) -> None:
        named = [each.folder.name for each in backups(destination)]
        fresh = [name for name in named if name not in older]
        assert len(fresh) <= 1
        assert fresh or named == older, "an older one went before the new one was whole"
        for name in fresh:
            assert verify_backup(destination / name, lambda _: subject.secret).problems == {}, name
        if not done:
            back_up(original, subject, destination, count=KEPT)
        assert len(list(destination.iterdir())) == KEPT, "a crash has left something"

    deaths = kill_at_each_step(prepare_backup, make, check_backups)
    source = back_up(original, subject, folder / "source", with_keys=True).folder
    target = folder / "target"

    def prepare_restore() -> None:
        shutil.rmtree(target, ignore_errors=True)

    def restore(step: Step) -> None:
        _patch(restoring, "restart_stream", step)
        _patch(restoring, "adopt_files", step)
        restore_device(_settings(target), source)

    def check_restore(done: bool) -> None:
        settings = _settings(target)
        if not done and (settings.vault is None or settings.home.backup_restore_file.exists()):
            restore_device(settings, source)
        with opened(_settings(target)) as device:
            assert verify(device).computed == digest
            assert sorted(name.origin for name in device.journal.names()) == waiting
        assert not settings.home.backup_restore_file.exists()
        assert (target / "notes" / "plan.md").read_text() == "First the roof.\n"

    deaths += kill_at_each_step(prepare_restore, restore, check_restore)
    sys.stdout.write(f"{deaths}\n")


def _patch(module: ModuleType, name: str, step: Step) -> None:
    setattr(module, name, step(getattr(module, name)))


def _settings(home: Path) -> Settings:
    return resolve(None, {"CRYSTAL_HOME": str(home), "HOME": os.environ.get("HOME", "/")})


if __name__ == "__main__":
    main()
