"""Installing the service and starting it, up to the agent that has its home: for `crystal agent install` and `crystal up`."""

import time

from crystal_node.agent.jobs.status import holder_of
from crystal_node.agent.service.checking import check_startable
from crystal_node.agent.service.manager import Manager, ServiceState, ServiceUnavailable
from crystal_node.base.settings import Settings

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
    while (holder := holder_of(settings.home)) is None or not holder.is_agent:
        if time.monotonic() > deadline or manager.state() is not ServiceState.RUNNING:
            raise ServiceUnavailable(
                "the service was started, and no agent runs", hint="`crystal agent logs` says why."
            )
        time.sleep(_LOOK_SECONDS)
    return ""


def _by_hand(settings: Settings, manager: Manager) -> str:
    """What to say if a process that the manager did not start has this home: the service has to wait for its end."""
    holder = holder_of(settings.home)
    if holder is None or manager.state() is ServiceState.RUNNING:
        return ""
    who = f"process {holder.pid} ({holder.purpose})" if holder.pid is not None else "another process"
    return f"It takes over when {who} ends, which was started by hand and watches this home."
