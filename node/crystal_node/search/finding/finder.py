"""The one who answers: this device's memory, opened once, with its index and its model kept from one question to the next.

A ``Finder`` may be asked by several threads; they take turns. It reads only, and needs neither keys nor network for a fast
search.
"""

import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Protocol, Self

from crystal_core.database import Database
from crystal_core.embed.port import EmbeddingError
from crystal_core.scope import Scope
from crystal_core.search import Hit, Mode, Searcher, SearchResult
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NotSetUp
from crystal_node.base.settings import Settings
from crystal_node.base.wording import iso
from crystal_node.models.embedding import VaultEmbedder
from crystal_node.search.finding.deep import Deep, Deepened, Fast, HitExplanation, forget_mark
from crystal_node.search.finding.documents import (
    Depth,
    ResultDocument,
    ResultKind,
    SearchDocument,
    SearchRequest,
    ShowDocument,
    ShowRequest,
)
from crystal_node.search.finding.showing import shown
from crystal_node.search.finding.validation import scope_of, within_limits


class MemorySearch(Protocol):
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
        self.settings = settings
        self._lock = threading.Lock()
        self._closing = ExitStack()
        self._database = self._closing.enter_context(Database.open(settings.home.database))
        self._embedder = self._closing.enter_context(VaultEmbedder(settings, self._database))
        self._searcher = Searcher(self._database, self._embedder)
        self._deep = Deep(settings)
        self._preparing: threading.Thread | None = None

    def search(self, request: SearchRequest) -> SearchDocument:
        """See ``MemorySearch``."""
        began = time.perf_counter()
        request = within_limits(request)
        now = now_ms()
        scope = scope_of(request, now, self.settings.person_home)
        deep = self._deep.search(request, self._fast(scope, now)) if self._deep.wanted(request) else None
        if isinstance(deep, Deepened):
            found = replace(deep.plain, hits=deep.hits, more=deep.more)
        else:
            with self._lock:
                found = self._searcher.search(
                    request.query,
                    now_ms=now,
                    limit=request.limit,
                    offset=request.offset,
                    scope=scope,
                    words_only=request.words_only,
                )
        by_hit = deep.by_hit if isinstance(deep, Deepened) else {}
        return SearchDocument(
            query=request.query,
            mode=found.mode.value,
            depth=Depth.DEEP if isinstance(deep, Deepened) else Depth.FAST,
            note="; ".join(part for part in (_note(found), deep.note if deep else "") if part),
            weak=found.weak,
            more=found.more,
            results=[_result(hit, by_hit.get(hit.id, {}), explain=request.explain) for hit in found.hits],
            took_ms=round((time.perf_counter() - began) * 1000, 3),
            explain=deep.explain if deep and request.explain else None,
        )

    def _fast(self, scope: Scope, now: int) -> Fast:
        """What a deep search is made of; nobody waits for a model with the memory in hand."""

        def search(words: str, limit: int, words_only: bool) -> SearchResult:
            with self._lock:
                return self._searcher.search(
                    words, now_ms=now, limit=limit, scope=scope, words_only=words_only
                )

        def mark() -> str:
            with self._lock:
                return forget_mark(self._database)

        return Fast(search, mark)

    def show(self, request: ShowRequest) -> ShowDocument:
        """See ``MemorySearch``."""
        with self._lock:
            return shown(self._database, within_limits(request))

    @property
    def ready(self) -> bool:
        """Whether a search by meaning loads no model and asks no server first."""
        return self._embedder.loaded

    def prepare(self) -> None:
        """Has the model loaded, in a thread of its own, if it is one of this machine."""
        with self._lock:
            self._embedder.look()
        if self._preparing is None or not self._preparing.is_alive():
            self._preparing = threading.Thread(target=self._prepare, name="crystal-model", daemon=True)
            self._preparing.start()

    def _prepare(self) -> None:
        # Whoever searches next is told of the same error.
        with suppress(EmbeddingError):
            self._embedder.prepare()

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


def _note(found: SearchResult) -> str:
    notes = [found.note] if found.note else []
    if found.note and found.mode is Mode.KEYWORD:
        notes = [f"searched by words alone: {found.note}"]
    if found.weak and found.hits:
        notes.append("nothing matches well, these come nearest")
    return "; ".join(notes)


def _result(hit: Hit, deep: HitExplanation, *, explain: bool) -> ResultDocument:
    return ResultDocument(
        id=hit.id,
        text=hit.text,
        snippet=hit.snippet,
        marks=list(hit.marks),
        score=round(hit.score, 6),
        kind=ResultKind(hit.kind),
        agent=hit.agent,
        session=hit.session,
        role=hit.role,
        created_at=iso(hit.created_at) or "",
        project=hit.project,
        repository=hit.repository,
        source=hit.source,
        path=hit.path,
        title=hit.title,
        freshness=hit.freshness.value,
        memory=hit.category,
        provisional=hit.provisional,
        alike=list(hit.alike),
        weak=hit.weak,
        explain=_explained(hit) | deep if explain else None,
    )


def _explained(hit: Hit) -> dict[str, float | int | str | None]:
    parts = hit.explanation
    return {
        "keyword_rank": parts.keyword_rank,
        "keyword_score": round(parts.keyword_score, 6),
        "keyword_strength": round(parts.keyword_strength, 6),
        "keyword_weight": round(parts.keyword_weight, 6),
        "vector_rank": parts.vector_rank,
        "similarity": round(parts.similarity, 6),
        "vector_strength": round(parts.vector_strength, 6),
        "fused": round(parts.fused, 6),
        "recency": round(parts.recency, 6),
    }
