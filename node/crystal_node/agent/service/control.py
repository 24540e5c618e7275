"""Installing the service and starting it, up to the agent that has its home: for `crystal agent install` and `crystal up`."""

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

_HOW = (
    "Write it to a file that only you can read (chmod 600), and run the command again with CRYSTAL_PASSPHRASE_FILE naming that "
    "file: the service then knows the file's name, never the passphrase."
)


def check_startable(settings: Settings) -> None:
    """Raises:
    NotSetUp: there is no vault here yet.
    PassphraseNeeded: the keys need a passphrase that nobody can type there, and no file is named.
    """
    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    found = key_report(settings)
    if found.passphrase is PassphraseState.SET and not found.passphrase_file:
        raise PassphraseNeeded(
            "this device's keys are closed by a passphrase, and nobody can type it for a service", hint=_HOW
        )


STARTS_SECONDS_MAX = 30.0
_LOOK_SECONDS = 0.05


def install_and_start(settings: Settings, manager: Manager) -> str:
    """Says what a person should know.

    Raises:
        NotSetUp, PassphraseNeeded: an agent could not start here.
        ServiceUnavailable: no manager, or the agent did not come up.
    """
    check_startable(settings)
    by_hand = _by_hand(settings, manager)
    said = manager.install()
    if manager.state() is ServiceState.RUNNING:  # with an older file, or an older version of the program
        manager.stop()
    manager.start()
    return f"{said} {by_hand}" if by_hand else f"{said} {await_agent(settings, manager)}".strip()


def start(settings: Settings, manager: Manager) -> str:
    """Starts what is installed. Raises as above, and NotInstalled."""
    by_hand = _by_hand(settings, manager)
    manager.start()
    return by_hand or await_agent(settings, manager)


def await_agent(settings: Settings, manager: Manager) -> str:
    """Returns when an agent has its home; says nothing then. Raises ServiceUnavailable."""
    deadline = time.monotonic() + STARTS_SECONDS_MAX
    while (holder := lock_holder(settings.home)) is None or not holder.is_agent:
        if time.monotonic() > deadline or manager.state() is not ServiceState.RUNNING:
            raise ServiceUnavailable(
                "the service was started, and no agent runs", hint="`crystal agent logs` says why."
            )
        time.sleep(_LOOK_SECONDS)
    return ""


def _by_hand(settings: Settings, manager: Manager) -> str:
    """What to say if a process that the manager did not start has this home: the service has to wait for its end."""
    holder = lock_holder(settings.home)
    if holder is None or manager.state() is ServiceState.RUNNING:
        return ""
    who = f"process {holder.pid} ({holder.purpose})" if holder.pid is not None else "another process"
    return f"It takes over when {who} ends, which was started by hand and watches this home."


STOP_SECONDS_MAX = 40.0
"""A round may take 5 s to end, a job's thread 10; a service manager kills after 30."""
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class StopResult:
    """``ran``: there was one to stop. ``by``: the service manager's name, or "" for a signal."""

    ran: bool
    by: str
    seconds: float


def stop_agent(settings: Settings, manager: Manager, *, seconds: float = STOP_SECONDS_MAX) -> StopResult:
    """Returns when none runs any more.

    Raises:
        HomeBusy: it did not end in time, it is not known for certain which process it is, or what runs is no agent but a
            person's own `crystal sync --watch`.
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
                f"the agent did not end within {seconds:.0f} seconds",
                hint=f"It may be killed without any loss: kill -KILL {left.pid}"
                if left.pid
                else HomeBusy.hint,
            )
        time.sleep(_POLL_SECONDS)
    return StopResult(bool(by) or holder is not None, by, time.monotonic() - started)


def _signal(holder: LockHolder) -> None:
    if holder.pid is None:
        raise HomeBusy(
            "some process watches this home, and it cannot be told which",
            hint="Stop it where it was started.",
        )
    if not holder.is_agent:
        raise HomeBusy(
            f"it is no agent that watches this home, but process {holder.pid} ({holder.purpose})",
            hint="Stop it where it was started, with Ctrl-C.",
        )
    os.kill(holder.pid, signal.SIGTERM)
