"""One opened memory for all searches of a process that goes on for weeks: kept while it is good, opened anew when it is not.

::

    first question ──► open ──► kept ──► question, question, …
                        ▲         │ the file is another one (a restore), the settings changed, a question failed by its
                        │         │ database, or nobody asked for a while
                        └─────────┴──► closed
"""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TypeVar

import apsw

from crystal_core.errors import VaultDataError
from crystal_node.errors import NotSetUp
from crystal_node.finding.asking import finding
from crystal_node.finding.finder import Finding
from crystal_node.settings import Settings

T = TypeVar("T")
_BROKEN = (VaultDataError, apsw.Error, OSError)
Opening = Callable[[Settings], AbstractContextManager[Finding]]
_Mark = tuple[object, ...]


class KeptFinding:
    """See the module. Asked by several threads. ``resolve`` gives the settings as they are now."""

    def __init__(self, resolve: Callable[[], Settings], opening: Opening = finding) -> None:
        self._resolve = resolve
        self._opening = opening
        self._lock = threading.Lock()
        self._stack: ExitStack | None = None
        self._finding: Finding | None = None
        self._mark: _Mark = ()
        self._used = 0.0

    def ask(self, question: Callable[[Finding], T]) -> T:
        """The answer. A memory that fails is opened anew, once. Raises what the question raises, and NotSetUp."""
        found = self._current()
        try:
            return question(found)
        except _BROKEN:
            self._drop(found)
            return question(self._current())

    def release_if_idle(self, seconds: float) -> None:
        """Closes it if nobody asked for so long."""
        with self._lock:
            if self._finding is not None and time.monotonic() - self._used > seconds:
                self._close()

    def close(self) -> None:
        with self._lock:
            self._close()

    def _current(self) -> Finding:
        settings = self._resolve()
        if settings.vault is None:
            raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
        mark = (settings.config, _identity(settings.home.database))
        with self._lock:
            self._used = time.monotonic()
            if self._finding is not None and mark != self._mark:
                self._close()
            if self._finding is None:
                stack = ExitStack()
                self._finding = stack.enter_context(self._opening(settings))
                self._stack, self._mark = stack, (settings.config, _identity(settings.home.database))
            return self._finding

    def _drop(self, found: Finding) -> None:
        with self._lock:
            if self._finding is found:
                self._close()

    def _close(self) -> None:
        stack, self._stack, self._finding = self._stack, None, None
        if stack is not None:
            stack.close()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino
