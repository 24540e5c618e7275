"""The relay as a service of the system: a systemd unit, a launchd agent or a task of Windows' Task Scheduler.

The tests check systemd; the others follow launchd.plist(5) and the help of schtasks, and were never run. As root on Linux it
is a system unit, which starts with the machine; otherwise a user unit, which does so where lingering is allowed. A file
without the mark is neither replaced nor removed.
"""

import os
import plistlib
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Protocol

from crystal_relay.errors import BadRequest, RelayError

MARK = "Written by `crystal-relay up`"
CALL_SECONDS_MAX = 60.0
STOP_SECONDS = 30
_SAID_CHARS = 300
_LABEL = "org.memory-crystal.relay"
_TASK = "\\Crystal\\Relay"
_UNIT = "crystal-relay.service"
_PORT = re.compile(rb"--port\W+(?:string\W+)*([0-9]+)")
"""In a unit, in the plist of an agent and in the XML of a task."""
_FOR_NOBODY = (
    "Run `crystal-relay serve --tls --host 0.0.0.0` in a terminal, or under a supervisor of your own."
)

_UNIT_TEXT = """\
# {mark}, which replaces it. Put your own settings into a drop-in: systemctl {user}edit crystal-relay
[Unit]
Description=Crystal relay, a blind dead drop for sealed memory
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
Environment=PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WorkingDirectory=/
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2
KillMode=mixed
TimeoutStopSec={stop}
StandardInput=null
StandardOutput=null
StandardError=journal
UMask=0077
LimitNOFILE=65536
LimitCORE=0
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
SystemCallArchitectures=native
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
{more}
[Install]
WantedBy={target}
"""
_OF_SYSTEM = """\
CapabilityBoundingSet={capabilities}
ProtectSystem=strict
ReadWritePaths={directory}
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
"""
"""For a unit that root starts: it can write nothing but the relay's directory."""


class NoServiceManager(RelayError):
    """No service manager runs here, or it refused."""

    exit_code = 8
    code = "no-service-manager"
    hint = _FOR_NOBODY


@dataclass(frozen=True, slots=True)
class RelayProgram:
    """What the service runs: its command with absolute paths, and the one directory that it writes.

    `low_port`: it listens on a port below 1024.
    """

    command: tuple[str, ...]
    directory: Path
    low_port: bool = False


@dataclass(frozen=True, slots=True)
class Installed:
    """A service as it was found: what describes it to its manager, and whether it ran."""

    data: bytes
    runs: bool

    @property
    def port(self) -> int | None:
        """The port that its command names."""
        found = _PORT.search(self.data)
        return None if found is None else int(found[1])


class RelayService(Protocol):
    """A service manager, and the relay as its service."""

    name: str

    @property
    def file(self) -> Path | None:
        """The service's file, if it has one that people may read."""
        ...

    def installed(self) -> Installed | None:
        """None: it is not. Raises NoServiceManager; BadRequest: it is somebody else's."""
        ...

    def is_running(self) -> bool: ...

    def install(self, program: RelayProgram) -> str:
        """Write, enable and start it, or replace and restart it. Returns what a person should know. Raises NoServiceManager."""
        ...

    def restore(self, before: Installed) -> None:
        """Make it again what `installed` found, running or stopped. Raises NoServiceManager, OSError."""
        ...

    def uninstall(self) -> None:
        """Stop and remove it. Works when nothing is installed. Raises NoServiceManager."""
        ...


def service_manager() -> RelayService:
    """The one of this system."""
    if sys.platform == "win32":
        return TaskScheduler()
    return Launchd() if sys.platform == "darwin" else Systemd(of_system=os.geteuid() == 0)


class Systemd:
    """A unit of the system or of the person."""

    def __init__(self, *, of_system: bool) -> None:
        self._of_system = of_system
        self.name = "systemd" if of_system else "systemd --user"

    @property
    def file(self) -> Path:
        if self._of_system:
            return Path("/etc/systemd/system") / _UNIT
        named = os.environ.get("XDG_CONFIG_HOME", "")
        config = Path(named) if named.startswith("/") else Path.home() / ".config"
        return config / "systemd" / "user" / _UNIT

    def render(self, program: RelayProgram) -> str:
        words = [_quoted(program.command[0]), *(_quoted(word, argument=True) for word in program.command[1:])]
        capabilities = "CAP_NET_BIND_SERVICE" if program.low_port else ""
        more = _OF_SYSTEM.format(directory=_quoted(str(program.directory)), capabilities=capabilities)
        return _UNIT_TEXT.format(
            mark=MARK,
            user="" if self._of_system else "--user ",
            command=" ".join(words),
            stop=STOP_SECONDS,
            more=more if self._of_system else "",
            target="multi-user.target" if self._of_system else "default.target",
        )

    def installed(self) -> Installed | None:
        if not self.file.exists():
            return None
        _check_ours(self.file)
        return Installed(self.file.read_bytes(), self.is_running())

    def is_running(self) -> bool:
        try:
            return self._systemctl("is-active", _UNIT).stdout.strip() in ("active", "activating", "reloading")
        except NoServiceManager:
            return False

    def install(self, program: RelayProgram) -> str:
        found = self._systemctl("show-environment")
        if found.returncode:
            raise NoServiceManager(f"no {self.name} runs here ({_said(found)})")
        _check_ours(self.file)
        _write(self.file, self.render(program).encode("utf-8", "surrogateescape"))
        self._do(("daemon-reload",), ("enable", _UNIT), ("restart", _UNIT))
        if self._of_system:
            return f"{self.file} starts it with the machine."
        try:
            lingers = _run(("loginctl", "enable-linger")).returncode == 0
        except NoServiceManager:
            lingers = False
        if lingers:
            return f"{self.file} starts it with the machine."
        return (
            f"{self.file} starts it when you log in, and it ends when you log out: an administrator changes that "
            "with `loginctl enable-linger` and your name."
        )

    def uninstall(self) -> None:
        there = self.file.exists()
        if there:
            _check_ours(self.file)
            if self._systemctl("show-environment").returncode == 0:
                self._systemctl("disable", "--now", _UNIT)
        self.file.unlink(missing_ok=True)
        target = "multi-user.target" if self._of_system else "default.target"
        (self.file.parent / f"{target}.wants" / _UNIT).unlink(missing_ok=True)
        if there:
            self._systemctl("daemon-reload")

    def restore(self, before: Installed) -> None:
        if self.file.exists() and self.file.read_bytes() == before.data and self.is_running() == before.runs:
            return
        _write(self.file, before.data)
        self._do(("daemon-reload",), ("restart" if before.runs else "stop", _UNIT))

    def _do(self, *commands: tuple[str, ...]) -> None:
        for words in commands:
            done = self._systemctl(*words)
            if done.returncode:
                raise NoServiceManager(f"systemctl {words[0]}: {_said(done)}")

    def _systemctl(self, *words: str) -> "subprocess.CompletedProcess[str]":
        of = () if self._of_system else ("--user",)
        return _run(("systemctl", *of, "--no-ask-password", *words))


class Launchd:
    """An agent of the person's login session."""

    name = "launchd"

    @property
    def file(self) -> Path:
        return Path.home() / "Library" / "LaunchAgents" / f"{_LABEL}.plist"

    def render(self, program: RelayProgram) -> bytes:
        return plistlib.dumps(
            {
                "Label": _LABEL,
                "ProgramArguments": list(program.command),
                "WorkingDirectory": "/",
                "RunAtLoad": True,
                "KeepAlive": {"SuccessfulExit": False},
                "ExitTimeOut": STOP_SECONDS,
                "Umask": 0o077,
                "HardResourceLimits": {"Core": 0},
                "StandardOutPath": os.devnull,
                "StandardErrorPath": str(program.directory / "relay.log"),
            }
        )

    def installed(self) -> Installed | None:
        return Installed(self.file.read_bytes(), self.is_running()) if self.file.exists() else None

    def is_running(self) -> bool:
        try:
            return "state = running" in _run(("launchctl", "print", self._target)).stdout
        except NoServiceManager:
            return False

    def install(self, program: RelayProgram) -> str:
        _run(("launchctl", "bootout", self._target))
        _write(self.file, self.render(program))
        self._start()
        return f"{self.file} starts it when you log in, and it ends when you log out."

    def restore(self, before: Installed) -> None:
        _run(("launchctl", "bootout", self._target))
        _write(self.file, before.data)
        if before.runs:
            self._start()

    def uninstall(self) -> None:
        if self.file.exists():
            _run(("launchctl", "bootout", self._target))
        self.file.unlink(missing_ok=True)

    def _start(self) -> None:
        for words in (("enable", self._target), ("bootstrap", self._domain, str(self.file))):
            done = _run(("launchctl", *words))
            if done.returncode:
                raise NoServiceManager(f"launchctl {words[0]}: {_said(done)}")

    @property
    def _domain(self) -> str:
        return f"gui/{os.getuid()}"

    @property
    def _target(self) -> str:
        return f"{self._domain}/{_LABEL}"


class TaskScheduler:
    """A task at the person's logon."""

    name = "Task Scheduler"
    file = None

    def installed(self) -> Installed | None:
        found = _run(("schtasks", "/Query", "/TN", _TASK, "/XML"))
        return None if found.returncode else Installed(found.stdout.encode(), self.is_running())

    def is_running(self) -> bool:
        return '"Running"' in _run(("schtasks", "/Query", "/TN", _TASK, "/FO", "CSV", "/NH")).stdout

    def install(self, program: RelayProgram) -> str:
        command = subprocess.list2cmdline(program.command)
        _run(("schtasks", "/End", "/TN", _TASK))
        self._do("/Create", "/TN", _TASK, "/SC", "ONLOGON", "/RL", "LIMITED", "/TR", command, "/F")
        self._do("/Run", "/TN", _TASK)
        return f"The task {_TASK} starts it when you log on."

    def restore(self, before: Installed) -> None:
        _run(("schtasks", "/End", "/TN", _TASK))
        with TemporaryDirectory() as folder:
            file = Path(folder) / "task.xml"
            file.write_text(before.data.decode(), encoding="utf-16")
            self._do("/Create", "/TN", _TASK, "/XML", str(file), "/F")
        if before.runs:
            self._do("/Run", "/TN", _TASK)

    def uninstall(self) -> None:
        if self.installed() is not None:
            _run(("schtasks", "/End", "/TN", _TASK))
            self._do("/Delete", "/TN", _TASK, "/F")

    def _do(self, *words: str) -> None:
        done = _run(("schtasks", *words))
        if done.returncode:
            raise NoServiceManager(f"schtasks {words[0]}: {_said(done)}")


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    program = which(command[0])
    if program is None:
        raise NoServiceManager(f"there is no {command[0]} on this machine")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CRYSTAL_")}
    try:
        return subprocess.run(
            [program, *command[1:]],
            env=environment | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=CALL_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoServiceManager(f"{command[0]} did not answer within {CALL_SECONDS_MAX:.0f} seconds") from None


def _said(done: "subprocess.CompletedProcess[str]") -> str:
    text = " ".join((done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").split())
    return text[:_SAID_CHARS]


def _check_ours(file: Path) -> None:
    if file.exists() and MARK not in file.read_text(encoding="utf-8", errors="replace"):
        raise BadRequest(
            f"{file} was not written by `crystal-relay up`",
            hint="Move it away first, or keep the relay that it starts.",
        )


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as written:
        written.write(data)
        written.flush()
        os.fsync(descriptor)
    temporary.replace(file)


def _quoted(text: str, *, argument: bool = False) -> str:
    """A quoted word of a unit. ``argument``: after a command's first word, where systemd expands variables."""
    if not text.isprintable():
        raise BadRequest(
            f"{text!r} holds characters that no service file can hold", hint="Choose another --store."
        )
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text.replace("$", "$$") if argument else text}"'
