"""Recall without the background service: by words alone, since loading a model takes longer than a hook may."""

import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from crystal_node.search.recall.hook import HookInput, Recalled, output, read_input

if TYPE_CHECKING:
    from crystal_node.base.settings import Settings

SECONDS_MAX = 0.28
"""From the start of Python's own work until an answer, whatever it says."""


def answer_here(data: bytes, environment: Mapping[str, str]) -> int:
    """Print the hook's answer in time. Returns the exit code, which is always 0."""
    began = time.monotonic()
    hook = read_input(data)
    if hook is None:
        return 0
    telling = _Answer(hook.hook_event_name)
    try:
        from crystal_node.base.settings import resolve

        settings = resolve(environment=environment)
        if settings.vault is None or not settings.searching.recall:
            return 0
        timer = threading.Timer(max(SECONDS_MAX - (time.monotonic() - began), 0.0), telling.too_late)
        timer.daemon = True
        timer.start()
        try:
            _tell(telling, hook, settings)
        finally:
            timer.cancel()
    except Exception as error:  # noqa: BLE001  a hook that fails would stand between a person and their work
        from crystal_node.base.errors import describe

        telling.failed(describe(error).message)
    return 0


def answer_too_late(data: bytes) -> int:
    """Print that there was no answer in time. Returns 0."""
    hook = read_input(data)
    if hook is not None:
        _Answer(hook.hook_event_name).failed("no answer in time")
    return 0


class _Answer:
    """Prints one answer, once and whole: what was found, or that time ran out."""

    def __init__(self, moment: str) -> None:
        self._moment = moment
        self._once = threading.Lock()
        self._printed = threading.Event()

    def tell(self, recalled: Recalled) -> bool:
        """False if something was said before; it is printed then. So whoever ends the process ends no half answer."""
        if not self._once.acquire(blocking=False):
            self._printed.wait()
            return False
        try:
            sys.stdout.buffer.write(output(self._moment, recalled))
            sys.stdout.buffer.flush()
        finally:
            self._printed.set()
        return True

    def failed(self, why: str) -> None:
        from crystal_node.search.recall.text import not_searched

        self.tell(Recalled(not_searched(why), f"Crystal could not search its memory: {why}"))

    def too_late(self) -> None:
        self.failed("no answer in time; with the agent in the background it is quicker: crystal up")
        os._exit(0)


def _tell(telling: _Answer, hook: HookInput, settings: "Settings") -> None:
    from contextlib import ExitStack

    from crystal_node.base.clock import now_ms
    from crystal_node.search.finding.finder import Finder
    from crystal_node.search.recall.selection import recall

    with ExitStack() as closing:
        recalled = recall(
            hook, settings, lambda: closing.enter_context(Finder(settings)), now_ms(), words_only=True
        )
        if telling.tell(recalled):
            from crystal_node.search.recall.notes import told  # not needed for the answer

            told(recalled, settings, now_ms())
