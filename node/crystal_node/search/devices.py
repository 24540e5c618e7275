"""Names of the vault's devices for texts that they recorded, offline, as far as this device's keys open them."""

import threading
import time
from collections.abc import Callable

from crystal_crypto.errors import CrystalError
from crystal_node.base.settings import Settings

ID_DIGITS = 8
"""What stands for a device without a name."""
LOOK_SECONDS = 60.0
"""The device log is opened for an unknown device at most so often."""


class DeviceNames:
    """The names of one process that lives for long; used by any thread.

    Names are sealed: they are read with this device's keys, once, and anew where a device is asked for that is not among
    them. A device renamed meanwhile has its new name then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._look_at = float("-inf")

    def name(self, settings: Settings, device: str) -> str:
        """The name of the device with this id, the beginning of the id if there is none, "" for none."""
        if not device:
            return ""
        with self._lock:
            if device not in self._names and self._clock() >= self._look_at:
                self._names = self._read(settings)
                self._look_at = self._clock() + LOOK_SECONDS
            return self._names.get(device) or device[:ID_DIGITS]

    def _read(self, settings: Settings) -> dict[str, str]:
        """The names by id; none where the keys are not at hand."""
        # Lazy: opening a device loads much that a search by the service does without.
        from crystal_mirror.membership.status import device_name
        from crystal_node.device.device import opened

        try:
            with opened(settings) as device:
                member = device.member
                return {
                    info.device.hex(): device_name(member, info.device) or "" for info in member.log.members()
                }
        except (CrystalError, OSError):
            return {}
