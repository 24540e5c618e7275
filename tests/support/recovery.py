"""What tests of recovery share: a kit, a machine to restore on, and the bytes of a home that nobody may touch."""

import shutil
from hashlib import sha256
from pathlib import Path

from tests.support.machine import Machine, Vault


def kit_of(machine: Machine) -> str:
    """The page as it is shown."""
    return str(machine.call("recovery", "show", "--yes", "--json").json["text"])


def fresh_machine(folder: Path, name: str = "new-machine") -> Machine:
    machine = Machine(folder / name)
    machine.root.mkdir(parents=True)
    return machine


def digest_of(machine: Machine) -> str:
    """Computed from the rows."""
    return str(machine.call("verify", "--json").json["digest"])


def device_of(machine: Machine) -> str:
    return str(machine.call("role", "--json").json["device"])


def home_bytes(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Every file of a folder: its content, its mode, when it was written."""
    return {
        str(path.relative_to(folder)): (
            sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
    }


def lost_copy(machine: Machine, folder: Path) -> Path:
    """A copy of a machine's home as a broken laptop leaves it: without the keys."""
    copy = folder / "old-home"
    shutil.copytree(machine.home, copy)
    shutil.rmtree(copy / "state" / "secrets")
    return copy


def lived_in(vault: Vault, texts: tuple[str, ...]) -> list[Machine]:
    """A laptop and a tablet join; the texts are remembered on all machines in turn, and everybody has them."""
    machines = [vault.core, vault.add(), vault.add()]
    for number, text in enumerate(texts):
        machines[number % 3].call("remember", text)
    vault.settle()
    return machines
