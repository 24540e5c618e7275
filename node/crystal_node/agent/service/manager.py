"""The port: what a service manager does for the agent, and how it says that it cannot."""

from enum import StrEnum
from pathlib import Path
from typing import Protocol

from crystal_crypto.errors import CrystalError


class ServiceState(StrEnum):
    """How the service stands.

    ::

        ABSENT --install--> STOPPED --start--> RUNNING --falls over too often--> FAILED
          ^-----------------uninstall-----------------------------------------------|
        UNREACHABLE: the file is there, and no manager runs that could be asked
    """

    ABSENT = "absent"
    STOPPED = "stopped"
    RUNNING = "running"
    FAILED = "failed"
    UNREACHABLE = "unreachable"


class ServiceUnavailable(CrystalError):
    """No service manager of this user runs here, or it refused."""

    exit_code = 8
    hint = "Run `crystal agent run` in a terminal, or under a supervisor of your own."


class NotInstalled(CrystalError):
    """There is no service for this home."""

    exit_code = 10
    hint = "`crystal agent install` makes one; `crystal agent run` works without."


class Manager(Protocol):
    """One service manager, and the service of one home."""

    @property
    def name(self) -> str:
        """For people: "systemd --user"."""
        ...

    @property
    def file(self) -> Path:
        """The file that tells the manager of the service."""
        ...

    def render(self) -> bytes:
        """What that file holds."""
        ...

    def install(self) -> str:
        """Writes the file, replacing an older one, and has the service start at login. Says what a person should know.

        Raises:
            ServiceUnavailable: nothing was written.
        """
        ...

    def start(self) -> None:
        """Raises ServiceUnavailable, NotInstalled."""
        ...

    def stop(self) -> None:
        """Returns when it has ended. Raises ServiceUnavailable."""
        ...

    def uninstall(self) -> None:
        """Stops it, and leaves nothing behind. Works without a running manager, and when nothing is installed."""
        ...

    def state(self) -> ServiceState:
        """Never raises for want of a manager."""
        ...
