"""What a restore has to tell: who leads, what came back, and what did not."""

from dataclasses import dataclass

from crystal_node.base.settings import Settings
from crystal_node.safekeeping.recovery.files import FilesBack

CORE_SEEN_MS = 24 * 3600 * 1000
"""A Core that has told nothing of itself for so long may be gone: it tells every six hours that it lives."""


@dataclass(frozen=True, slots=True)
class Core:
    """Who leads, as this device knows it. ``seen_ms``: its own clock when it last told its position; 0 if it never did."""

    device: bytes
    name: str | None
    seen_ms: int

    def lately(self, now: int) -> bool:
        return abs(now - self.seen_ms) < CORE_SEEN_MS


@dataclass(frozen=True, slots=True)
class Lack:
    """What could not be brought back: a device (None: the very home that was copied) had applied more than is here."""

    device: bytes | None
    name: str | None
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What came of it.

    ``fresh`` is False for a home that was set up before; ``relay_lost``: the relay had lost the vault; ``others``: the other
    devices that are not revoked, by id and name; ``private``: nothing is recorded here, as in the home that was copied;
    ``files``: what came along of that home's files, None if they were not to.
    """

    settings: Settings
    vault: bytes
    device: bytes
    fresh: bool
    from_home: bool
    relay_lost: bool
    log_put_back: int
    mirror_put_back: int
    taken_over: int
    is_core: bool
    epoch: int
    sequence: int
    digest: bytes
    core: Core | None
    lacks: tuple[Lack, ...]
    others: tuple[tuple[bytes, str | None], ...]
    private: bool
    files: FilesBack | None = None
