"""Whether this machine runs on its battery. Asked only where a person wants heavy work to wait then; unknown is not."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

POWER_SUPPLIES = Path("/sys/class/power_supply")
_PMSET = ("/usr/bin/pmset", "-g", "batt")
_ASK_SECONDS_MAX = 5.0


def on_battery(supplies: Path = POWER_SUPPLIES) -> bool:
    """On macOS this starts a process of a moment; call it in a thread."""
    return _macos() if sys.platform == "darwin" else _linux(supplies)


def _linux(supplies: Path) -> bool:
    """A supply that is plugged in decides; else a battery of the machine (not of a mouse) that gives power."""
    draining = False
    try:
        found = sorted(supplies.iterdir())
    except OSError:
        return False
    for supply in found:
        kind = _read(supply / "type")
        if kind in ("Mains", "USB", "Wireless") and _read(supply / "online") == "1":
            return False
        if kind == "Battery" and _read(supply / "scope") != "Device":
            draining |= _read(supply / "status") == "Discharging"
    return draining


def _macos() -> bool:
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            _PMSET, capture_output=True, encoding="utf-8", timeout=_ASK_SECONDS_MAX, check=False
        )
        return "'Battery Power'" in done.stdout
    return False


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
