"""The hooks of one home in all tools that can have them."""

from crystal_node.agent.hooks.own_files import OwnFileHooks, own_file_tools
from crystal_node.agent.hooks.tool_hooks import ToolHooks
from crystal_node.agent.hooks.tools import hooked_tools
from crystal_node.base.settings import Settings

Hooks = ToolHooks | OwnFileHooks


def hooks_of(settings: Settings) -> list[Hooks]:
    """Of all tools that can have them."""
    return [
        *(ToolHooks(settings, tool) for tool in hooked_tools(settings)),
        *(OwnFileHooks(settings, tool) for tool in own_file_tools(settings)),
    ]


def has_hooks(settings: Settings, tool: str) -> bool:
    """Whether hooks of this home are in a tool. Then those of its plugin say nothing, so that nothing is told twice."""
    return any(each.installed for each in hooks_of(settings) if each.tool.name == tool)
