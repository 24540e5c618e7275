"""Files to another device through a folder that both devices reach, by commands that people would run by hand.

restic keeps the files there as encrypted parts and restores the newest state; rclone keeps encrypted copies. Nothing watches
for changes: the figures are those of the commands alone, the sender's and then the receiver's.
"""

import contextlib
import os
import resource
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import ClassVar

from bench.transferred import Figures, RandomBytes, has, written

_SECRET = "bench-only"


class FolderPair(ABC):
    """Two devices' folders, and the folder between them. ``name``: in the rows. ``program``: its command."""

    name: ClassVar[str]
    program: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.here, self.there, self._between = folder / "here", folder / "there", folder / "between"
        self._private = folder / "private"
        for each in (self.here, self.there, self._between, self._private):
            each.mkdir(parents=True)
        self._environment = os.environ | {"HOME": str(self._private)}

    @abstractmethod
    def send(self) -> None: ...

    @abstractmethod
    def fetch(self) -> None: ...

    def measured(self, files: Mapping[str, bytes | RandomBytes]) -> Figures:
        """Writes these files here, sends and fetches them. ``wire`` and ``peak`` are 0: they are not measured."""
        waiting: dict[str, tuple[int, bytes]] = {}
        for path, content in files.items():
            (self.here / path).parent.mkdir(parents=True, exist_ok=True)
            waiting[path] = written(self.here / path, content)
        processor, started = _processor(), time.perf_counter()
        self.send()
        self.fetch()
        seconds, processor = time.perf_counter() - started, _processor() - processor
        missing = [
            path for path, (length, digest) in waiting.items() if not has(self.there / path, length, digest)
        ]
        assert not missing, f"{self.name}: {len(missing)} files did not arrive"
        return Figures(seconds, processor, wire=0, peak=0)

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [self.program, *arguments],
            cwd=self.here,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


class Restic(FolderPair):
    """A backup here, and its newest snapshot restored there."""

    name = "restic, backup and restore"
    program = "restic"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._environment |= {"RESTIC_PASSWORD": _SECRET, "RESTIC_REPOSITORY": str(self._between)}
        self._run("init")

    def send(self) -> None:
        self._run("backup", ".")

    def fetch(self) -> None:
        self._run("restore", "latest", "--target", str(self.there))


class Rclone(FolderPair):
    """Encrypted copies of new and changed files, to the folder and back. A changed file is sent whole."""

    name = "rclone, encrypted, both ways"
    program = "rclone"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        hidden = subprocess.run(
            [self.program, "obscure", _SECRET], capture_output=True, text=True, check=True
        ).stdout.strip()
        self._environment |= {
            "RCLONE_CONFIG": str(self._private / "rclone.conf"),
            "RCLONE_CONFIG_SEALED_TYPE": "crypt",
            "RCLONE_CONFIG_SEALED_REMOTE": str(self._between),
            "RCLONE_CONFIG_SEALED_PASSWORD": hidden,
        }

    def send(self) -> None:
        self._run("copy", str(self.here), "sealed:")

    def fetch(self) -> None:
        self._run("copy", "sealed:", str(self.there))


@contextlib.contextmanager
def folder_pairs(folder: Path) -> Generator[list[FolderPair]]:
    """A pair for each of the programs that is installed, in folders below ``folder``, which are removed afterwards."""
    kinds: list[type[FolderPair]] = [Restic, Rclone]
    try:
        yield [kind(folder / kind.program) for kind in kinds if shutil.which(kind.program)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _processor() -> float:
    """Processor time of this process's ended children, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
