"""``crystal capture on|off|status``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crystal_node.surfaces.cli.output import emit, note, say

if TYPE_CHECKING:
    from crystal_node.base.settings import Settings
    from crystal_node.surfaces.setup.tools import AiTool


def turn(names: Sequence[str], *, on: bool, as_json: bool) -> None:
    """Turns recording on or off, as a whole or of these tools, and wakes the agent."""
    from crystal_node.base.settings import resolve
    from crystal_node.capture.adapters import TOOLS
    from crystal_node.surfaces.setup.choosing import switch

    before = resolve()
    switch(before, TOOLS, names, on=on)
    settings = resolve()
    settings.home.ask_to_look()
    changed = (before.capture.on, before.capture.without) != (settings.capture.on, settings.capture.without)
    if as_json:
        emit(_document(settings) | {"changed": changed})
        return
    what = f"The conversations of {', '.join(names)}" if names else "Conversations"
    if on and names and not settings.capture.on:
        say(f"{what} are recorded once recording is on: `crystal capture on`.")
    elif on:
        say(f"{what} are recorded, what was said meanwhile as well.")
        if not names and settings.capture.without:
            off = sorted(settings.capture.without)
            say(f"Still off: {', '.join(off)} (`crystal capture on {' '.join(off)}`).")
    else:
        say(
            f"{what} are not recorded from now on. What is said meanwhile waits, and is recorded when it is on again."
        )


def show_tools(names: Sequence[str], *, as_json: bool) -> None:
    """Each tool: found or not, on or not, how much there is, and how much of it waits."""
    from crystal_node.base.settings import resolve
    from crystal_node.capture.adapters import TOOLS
    from crystal_node.surfaces.setup.choosing import check_names
    from crystal_node.surfaces.setup.tools import find_tools, read_states

    settings = resolve()
    check_names(TOOLS, names)
    private, states = read_states(settings)
    tools = [tool for tool in find_tools(settings, states) if not names or tool.name in names]
    if as_json:
        from crystal_node.surfaces.cli.up_people import document

        emit(_document(settings) | {"private": private, "tools": [document(tool) for tool in tools]})
        return
    say("Recording is on." if settings.capture.on else "Recording is OFF: `crystal capture on` ends that.")
    if private:
        say("Private mode is ON: nothing is recorded (`crystal private off` ends it).")
    for tool in tools:
        say(f"  {tool.name:<12} {_tool_status(settings, tool)}")
        for path, problem in tool.problems:
            note(f"! {path} {problem}")


def _tool_status(settings: "Settings", tool: "AiTool") -> str:
    from crystal_node.base.clock import now_ms
    from crystal_node.base.wording import ago, counted, size

    if not tool.there:
        return "not here" if tool.wanted else "not here, and off"
    parts = ["on" if tool.wanted and settings.capture.on else "off", counted(tool.transcripts, "transcript")]
    if tool.recorded_at:
        parts.append(f"last recorded {ago(max(now_ms() - tool.recorded_at, 0) / 1000)} ago")
    parts.append(f"{size(tool.waiting)} waiting" if tool.waiting else "nothing waiting")
    return ", ".join(parts)


def _document(settings: "Settings") -> dict[str, object]:
    return {"capture": settings.capture.on, "without": sorted(settings.capture.without)}
