"""launchd: an agent of the person's login session, as a property list in ``~/Library/LaunchAgents``.

Written and checked against launchd.plist(5); it was not run by the tests, which have no macOS.
"""

import os
import plistlib
from pathlib import Path

from crystal_node.agent.service.manager import (
    CallResult,
    NotInstalled,
    ServiceState,
    ServiceUnavailable,
    call,
    required,
)
from crystal_node.agent.service.program import STOP_SECONDS, Program
from crystal_node.base.home import DIRECTORY_MODE, write_private
from crystal_node.base.settings.user_session import Surroundings

LABEL = "org.memory-crystal.agent"
_UMASK = 0o077
_AGAIN_SECONDS = 60
"""launchd cannot be told which exits are not worth a restart, so restarts are rare."""
_GONE = 113
"""What `launchctl print` says of a service that it does not know."""


class Launchd:
    """launchd of this user's session (``Manager``)."""

    name = "launchd"

    def __init__(self, program: Program, surroundings: Surroundings) -> None:
        self._program = program
        self._surroundings = surroundings
        self._label = program.named(LABEL)

    @property
    def file(self) -> Path:
        return self._surroundings.person / "Library" / "LaunchAgents" / f"{self._label}.plist"

    def render(self) -> bytes:
        document: dict[str, object] = {
            "Label": self._label,
            "ProgramArguments": list(self._program.command),
            "WorkingDirectory": "/",
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": _AGAIN_SECONDS,
            "ExitTimeOut": STOP_SECONDS,
            "ProcessType": "Background",
            "Umask": _UMASK,
            "HardResourceLimits": {"Core": 0},
            "StandardOutPath": os.devnull,
            "StandardErrorPath": os.devnull,
        }
        if self._program.variables:
            document["EnvironmentVariables"] = dict(self._program.variables)
        return plistlib.dumps(document)

    def install(self) -> str:
        self._reach()
        self.file.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        self._do("bootout", self._target, must=False)
        write_private(self.file, self.render())
        self._do("enable", self._target)
        self._do("bootstrap", self._domain, str(self.file))
        return f"{self.file} is made. It runs while you are logged in."

    def start(self) -> None:
        if not self.file.exists():
            raise NotInstalled("the agent of this home is not installed as a service")
        if self._launchctl("print", self._target).code:
            self._do("bootstrap", self._domain, str(self.file))
        self._do("kickstart", self._target)

    def stop(self) -> None:
        """Until the next login, or `start`: launchd cannot stop a service and keep it loaded."""
        self._do("bootout", self._target, must=False)

    def uninstall(self) -> None:
        try:
            self._do("bootout", self._target, must=False)
        finally:
            self.file.unlink(missing_ok=True)

    def state(self) -> ServiceState:
        if not self.file.exists():
            return ServiceState.ABSENT
        try:
            found = self._launchctl("print", self._target)
        except ServiceUnavailable:
            return ServiceState.UNREACHABLE
        if found.code:
            return ServiceState.STOPPED if found.code == _GONE else ServiceState.UNREACHABLE
        return ServiceState.RUNNING if "state = running" in found.out else ServiceState.STOPPED

    # --- inside ---

    @property
    def _domain(self) -> str:
        return f"gui/{os.getuid()}"

    @property
    def _target(self) -> str:
        return f"{self._domain}/{self._label}"

    def _reach(self) -> None:
        found = self._launchctl("print", self._domain)
        if found.code:
            raise ServiceUnavailable(f"no session of this user is there to run it in: {found.said}")

    def _launchctl(self, *words: str) -> CallResult:
        return call(("launchctl", *words), self._surroundings)

    def _do(self, *words: str, must: bool = True) -> None:
        (required if must else call)(("launchctl", *words), self._surroundings)
