"""Clocks that are wrong, and that jump while a process runs.

    clock = Clock(folder)
    laptop = ClockedMachine(root, clock=clock)
    clock.years(-30)

Every process that is started with the clock's environment takes the offset from a file each time that it asks what time it
is. Monotonic time is not touched: no real clock's jump touches it.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from tests.support.machine import Machine, Outcome

DAY = 86_400
YEAR = 365 * DAY

_SHIFTING = """\
import os
import time

def _shifted(real, unit):
    def now():
        with open({offset!r}) as file:
            return real() + int(file.read() or "0") * unit
    return now

time.time, time.time_ns = _shifted(time.time, 1), _shifted(time.time_ns, 1_000_000_000)
"""


@dataclass
class Clock:
    """The wall clock of one machine. Seconds."""

    folder: Path
    offset: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "sitecustomize.py").write_text(_SHIFTING.format(offset=str(self._file)))
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        before = os.environ.get("PYTHONPATH")
        return {"PYTHONPATH": os.pathsep.join((str(self.folder), *([before] if before else [])))}

    def set(self, offset: int) -> None:
        """So much off from now on, for running processes too."""
        self.offset = offset
        fresh = self._file.with_suffix(".new")
        fresh.write_text(str(offset))
        fresh.replace(self._file)

    @property
    def _file(self) -> Path:
        return self.folder / "offset"


@dataclass
class ClockedMachine(Machine):
    """A machine with a clock of its own."""

    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(self.root.with_name(f"{self.root.name}-clock"))
        self.extra |= self.clock.environment

    def call(self, *arguments: str, typed: str = "", check: bool = True, **variables: str) -> Outcome:
        seconds, nanoseconds = time.time, time.time_ns

        def shifted() -> float:
            return seconds() + self.clock.offset

        def shifted_ns() -> int:
            return nanoseconds() + self.clock.offset * 1_000_000_000

        with mock.patch.object(time, "time", shifted), mock.patch.object(time, "time_ns", shifted_ns):
            return super().call(*arguments, typed=typed, check=check, **variables)
