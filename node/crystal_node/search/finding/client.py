"""Searching and reading the memory by the background service, and from this device's disk where none answers.

The answers are the same. A program asks the service over its socket (``base.local_api``); a service that is away, of another
version, or out of words is done without.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from crystal_crypto.errors import UNDECODABLE, CrystalError
from crystal_node.base import local_api
from crystal_node.base.decoding import from_json
from crystal_node.base.errors import NotSetUp
from crystal_node.base.local_api import SEARCH_SECONDS_MAX, NotUnderstood, ServiceAnswer
from crystal_node.base.settings import Settings
from crystal_node.search.conversation_documents import (
    ActivityDocument,
    ConversationFilter,
    ConversationRequest,
    ConversationsDocument,
    ConversationsRequest,
    ConversationTextDocument,
)
from crystal_node.search.finding.documents import (
    Depth,
    SearchDocument,
    SearchRequest,
    ShowDocument,
    ShowRequest,
)
from crystal_node.search.finding.validation import within_limits

if TYPE_CHECKING:
    from crystal_node.search.finding.finder import Finder

T = TypeVar("T")


class ServiceRefused(CrystalError):
    """The service's error in place of an answer; the same that this process would raise."""

    hint = "Ask again, or stop the background service: `crystal agent stop`."

    def __init__(self, message: str, hint: str, exit_code: int) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


class _Error(msgspec.Struct):
    error: str
    hint: str = ""


class MemoryClient:
    """Asks the service as long as it answers, from then on the disk. Used by any thread."""

    def __init__(self, settings: Settings) -> None:
        """Raises NotSetUp."""
        if settings.vault is None:
            raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
        self._settings = settings
        self._lock = threading.Lock()
        self._here: Finder | None = None

    def search(self, request: SearchRequest) -> SearchDocument:
        """See ``MemorySearch``. A deep search that is asked for outright is made here: its key may be in this process alone."""
        request = within_limits(request)
        outright = request.depth is Depth.DEEP or request.provider
        answered = None if outright else self._asked("POST", "/api/search", SearchDocument, request)
        return self._disk().search(request) if answered is None else answered

    def show(self, request: ShowRequest) -> ShowDocument:
        """See ``MemorySearch``."""
        request = within_limits(request)
        around = {"turn": "true"} if request.turn else {"before": request.before, "after": request.after}
        folder = {"folder": request.folder} if request.folder else {}
        target = f"/api/show/{quote(request.id, safe='')}?{urlencode(around | folder)}"
        answered = self._asked("GET", target, ShowDocument)
        return self._disk().show(request) if answered is None else answered

    def conversations(self, request: ConversationsRequest) -> ConversationsDocument:
        """See ``Conversations``."""
        answered = self._asked("GET", _target("/api/conversations", request), ConversationsDocument)
        return self._disk().conversations(request) if answered is None else answered

    def activity(self, request: ConversationFilter) -> ActivityDocument:
        """See ``Conversations``."""
        answered = self._asked("GET", _target("/api/activity", request), ActivityDocument)
        return self._disk().activity(request) if answered is None else answered

    def conversation(self, request: ConversationRequest) -> ConversationTextDocument:
        """See ``Conversations``."""
        target = _target(f"/api/conversations/{request.id}", request, without="id")
        answered = self._asked("GET", target, ConversationTextDocument)
        return self._disk().conversation(request) if answered is None else answered

    def close(self) -> None:
        if self._here is not None:
            self._here.close()
        self._here = None

    def _disk(self) -> "Finder":
        # Lazy: NumPy and the index are loaded only where no service answers.
        from crystal_node.search.finding.finder import Finder

        # Threads that ask at the same time share one.
        with self._lock:
            if self._here is None:
                self._here = Finder(self._settings)
            return self._here

    def _asked(
        self, method: str, target: str, kind: type[T], request: msgspec.Struct | None = None
    ) -> T | None:
        """The service's answer; None if there is none to be had. Raises ServiceRefused."""
        if self._here is not None:
            return None
        body = b"" if request is None else msgspec.json.encode(request)
        try:
            answer = local_api.ask(
                str(self._settings.home.root), method, target, body, seconds=SEARCH_SECONDS_MAX
            )
            return decoded_answer(answer, kind)
        except (OSError, NotUnderstood):
            return None


def _target(path: str, request: msgspec.Struct, without: str = "") -> str:
    """The address with the request's fields as its query."""
    fields = msgspec.to_builtins(request)
    return f"{path}?{urlencode({name: value for name, value in fields.items() if name != without})}".rstrip(
        "?"
    )


@contextmanager
def memory_client(settings: Settings) -> Generator[MemoryClient]:
    """A client that is closed at the end. Raises NotSetUp."""
    client = MemoryClient(settings)
    try:
        yield client
    finally:
        client.close()


def decoded_answer(answer: ServiceAnswer, kind: type[T]) -> T:
    """The document of an answer. Raises ServiceRefused, NotUnderstood."""
    try:
        if answer.good:
            return from_json(answer.body, kind)
        error = from_json(answer.body, _Error)
    except UNDECODABLE as failure:
        raise NotUnderstood("no document of this version") from failure
    if not answer.exit_code:
        raise NotUnderstood("no error of this API")
    raise ServiceRefused(error.error, error.hint, answer.exit_code)
