"""What tests of backups share."""

from pathlib import Path

from tests.support.machine import Machine


def backed_up(machine: Machine, destination: Path, *more: str) -> Path:
    """A backup of the machine's home in that folder."""
    return Path(machine.call("backup", "--to", str(destination), "--json", *more).json["folder"])
