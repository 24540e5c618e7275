"""Recall without the background service: by words alone, since loading a model takes longer than a hook may."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from crystal_node.search.recall.hook import HookInput, Recalled, output, read_input

if TYPE_CHECKING:
    from crystal_node.base.settings import Settings
    from crystal_node.search.recall.time_limit import TimeLimit


def answer_here(data: bytes, environment: Mapping[str, str], limit: "TimeLimit", tool: str = "") -> int:
    """Print the hook's answer, if there is time. Returns the exit code, which is always 0."""
    hook = read_input(data)
    if hook is None:
        return 0
    limit.prolong()
    try:
        from crystal_node.base.settings import resolve

        settings = resolve(environment=environment)
        if settings.vault is not None and settings.searching.recall:
            _tell(limit, hook, settings, tool)
    except Exception as error:  # noqa: BLE001  a hook that fails would stand between a person and their work
        from crystal_node.base.errors import describe
        from crystal_node.search.recall.text import not_searched

        why = describe(error).message
        failed = Recalled(not_searched(why), f"Crystal could not search its memory: {why}")
        limit.tell(output(hook.hook_event_name, failed, tool))
    return 0


def _tell(limit: "TimeLimit", hook: HookInput, settings: "Settings", tool: str) -> None:
    from crystal_node.base.clock import now_ms
    from crystal_node.search.finding.finder import Finder
    from crystal_node.search.recall.selection import recall

    with ExitStack() as closing:
        recalled = recall(
            hook, settings, lambda: closing.enter_context(Finder(settings)), now_ms(), words_only=True
        )
        if limit.tell(output(hook.hook_event_name, recalled, tool)):
            from crystal_node.search.recall.notes import told  # not needed for the answer

            told(recalled, settings, now_ms())
