"""The system's service manager: starts the background service at login, and again when it fell over.

::

    manager_for(settings) --> systemd --user   a unit             Linux
                              launchd          a property list    macOS
                              Task Scheduler   a task             Windows

Each writes one file that only its owner reads, with absolute paths and without any secret, and calls the system's command.
"""

import sys

from crystal_node.agent.service.launchd import Launchd
from crystal_node.agent.service.manager import Manager, NotInstalled, ServiceState, ServiceUnavailable
from crystal_node.agent.service.program import program_of
from crystal_node.agent.service.systemd import Systemd
from crystal_node.agent.service.taskscheduler import TaskScheduler
from crystal_node.base.settings import Settings
from crystal_node.base.settings.user_session import surroundings

__all__ = ["Manager", "NotInstalled", "ServiceState", "ServiceUnavailable", "manager_for"]

_BY_PLATFORM: dict[str, type[Systemd] | type[Launchd] | type[TaskScheduler]] = {
    "darwin": Launchd,
    "win32": TaskScheduler,
}


def manager_for(settings: Settings) -> Manager:
    """This system's manager, with the service of this home. Asks it nothing yet.

    Raises:
        Unwritable: the home's path cannot stand in a service file.
    """
    return _BY_PLATFORM.get(sys.platform, Systemd)(program_of(settings), surroundings(settings.person_home))
