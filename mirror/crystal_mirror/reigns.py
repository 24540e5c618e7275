"""Reigns: which device leads a vault from where on, or that nobody does.

A *freeze* is a reign of nobody: the epoch before has no Core any more and no end yet, and nothing is written to the mirror. The
next Core ends both: it seals the epoch before, as every successor does.
"""

from dataclasses import dataclass

from crystal_mirror.types import DEVICE_ID_BYTES

NOBODY = bytes(DEVICE_ID_BYTES)
"""Stands where a reign names its device, and names none: no device has this id."""


@dataclass(frozen=True, slots=True)
class Lead:
    """A reign: the epoch, its Core (or ``NOBODY``), and the claim that tells the Core from its own clones."""

    epoch: int
    device: bytes
    claim: bytes
    slot: int

    @property
    def is_freeze(self) -> bool:
        return self.device == NOBODY
