"""The one who answers: this device's memory, opened once, with its index and its model kept from one question to the next.

A ``Finder`` may be asked by several threads; they take turns. It reads only, and needs neither keys nor network for a fast
search.
"""

import threading
import time
from contextlib import ExitStack
from typing import Protocol, Self

from crystal_core.database import Database
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.scope import Scope
from crystal_core.search import Hit, Searcher
from crystal_node.clock import now_ms
from crystal_node.errors import NotSetUp
from crystal_node.finding.documents import (
    Depth,
    Kind,
    ResultDocument,
    SearchDocument,
    SearchRequest,
    ShowDocument,
    ShowRequest,
)
from crystal_node.settings import Settings
from crystal_node.timespans import parse_since
from crystal_node.wording import iso


class Finding(Protocol):
    """Whoever answers: a ``Finder`` here, or the running agent's."""

    def search(self, request: SearchRequest) -> SearchDocument:
        """Raises Usage (a filter that cannot be used), EmptyQuery, VaultDataError."""
        ...

    def show(self, request: ShowRequest) -> ShowDocument:
        """Raises Usage, NoSuchEntry, VaultDataError."""
        ...


class Finder:
    """See the module. Close it, or use it as a context."""

    def __init__(self, settings: Settings) -> None:
        """Raises NotSetUp, VaultDataError."""
        if settings.vault is None:
            raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
        self._lock = threading.Lock()
        self._closing = ExitStack()
        self._database = self._closing.enter_context(Database.open(settings.home.database))
        self._embedder = self._closing.enter_context(BuiltinEmbedder(threads=1))
        self._searcher = Searcher(self._database, self._embedder)

    def search(self, request: SearchRequest) -> SearchDocument:
        """See ``Finding``."""
        began = time.perf_counter()
        now = now_ms()
        scope = Scope(
            agent=request.agent or None,
            since_ms=parse_since(request.since, now) if request.since else None,
        )
        with self._lock:
            found = self._searcher.search(
                request.query,
                now_ms=now,
                limit=request.limit,
                agent=scope.agent,
                since_ms=scope.since_ms,
            )
        return SearchDocument(
            query=request.query,
            mode=found.mode.value,
            depth=Depth.FAST,
            note=found.note,
            more=False,
            results=[_result(hit) for hit in found.hits],
            took_ms=round((time.perf_counter() - began) * 1000, 3),
        )

    def show(self, request: ShowRequest) -> ShowDocument:
        """See ``Finding``."""
        raise NotImplementedError

    def release(self) -> None:
        """Gives the model's memory back; the next search by meaning loads it again."""
        self._embedder.release()

    def close(self) -> None:
        with self._lock:
            self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _result(hit: Hit) -> ResultDocument:
    return ResultDocument(
        id=hit.id,
        text=hit.text,
        snippet=hit.text,
        marks=[],
        score=round(hit.score, 6),
        kind=Kind.MEMORY if hit.category else Kind.CONVERSATION,
        agent=hit.agent,
        session=hit.session,
        role=hit.role,
        created_at=iso(hit.created_at) or "",
        project=hit.project,
        repository=hit.repository,
        source=hit.source,
        freshness=hit.freshness.value,
        memory=hit.category,
        provisional=hit.provisional,
    )
