"""The steps of `crystal down` and `crystal uninstall`: remove what was installed in this system and in other programs.

The home is not touched: what was recorded stays, and settings are there for the next `crystal up`.
"""

from contextlib import suppress
from pathlib import Path

from crystal_node.agent.hooks.every_tool import hooks_of
from crystal_node.agent.hooks.jsondocument import DamagedDocument
from crystal_node.agent.service import ServiceState, manager_for
from crystal_node.agent.service.control import stop_agent
from crystal_node.base.locking import is_held
from crystal_node.base.settings import Settings
from crystal_node.surfaces.mcp.clients.installation import McpClients
from crystal_node.surfaces.mcp.clients.places import McpClient
from crystal_node.surfaces.setup.steps import SetupStep, for_each


def down_plan(settings: Settings) -> list[SetupStep]:
    """The plan of `crystal down`. It also stops a background service that was started by hand."""
    hooks = hooks_of(settings)

    def take_hooks() -> str:
        return ", ".join(str(each.file) for each in for_each(hooks, lambda each: each.uninstall()))

    def take_service() -> str:
        manager = manager_for(settings)
        file = manager.file
        manager.uninstall()
        return str(file)

    def stop() -> str:
        stopped = stop_agent(settings, manager_for(settings))
        return f"after {stopped.seconds:.1f} s"

    return [
        SetupStep(
            "service",
            "remove the background service",
            lambda: manager_for(settings).state() is ServiceState.ABSENT,
            take_service,
        ),
        SetupStep(
            "agent", "stop the background service", lambda: not is_held(settings.home.watch_lock), stop
        ),
        SetupStep(
            "hooks",
            "remove the hooks from AI tools",
            lambda: all(each.absent for each in hooks),
            take_hooks,
        ),
    ]


def uninstall_plan(settings: Settings) -> list[SetupStep]:
    """The plan of `crystal uninstall`, without removing the home."""
    agents = McpClients(settings)

    def take_entries() -> str:
        files: list[Path] = []

        def take(client: McpClient) -> bool:
            files.extend(agents.uninstall(client))
            return True

        for_each(agents.all, take)
        return ", ".join(map(str, files))

    def nothing_left() -> bool:
        with suppress(DamagedDocument):  # what is wrong, the removal says
            return not any(agents.leaves(client) for client in agents.all)
        return False

    return [
        *down_plan(settings),
        SetupStep(
            "mcp",
            "remove Crystal's MCP server from other programs",
            nothing_left,
            take_entries,
        ),
    ]
