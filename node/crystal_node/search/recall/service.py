"""Recall by the running agent: with the model if it is in memory, and if it is not, by words for this once.

What a session is given is noted before it is sent, so that its next hook finds the note, and struck out again if the hook has
gone without it.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

import apsw

from crystal_crypto.errors import CrystalError
from crystal_node.base.clock import now_ms
from crystal_node.search.finding.serving import Answered
from crystal_node.search.recall.hook import output, read_input
from crystal_node.search.recall.selection import recall, told, untold

if TYPE_CHECKING:
    from crystal_node.search.finding.finder import Finder


def recall_of(finder: "Finder", data: bytes) -> Answered:
    """What a hook prints, for what it was given."""
    hook = read_input(data)
    if hook is None:
        return Answered(b"")
    ready = finder.ready
    recalled = recall(hook, finder.settings, lambda: finder, now_ms(), words_only=not ready)
    if not ready:
        finder.prepare()
    with suppress(OSError, apsw.Error, CrystalError):  # then it is given once more
        told(recalled, finder.settings, now_ms())

    def lost() -> None:
        with suppress(OSError, apsw.Error, CrystalError):  # then it is given no more
            untold(recalled, finder.settings)

    return Answered(output(hook.hook_event_name, recalled), lost)
