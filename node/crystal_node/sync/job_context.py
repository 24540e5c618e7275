"""What every duty of the agent is given: the device, its relay, and whom to tell.

A package with a duty in the background offers ``jobs(work: AgentWork) -> list[Job]``. Building the list opens nothing: it is
built anew when the settings change.
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
    """The device of this process. ``latest`` gives the settings as they are now: a person may change them meanwhile."""

    device: Device
    syncer: Syncer
    report: Report
    latest: Callable[[], Settings] | None = field(default=None, repr=False)

    @property
    def settings(self) -> Settings:
        return self.device.settings if self.latest is None else self.latest()

    def now_ms(self) -> int:
        return now_ms()
