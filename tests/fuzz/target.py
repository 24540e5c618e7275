"""What is fuzzed: a parser of foreign bytes, the errors that it documents, and inputs to begin with."""

import importlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

FOLDERS = ("crypto", "mirror", "core", "relay", "prototype", "node")
"""Modules of ``tests.fuzz.targets``, each with a tuple ``TARGETS``."""

SECONDS_MAX = 1.0
"""Processor time for one input. Inputs are a few KiB; the slowest honest one takes some milliseconds."""


class Slow(AssertionError):
    """One input took longer than `SECONDS_MAX`."""


@dataclass(frozen=True, slots=True)
class Target:
    """One parser. `parse` takes any bytes; it asserts that what was read is written back to the same bytes, where the format
    is canonical."""

    name: str
    parse: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    """What it may raise."""
    seeds: Callable[[], Iterable[bytes]]
    """Well-formed inputs, from which others are made."""
    bytes_max: int = 4096

    def check(self, data: bytes) -> bool:
        """Gives the parser one input. Returns whether it was taken, False if refused by a documented error."""
        began = time.thread_time()
        try:
            self.parse(data)
        except self.errors:
            taken = False
        else:
            taken = True
        seconds = time.thread_time() - began
        if seconds > SECONDS_MAX:
            raise Slow(f"{len(data)} bytes took {seconds:.1f} s")
        return taken

    def fuzz(self, data: bytes) -> None:
        """`check`, as the fuzzer calls it."""
        self.check(data)


def targets_of(folder: str) -> tuple[Target, ...]:
    """The targets of one module, whose names begin with the module's."""
    found: tuple[Target, ...] = importlib.import_module(f"tests.fuzz.targets.{folder}").TARGETS
    assert all(target.name.startswith(f"{folder}.") for target in found)
    return found


def all_targets() -> list[Target]:
    return [target for folder in FOLDERS for target in targets_of(folder)]


def target_named(name: str) -> Target:
    """Raises KeyError for an unknown name."""
    return {target.name: target for target in targets_of(name.partition(".")[0])}[name]
