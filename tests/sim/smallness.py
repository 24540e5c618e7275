"""Limits made small, so that a short run reaches them: snapshots of several parts, floors that rise by a few slots,
packs of a few entries.

They are the product's own named constants. Nothing else about the code is changed.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from crystal_core.snapshots import export
from crystal_mirror.retention import gc as retention
from crystal_mirror.snapshots import packs

SMALL: tuple[tuple[object, str, int], ...] = (
    (export, "PART_BYTES_MIN", 700),
    (export, "_CUT_MASK", 1),
    (retention, "FLOOR_STEP", 3),
    (retention, "SNAPSHOT_LOG_BYTES_MIN", 6_000),
    (packs, "PACK_SLOTS_MIN", 4),
    (packs, "READ_FROM", 3),
)


@contextmanager
def small() -> Generator[None]:
    with ExitStack() as stack:
        for module, name, value in SMALL:
            assert hasattr(module, name), f"{name} is a limit of the product"
            stack.enter_context(patch.object(module, name, value))
        yield
