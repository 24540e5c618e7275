"""What a watcher or a job reports while it runs: a kind of event and a line of text for people."""

from collections.abc import Callable
from enum import StrEnum


class WatchEvent(StrEnum):
    """The kind of an event."""

    CAPTURED = "captured"
    SYNCED = "synced"
    FAILED = "failed"
    RECOVERED = "recovered"
    NEWS = "news"
    PROGRESS = "progress"


Report = Callable[[WatchEvent, str], None]
