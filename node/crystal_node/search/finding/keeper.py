"""The one memory that a server keeps open between questions: the background service's, the gateway's and the MCP server's.

::

    first question ──► open ──► kept ──► question, question, …
                        ▲         │ the file is another one (a restore), the settings changed, a question failed by its
                        │         │ database, or nobody asked for a while
                        └─────────┴──► closed, once the questions that are under way have ended

A server lives for days or weeks. Meanwhile the settings may change, the home may be set up or taken down, a restore may put
another database in place. So each question looks at both first, reads a changed configuration file and opens a changed database
file. A question that is under way ends on what it began with.

After a while without questions everything is closed, the index and the model with it.
"""

import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import apsw

from crystal_core.errors import VaultDataError
from crystal_node.base.errors import ExitCode, NotSetUp, describe
from crystal_node.base.settings import Settings
from crystal_node.search.conversation_documents import Conversations
from crystal_node.search.finding.client import MemoryClient
from crystal_node.search.finding.documents import MemorySearch

IDLE_SECONDS = 300.0
"""Memory and index are closed after so long without a question."""

T = TypeVar("T")
_Stamp = tuple[int, int, int, int]
_BROKEN = (VaultDataError, apsw.Error, OSError)
"""The next question begins with the file that is there then."""


class OpenMemory(MemorySearch, Conversations, Protocol):
    """A memory that is open until it is closed."""

    def close(self) -> None: ...


@dataclass
class _Open:
    """One opened memory and the count of its users. ``over``: it is closed when the last of them is done."""

    memory: OpenMemory
    database: _Stamp | None
    settings: Settings
    users: int = 0
    over: bool = False


class Keeper:
    """See the module. Used by any thread."""

    def __init__(
        self,
        settings_now: Callable[[], Settings],
        clock: Callable[[], float] = time.monotonic,
        idle_seconds: float = IDLE_SECONDS,
        open_memory: Callable[[Settings], OpenMemory] = MemoryClient,
    ) -> None:
        """``settings_now`` resolves the settings as they are at its call."""
        self._settings_now = settings_now
        self._open_memory = open_memory
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._settings: Settings | None = None
        self._config: _Stamp | None = None
        self._open: _Open | None = None
        self._used_at = clock()

    def settings(self) -> Settings:
        """The settings as they are now. Raises BadConfig, NotSetUp."""
        with self._lock:
            return self._current()

    @contextmanager
    def finding(self) -> Generator[OpenMemory]:
        """The memory, for one question.

        Raises:
            NotSetUp, BadConfig, VaultDataError: it cannot be opened.
        """
        with self._lock:
            opened = self._opened()
            opened.users += 1
        try:
            yield opened.memory
        except Exception as error:
            if isinstance(error, _BROKEN) or describe(error).exit_code == ExitCode.UNEXPECTED:
                with self._lock:
                    self._retire(opened)
            raise
        finally:
            with self._lock:
                self._used_at = self._clock()
                opened.users -= 1
                self._close_if_over(opened)

    def ask(self, question: Callable[[OpenMemory], T]) -> T:
        """The answer. A memory that fails is opened anew, once. Raises what ``finding`` and the question raise."""
        with suppress(*_BROKEN), self.finding() as found:
            return question(found)
        with self.finding() as found:
            return question(found)

    def rest(self) -> bool:
        """Lets go of everything if nobody has asked for long. Returns whether it did."""
        with self._lock:
            opened = self._open
            if opened is None or opened.users or self._clock() - self._used_at < self._idle_seconds:
                return False
            self._retire(opened)
            return True

    def close(self) -> None:
        """Lets go of everything; what is still under way closes it when it ends."""
        with self._lock:
            if self._open is not None:
                self._retire(self._open)

    def _current(self) -> Settings:
        config = None if self._settings is None else _stamp(self._settings.home.config_file)
        if self._settings is None or config != self._config:
            self._settings = self._settings_now()
            self._config = _stamp(self._settings.home.config_file)
        if self._settings.vault is None:
            raise NotSetUp(f"{self._settings.home.root} belongs to no vault yet")
        return self._settings

    def _opened(self) -> _Open:
        settings = self._current()
        database = _stamp(settings.home.database, whole=False)
        opened = self._open
        if opened is not None and (opened.database != database or opened.settings is not settings):
            self._retire(opened)
        if self._open is None:
            self._open = _Open(self._open_memory(settings), database, settings)
        return self._open

    def _retire(self, opened: _Open) -> None:
        opened.over = True
        if self._open is opened:
            self._open = None
        self._close_if_over(opened)

    def _close_if_over(self, opened: _Open) -> None:
        if opened.over and not opened.users:
            opened.memory.close()


def _stamp(path: Path, *, whole: bool = True) -> _Stamp | None:
    """What tells one state of a file from another; without ``whole`` only which file it is. None if there is none."""
    with suppress(OSError):
        found = os.stat(path)  # noqa: PTH116  no Path is made for a call that each question makes
        mark = (found.st_mtime_ns, found.st_size) if whole else (0, 0)
        return found.st_dev, found.st_ino, mark[0], mark[1]
    return None
