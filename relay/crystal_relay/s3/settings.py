"""Settings of a store in a bucket, and the capabilities of a bucket."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from crystal_relay.limits import KIB, MIB

WHOLE_BYTES_MAX = 1 * MIB + 4 * KIB
"""Objects up to this size are transferred whole, in memory."""
PENDING_CALLS_MAX = 1024
PENDING_BYTES_MAX = 64 * MIB
"""Total of small bodies received and not yet stored."""
SPOOL_BYTES_MAX = 512 * MIB
"""Total of large bodies in transit: disk space for temporary files."""
R2_OVERWRITE_SECONDS = 1.0


class Conditions(Enum):
    """How the bucket treats "only if nothing is there"."""

    HONOURED = "honoured"
    NOT_HONOURED = "not honoured"


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Settings of one store. Times are in seconds."""

    threads: int = 16
    large_threads: int = 8
    """For pieces of large objects."""
    streams_max: int = 64
    """Large objects that are read at the same time; each holds a connection."""
    stream_wait_seconds: float = 5.0
    """How long a further reader waits for a stream to end."""
    spool_bytes_max: int = SPOOL_BYTES_MAX
    spool_directory: Path | None = None
    """None: the system's directory for temporary files."""
    overwrite_seconds: float | None = None
    """Interval of overwrites of one key. None for 1.0 on R2, else 0."""
    connect_seconds: float = 3.0
    read_seconds: float = 20.0
    attempts: int = 3

    @property
    def connections(self) -> int:
        """Size of the client's connection pool."""
        return self.threads + self.large_threads + self.streams_max

    @property
    def doubt_seconds(self) -> float:
        """How long after a write of unknown outcome it may still take effect."""
        return 2 * self.read_seconds
