"""systemd --user: a unit in the person's own folder, sandboxed as far as possible without an administrator.

The service has no terminal and keeps its own log: standard output is discarded, and errors before the log goes to the journal.
An exit that a restart cannot fix (usage, no vault here, revoked) is not restarted.
"""

import os
import pwd
from pathlib import Path

from crystal_node.agent.service.manager import (
    CallResult,
    NotInstalled,
    ServiceState,
    ServiceUnavailable,
    call,
    required,
)
from crystal_node.agent.service.program import DESCRIPTION, RESTART_SECONDS, STOP_SECONDS, Program
from crystal_node.base.home import DIRECTORY_MODE, write_private
from crystal_node.base.settings.user_session import Surroundings

_LINGER = Path("/var/lib/systemd/linger")
_LINGER_TEXT = (
    "It runs while you are logged in. To have it run from the machine's start until its end, whether you are there or not: "
    "loginctl enable-linger"
)

_UNIT = """\
# Written by `crystal agent install`, which replaces it; own settings belong into a drop-in: systemctl --user edit {unit}
[Unit]
Description={description}
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
{environment}WorkingDirectory=/
Restart=on-failure
RestartSec={restart}
RestartPreventExitStatus=2 3 7
KillMode=mixed
TimeoutStopSec={stop}
StandardInput=null
StandardOutput=null
StandardError=journal
Nice=5
UMask=0077
LimitCORE=0
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
SystemCallArchitectures=native
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK

[Install]
WantedBy=default.target
"""


class Systemd:
    """The manager of this user's session (``Manager``)."""

    name = "systemd --user"

    def __init__(self, program: Program, surroundings: Surroundings) -> None:
        self._program = program
        self._surroundings = surroundings
        self._unit = program.named("crystal") + ".service"

    @property
    def unit(self) -> str:
        return self._unit

    @property
    def file(self) -> Path:
        return self._surroundings.config / "systemd" / "user" / self._unit

    def render(self) -> bytes:
        program = self._program
        words = [quoted(program.command[0]), *(quoted(word, argument=True) for word in program.command[1:])]
        lines = [f"Environment={quoted(f'{name}={value}')}\n" for name, value in program.variables.items()]
        unit = _UNIT.format(
            unit=self._unit,
            description=DESCRIPTION,
            command=" ".join(words),
            environment="".join(lines),
            restart=RESTART_SECONDS,
            stop=STOP_SECONDS,
        )
        return unit.encode("utf-8", "surrogateescape")

    def install(self) -> str:
        self._reach()
        self.file.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        write_private(self.file, self.render())
        self._do("daemon-reload")
        self._do("enable", self._unit)
        return f"{self.file} is made. {_LINGER_TEXT}" if not _lingers() else f"{self.file} is made."

    def start(self) -> None:
        self._require_file()
        self._reach()
        self._do("reset-failed", self._unit, must=False)
        self._do("start", self._unit)

    def stop(self) -> None:
        self._reach()
        self._do("stop", self._unit)

    def uninstall(self) -> None:
        there = self.file.exists() or self.file.is_symlink()
        try:
            self._reach()
        except ServiceUnavailable:
            self._remove()
            return
        if there:
            self._do("disable", "--now", self._unit, must=False)
        self._remove()
        self._do("daemon-reload", must=False)
        self._do("reset-failed", self._unit, must=False)

    def state(self) -> ServiceState:
        if not self.file.exists():
            return ServiceState.ABSENT
        try:
            active = self._systemctl("is-active", self._unit).out.strip()
        except ServiceUnavailable:
            return ServiceState.UNREACHABLE
        if active in ("active", "activating", "reloading", "deactivating"):
            return ServiceState.RUNNING
        if active == "failed":
            return ServiceState.FAILED
        return ServiceState.STOPPED if active == "inactive" else ServiceState.UNREACHABLE

    # --- inside ---

    def _reach(self) -> None:
        found = self._systemctl("show-environment")
        if found.code:
            raise ServiceUnavailable(f"no service manager of this user runs here (systemctl: {found.said})")

    def _require_file(self) -> None:
        if not self.file.exists():
            raise NotInstalled("the agent of this home is not installed as a service")

    def _remove(self) -> None:
        self.file.unlink(missing_ok=True)
        # The link that `enable` made: without a manager nothing else removes it.
        (self.file.parent / "default.target.wants" / self._unit).unlink(missing_ok=True)

    def _systemctl(self, *words: str) -> CallResult:
        return call(("systemctl", "--user", "--no-ask-password", *words), self._surroundings)

    def _do(self, *words: str, must: bool = True) -> None:
        command = ("systemctl", "--user", "--no-ask-password", *words)
        if must:
            required(command, self._surroundings)
        else:
            call(command, self._surroundings)


def quoted(text: str, *, argument: bool = False) -> str:
    """A quoted word of a unit. ``argument``: after a command's first word, where systemd expands variables."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text.replace("$", "$$") if argument else text}"'


def _lingers() -> bool:
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return False
    return (_LINGER / name).exists()
