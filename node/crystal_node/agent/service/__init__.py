"""The system's service manager: starts the agent when the person logs in, and again when it fell over.

::

    manager_for(settings) --> systemd --user   a unit             Linux
                              launchd          a property list    macOS
                              Task Scheduler   a task             Windows

All three write one file that only its owner reads, with absolute paths and without any secret, and then speak with the system's
own command.
"""

from crystal_node.agent.service.manager import Manager, NotInstalled, ServiceState, ServiceUnavailable
from crystal_node.agent.service.managers import manager_for

__all__ = ["Manager", "NotInstalled", "ServiceState", "ServiceUnavailable", "manager_for"]
