"""Installing, starting and stopping the background service, by the system's service manager or without one."""

import os
import signal
import time
from dataclasses import dataclass

from crystal_crypto.errors import PassphraseNeeded
from crystal_node.agent.jobs.status import LockHolder, lock_holder
from crystal_node.agent.service.manager import Manager, ServiceState, ServiceUnavailable
from crystal_node.base.errors import HomeBusy, NotSetUp
from crystal_node.base.settings import Settings
from crystal_node.device.keys.report import PassphraseState, key_report

STARTS_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 40.0
"""A round may take 5 s to end, a job's thread 10; a service manager kills after 30."""
_POLL_SECONDS = 0.05
_HOW = (
    "Write it to a file that only you can read (chmod 600), and run the command again with CRYSTAL_PASSPHRASE_FILE naming that "
    "file: the service then knows the file's name, never the passphrase."
)


@dataclass(frozen=True, slots=True)
class StopResult:
    """``ran``: whether a process was there to stop. ``by``: the service manager's name, "" for a signal."""

    ran: bool
    by: str
    seconds: float


def install_and_start(settings: Settings, manager: Manager) -> str:
    """Installs the service and starts it. Returns what a person should know.

    Raises:
        NotSetUp, PassphraseNeeded: the service could not start here.
        ServiceUnavailable: there is no manager, or the service did not come up.
    """
    check_startable(settings)
    by_hand = _by_hand(settings, manager)
    said = manager.install()
    if manager.state() is ServiceState.RUNNING:  # with an older file, or an older version of the program
        manager.stop()
    manager.start()
    return f"{said} {by_hand}" if by_hand else f"{said} {await_agent(settings, manager)}".strip()


def start(settings: Settings, manager: Manager) -> str:
    """Starts the installed service. Raises ServiceUnavailable, NotInstalled."""
    by_hand = _by_hand(settings, manager)
    manager.start()
    return by_hand or await_agent(settings, manager)


def await_agent(settings: Settings, manager: Manager) -> str:
    """Waits until the service watches this home. Returns "". Raises ServiceUnavailable."""
    deadline = time.monotonic() + STARTS_SECONDS_MAX
    while (holder := lock_holder(settings.home)) is None or not holder.is_agent:
        if time.monotonic() > deadline or manager.state() is not ServiceState.RUNNING:
            raise ServiceUnavailable(
                "the service was started, but its process does not run", hint="`crystal agent logs` says why."
            )
        time.sleep(_POLL_SECONDS)
    return ""


def stop_agent(settings: Settings, manager: Manager, *, seconds: float = STOP_SECONDS_MAX) -> StopResult:
    """Stops the service and returns when it has ended.

    Raises:
        HomeBusy: it did not end in time, the process is not known for certain, or it is a person's own `crystal sync --watch`.
        ServiceUnavailable: the service manager refused.
    """
    started = time.monotonic()
    holder = lock_holder(settings.home)
    by = ""
    if manager.state() is ServiceState.RUNNING:
        manager.stop()
        by = manager.name
        holder = lock_holder(settings.home)  # one that was started by hand, for whose end the service waited
    if holder is not None:
        _signal(holder)
    while (left := lock_holder(settings.home)) is not None:
        if left.pid is not None and holder is not None and left.pid != holder.pid:
            break  # somebody started another one
        if time.monotonic() - started > seconds:
            raise HomeBusy(
                f"the background service did not end within {seconds:.0f} seconds",
                hint=f"It may be killed without any loss: kill -KILL {left.pid}"
                if left.pid
                else HomeBusy.hint,
            )
        time.sleep(_POLL_SECONDS)
    return StopResult(bool(by) or holder is not None, by, time.monotonic() - started)


def check_startable(settings: Settings) -> None:
    """Checks that the service could start without a terminal.

    Raises:
        NotSetUp: there is no vault here yet.
        PassphraseNeeded: the keys need a passphrase, and no file that holds it is named.
    """
    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    found = key_report(settings)
    if found.passphrase is PassphraseState.SET and not found.passphrase_file:
        raise PassphraseNeeded(
            "this device's keys are closed by a passphrase, and nobody can type it for a service", hint=_HOW
        )


def _by_hand(settings: Settings, manager: Manager) -> str:
    """What to say where a process that the manager did not start watches this home; "" else."""
    holder = lock_holder(settings.home)
    if holder is None or manager.state() is ServiceState.RUNNING:
        return ""
    who = f"process {holder.pid} ({holder.purpose})" if holder.pid is not None else "another process"
    return f"It takes over when {who} ends, which was started by hand and watches this home."


def _signal(holder: LockHolder) -> None:
    if holder.pid is None:
        raise HomeBusy(
            "some process watches this home, and it cannot be told which",
            hint="Stop it where it was started.",
        )
    if not holder.is_agent:
        raise HomeBusy(
            f"it is no background service that watches this home, but process {holder.pid} ({holder.purpose})",
            hint="Stop it where it was started, with Ctrl-C.",
        )
    os.kill(holder.pid, signal.SIGTERM)
