"""Recall by the background service: by meaning if the model is in memory, and by words alone while it is being loaded.

What a session is given is noted before it is sent, so that its next hook finds the note, and struck out again if the hook has
gone without it.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import apsw

from crystal_crypto.errors import CrystalError
from crystal_node.base.clock import now_ms
from crystal_node.search.finding.finder import Finder
from crystal_node.search.recall.hook import output, read_input
from crystal_node.search.recall.notes import told, untold
from crystal_node.search.recall.selection import recall


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What a hook prints. ``lost`` is called if the hook has gone without it."""

    body: bytes
    lost: Callable[[], None] = _nothing


def recall_of(finder: Finder, data: bytes, tool: str = "") -> HookAnswer:
    """The answer to what a hook of this tool was given."""
    hook = read_input(data)
    if hook is None:
        return HookAnswer(b"")
    ready = finder.ready
    recalled = recall(hook, finder.settings, lambda: finder, now_ms(), words_only=not ready)
    if not ready:
        finder.prepare()
    noted = None
    with suppress(OSError, apsw.Error, CrystalError):  # then it is given once more
        noted = told(recalled, finder.settings, now_ms())

    def lost() -> None:
        with suppress(OSError, apsw.Error, CrystalError):  # then it is given no more
            untold(recalled, finder.settings, noted)

    return HookAnswer(output(hook.hook_event_name, recalled, tool), lost)
