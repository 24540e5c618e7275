"""Which service manager this system has."""

import sys

from crystal_node.agent.service.launchd import Launchd
from crystal_node.agent.service.manager import Manager
from crystal_node.agent.service.program import program_of
from crystal_node.agent.service.systemd import Systemd
from crystal_node.agent.service.taskscheduler import TaskScheduler
from crystal_node.base.settings import Settings
from crystal_node.base.settings.user_session import surroundings

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
