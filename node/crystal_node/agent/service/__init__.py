"""The system's service manager: starts the background service at login, and again when it fell over.

::

    manager_for(settings) --> systemd --user   a unit             Linux
                              launchd          a property list    macOS
                              Task Scheduler   a task             Windows

Each writes one file that only its owner reads, with absolute paths and without any secret, and calls the system's command.
"""

import sys
from typing import TYPE_CHECKING

from crystal_node.agent.service.manager import Manager, NotInstalled, ServiceState, ServiceUnavailable
from crystal_node.agent.service.program import program_of
from crystal_node.agent.service.systemd import Systemd
from crystal_node.base.settings import Settings
from crystal_node.base.settings.user_session import surroundings

if TYPE_CHECKING:
    from crystal_node.agent.service.launchd import Launchd
    from crystal_node.agent.service.taskscheduler import TaskScheduler

__all__ = ["Manager", "NotInstalled", "ServiceState", "ServiceUnavailable", "manager_for"]


def manager_for(settings: Settings) -> Manager:
    """This system's manager, with the service of this home. Asks it nothing yet.

    Raises:
        Unwritable: the home's path cannot stand in a service file.
    """
    return _of_platform()(program_of(settings), surroundings(settings.person_home))


def _of_platform() -> "type[Systemd] | type[Launchd] | type[TaskScheduler]":
    """Lazy: other systems' managers load parsers of XML, which a service at rest would keep."""
    if sys.platform == "darwin":
        from crystal_node.agent.service.launchd import Launchd

        return Launchd
    if sys.platform == "win32":
        from crystal_node.agent.service.taskscheduler import TaskScheduler

        return TaskScheduler
    return Systemd
