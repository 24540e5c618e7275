"""What each background job is given: the device, its syncer, the settings, and where to report.

A package with a background duty offers ``jobs(work: JobContext) -> list[Job]``. Building the list opens nothing: it is built
again when the settings change.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from crystal_node.base.clock import now_ms
from crystal_node.base.events import Report
from crystal_node.base.settings import Settings
from crystal_node.device.device import Device
from crystal_node.sync.syncer import Syncer


@dataclass
class JobContext:
    """``latest`` returns the present settings, which a person may change meanwhile."""

    device: Device
    syncer: Syncer
    report: Report
    latest: Callable[[], Settings] | None = field(default=None, repr=False)

    @property
    def settings(self) -> Settings:
        return self.device.settings if self.latest is None else self.latest()

    def now_ms(self) -> int:
        return now_ms()
