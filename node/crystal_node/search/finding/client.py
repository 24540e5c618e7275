"""Asking: by the running agent where there is one, else from this device's disk. The answers are the same."""

import socket
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import NotSetUp
from crystal_node.base.local_api import reached
from crystal_node.base.settings import Settings
from crystal_node.search.finding.documents import (
    ID_DIGITS_MAX,
    ID_DIGITS_MIN,
    QUERY_CHARS_MAX,
    Depth,
    SearchDocument,
    SearchRequest,
    ShowDocument,
    ShowRequest,
)
from crystal_node.search.finding.wire import (
    ANSWER_BYTES_MAX,
    REQUEST_BYTES_MAX,
    Failure,
    NotUnderstood,
    frame,
    has_sockets,
    read_frame,
)

if TYPE_CHECKING:
    from crystal_node.search.finding.finder import Finder

CONNECT_SECONDS_MAX = 0.5
ANSWER_SECONDS_MAX = 630.0
"""A deep search may take as long as its longest setting allows, and the fast one behind it."""

T = TypeVar("T")


class ServiceAway(Exception):
    """There is no agent that answers."""


class ServiceRefused(CrystalError):
    """What the agent said instead of an answer; the same that this process would have."""

    hint = "Ask again, or stop the agent: `crystal agent stop`."

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error, hint=failure.hint)
        self.exit_code = failure.exit_code


class MemoryClient:
    """The agent as long as it answers, from then on the disk."""

    def __init__(self, settings: Settings) -> None:
        """Raises NotSetUp."""
        if settings.vault is None:
            raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
        self._settings = settings
        self._lock = threading.Lock()
        self._here: Finder | None = None

    def search(self, request: SearchRequest) -> SearchDocument:
        """See ``Finding``. A deep search that is asked for outright is made here: its key may be in this process alone.

        What is beyond the limits is refused here as well: the agent would say it in words for programs.
        """
        outright = request.depth is Depth.DEEP or request.provider
        here = outright or not 0 < len(request.query) <= QUERY_CHARS_MAX
        answered = None if here else self._asked("search", request, SearchDocument)
        return self._disk().search(request) if answered is None else answered

    def show(self, request: ShowRequest) -> ShowDocument:
        """See ``Finding``."""
        here = not ID_DIGITS_MIN <= len(request.id) <= ID_DIGITS_MAX
        answered = None if here else self._asked("show", request, ShowDocument)
        return self._disk().show(request) if answered is None else answered

    def close(self) -> None:
        if self._here is not None:
            self._here.close()
        self._here = None

    def _disk(self) -> "Finder":
        from crystal_node.search.finding.finder import Finder

        # Threads that ask at the same time share one.
        with self._lock:
            if self._here is None:
                self._here = Finder(self._settings)
            return self._here

    def _asked(self, verb: str, request: msgspec.Struct, kind: type[T]) -> T | None:
        """The agent's answer; None if there is none to be had. Raises AnsweredError."""
        if self._here is not None:
            return None
        body = msgspec.json.encode(request)
        if len(body) > REQUEST_BYTES_MAX:
            return None
        try:
            answer = ask_agent(self._settings, verb, body)
            return msgspec.json.decode(answer, type=kind)
        except (ServiceAway, msgspec.MsgspecError):
            return None


@contextmanager
def memory_client(settings: Settings) -> Generator[MemoryClient]:
    """Whoever answers best. Raises NotSetUp."""
    asking = MemoryClient(settings)
    try:
        yield asking
    finally:
        asking.close()


def ask_agent(settings: Settings, verb: str, body: bytes) -> bytes:
    """The body of the agent's answer. Raises AgentAway, AnsweredError."""
    if not has_sockets():
        raise ServiceAway
    try:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as line:
            line.settimeout(CONNECT_SECONDS_MAX)
            with reached(str(settings.home.finder_socket)) as name:
                if name is None:
                    raise ServiceAway
                line.connect(name)
            line.settimeout(ANSWER_SECONDS_MAX)
            line.sendall(frame(verb, body))
            with suppress(OSError):
                line.shutdown(socket.SHUT_WR)
            with line.makefile("rb") as file:
                word, answer = read_frame(file, ANSWER_BYTES_MAX)
    except (OSError, NotUnderstood) as error:
        raise ServiceAway from error
    if word == "failed":
        raise ServiceRefused(msgspec.json.decode(answer, type=Failure))
    if word != "ok":
        raise ServiceAway
    return answer
