"""A real Secret Service for tests: gnome-keyring on a D-Bus session of its own, with a keyring that is unlocked, or locked.

Needs the system packages dbus and gnome-keyring (`scripts/install_test_servers.py`). Nothing of the person's own session is
touched: bus, home and runtime directory are the test's.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("dbus-daemon", "dbus-send", "gnome-keyring-daemon")
PASSWORD = b"the password of the login keyring"
_SECONDS_MAX = 20.0
# The system's own configuration would start a keyring, and more, whenever somebody asks for one.
_BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={folder}/run/bus</listen>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""


def missing_programs() -> list[str]:
    """What has to be installed for it."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


@dataclass
class SecretService:
    """A bus with a keyring on it. `variables` lead a process there."""

    folder: Path
    variables: dict[str, str]
    _daemon: "subprocess.Popen[bytes] | None" = None

    def unlock(self) -> None:
        """Starts the keyring, unlocked; it is made when there is none yet."""
        self._start("--unlock", PASSWORD)
        _wait_until_open(self.variables)

    def lock(self) -> None:
        """Starts the keyring without its password, as a session does in which nobody logged in."""
        self._start("", b"")

    def stop(self) -> None:
        """Ends the keyring; the bus goes on."""
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(_SECONDS_MAX)
            if daemon.stdout is not None:
                daemon.stdout.close()

    def _start(self, option: str, password: bytes) -> None:
        self.stop()
        self._daemon = subprocess.Popen(
            ["gnome-keyring-daemon", "--foreground", "--components=secrets", *filter(None, [option])],
            env={**os.environ, **self.variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._daemon.stdin is not None
        assert self._daemon.stdout is not None
        self._daemon.stdin.write(password)
        self._daemon.stdin.close()
        # It says where its control socket is, then serves. Its name on the bus is waited for by whoever asks for it.
        self._daemon.stdout.readline()
        _wait_for_name(self.variables)


@contextmanager
def secret_service(folder: Path) -> Generator[SecretService]:
    """A private bus; no keyring on it yet."""
    for name in ("run", "data", "config"):
        (folder / name).mkdir(mode=0o700, parents=True)
    (folder / "bus.conf").write_text(_BUS.format(folder=folder))
    bus = subprocess.Popen(
        ["dbus-daemon", f"--config-file={folder}/bus.conf", "--nofork", "--print-address=1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert bus.stdout is not None
        address = bus.stdout.readline().decode().strip()
        variables = {
            "DBUS_SESSION_BUS_ADDRESS": address,
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        service = SecretService(folder, variables)
        try:
            yield service
        finally:
            service.stop()
    finally:
        bus.terminate()
        bus.wait(_SECONDS_MAX)
        if bus.stdout is not None:
            bus.stdout.close()


def _wait_until_open(variables: dict[str, str]) -> None:
    """Until its default collection is there and unlocked, which is some time after it answers."""
    deadline = time.monotonic() + _SECONDS_MAX
    place = ("--dest=org.freedesktop.secrets", "/org/freedesktop/secrets/aliases/default")
    question = ("string:org.freedesktop.Secret.Collection", "string:Locked")
    command = ["dbus-send", "--session", "--print-reply=literal", *place]
    while (
        b"false"
        not in subprocess.run(
            [*command, "org.freedesktop.DBus.Properties.Get", *question],
            env={**os.environ, **variables},
            timeout=_SECONDS_MAX,
            capture_output=True,
            check=False,
        ).stdout
    ):
        assert time.monotonic() < deadline, "the keyring does not open"
        time.sleep(0.02)


def _wait_for_name(variables: dict[str, str]) -> None:
    """Until the daemon answers on the bus."""
    deadline = time.monotonic() + _SECONDS_MAX
    bus = ("--session", "--print-reply=literal", "--dest=org.freedesktop.DBus", "/org/freedesktop/DBus")
    question = ("org.freedesktop.DBus.NameHasOwner", "string:org.freedesktop.secrets")
    while b"true" not in subprocess.check_output(
        ["dbus-send", *bus, *question], env={**os.environ, **variables}, timeout=_SECONDS_MAX
    ):
        assert time.monotonic() < deadline, "the keyring does not come up"
        time.sleep(0.02)
