"""Ends the agent of a home: by the service manager that runs it, else by a signal to the process that holds the lock."""

import os
import signal
import time
from dataclasses import dataclass

from crystal_node.agent.jobs.status import Holder, holder_of
from crystal_node.agent.service.manager import Manager, ServiceState
from crystal_node.base.errors import HomeBusy
from crystal_node.base.settings import Settings

STOP_SECONDS_MAX = 40.0
"""A round may take 5 s to end, a job's thread 10; a service manager kills after 30."""
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Stopped:
    """``ran``: there was one to stop. ``by``: the service manager's name, or "" for a signal."""

    ran: bool
    by: str
    seconds: float


def stop_agent(settings: Settings, manager: Manager, *, seconds: float = STOP_SECONDS_MAX) -> Stopped:
    """Returns when none runs any more.

    Raises:
        HomeBusy: it did not end in time, it is not known for certain which process it is, or what runs is no agent but a
            person's own `crystal sync --watch`.
        ServiceUnavailable: the service manager refused.
    """
    started = time.monotonic()
    holder = holder_of(settings.home)
    by = ""
    if manager.state() is ServiceState.RUNNING:
        manager.stop()
        by = manager.name
        holder = holder_of(settings.home)  # one that was started by hand, for whose end the service waited
    if holder is not None:
        _signal(holder)
    while (left := holder_of(settings.home)) is not None:
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
    return Stopped(bool(by) or holder is not None, by, time.monotonic() - started)


def _signal(holder: Holder) -> None:
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
