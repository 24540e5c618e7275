"""Searches and reads this device's memory: opened once, with its index and its model kept from one question to the next.

A ``Finder`` may be used by several threads, one at a time for searches and one for the list of conversations, which has a
connection of its own. It only reads, and needs neither keys nor network for a fast search.
"""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Self, TypeVar

from msgspec.structs import replace

from crystal_core.database import Database
from crystal_core.documents import DocumentPiece, document_pieces
from crystal_core.embed.port import EmbeddingError
from crystal_core.projects import ProjectKey
from crystal_core.search.filters import CONVERSATION, DOCUMENT, MEMORY, OF_SESSIONS, Scope
from crystal_core.search.hits import Hit, Mode, SearchResult
from crystal_core.search.judge import SECONDS_MAX, JudgeError
from crystal_core.search.pastes import telling_words
from crystal_core.search.search import Searcher
from crystal_core.search.turns import Turn
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NotSetUp
from crystal_node.base.lookup import StoredText, find_shown_text, place_in
from crystal_node.base.project import ProjectFinder
from crystal_node.base.settings import Settings
from crystal_node.base.text_ids import ID_DIGITS_MAX, placed_id
from crystal_node.base.wording import iso
from crystal_node.device.repositories import key_of
from crystal_node.models.embedding import VaultEmbedder
from crystal_node.models.judge import judge_for
from crystal_node.search.conversation import Transcript, transcript, turn_of
from crystal_node.search.conversation_documents import (
    ActivityDocument,
    ConversationFilter,
    ConversationRequest,
    ConversationsDocument,
    ConversationsRequest,
    ConversationTextDocument,
)
from crystal_node.search.devices import DeviceNames
from crystal_node.search.finding.deep import Deep
from crystal_node.search.finding.deep_outcome import Deepened, Fast, HitExplanation, forget_mark
from crystal_node.search.finding.documents import (
    NEAREST,
    Depth,
    PieceDocument,
    ResultDocument,
    ResultKind,
    SearchDocument,
    SearchRequest,
    ShowDocument,
    ShowRequest,
    TurnDocument,
)
from crystal_node.search.finding.project_filter import known_project
from crystal_node.search.finding.recorders import recorder, source_recorder
from crystal_node.search.finding.validation import scope_of, within_limits
from crystal_node.search.places import TextPlace, opened_place, place_to_name
from crystal_node.search.titles import titles_of

if TYPE_CHECKING:
    from crystal_node.search.conversations import ConversationList

T = TypeVar("T")

_PARTS_BEHIND = "SELECT count(DISTINCT part) FROM document_places WHERE source = ? AND path = ? AND part > ?"


class Finder:
    """See the module. Close it, or use it as a context manager."""

    def __init__(self, settings: Settings, *, worker: bool = False) -> None:
        """``worker``: the built-in embedding model runs in a process of its own. Raises NotSetUp, VaultDataError."""
        if settings.vault is None:
            raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
        self.settings = settings
        self._lock = threading.Lock()
        self._closing = ExitStack()
        self._database = self._closing.enter_context(Database.open(settings.home.database))
        self._embedder = self._closing.enter_context(VaultEmbedder(settings, self._database, worker=worker))
        self._judge, _ = judge_for(settings)
        self._searcher = Searcher(self._database, self._embedder, judge=self._judge)
        self._deep = Deep(settings)
        self._preparing: threading.Thread | None = None
        self._listing = threading.Lock()
        self._conversations: ConversationList | None = None

    def search(self, request: SearchRequest) -> SearchDocument:
        """See ``MemorySearch``."""
        began = time.perf_counter()
        request = within_limits(request)
        now, zone = now_ms(), self.settings.capture.nameless_zone()
        scope = scope_of(request, now, self.settings.person_home, zone)
        with self._lock:
            scope, unknown = known_project(self._database, scope, request.project, self.settings.person_home)
            if request.device:
                scope = replace(scope, device=DeviceNames(self._database).find(request.device))
        deep = (
            self._deep.search(request, self._fast(request, scope, now))
            if self._deep.wanted(request)
            else None
        )
        if isinstance(deep, Deepened):
            found = replace(deep.plain, hits=deep.hits, more=deep.more)
        else:
            # Recall, which alone names its projects, stands in a person's way.
            seconds = SECONDS_MAX if request.projects is None else 0.0
            with self._lock:
                ranked = self._searcher.ranked(
                    telling_words(request.query),
                    now_ms=now,
                    limit=request.limit,
                    offset=request.offset,
                    scope=scope,
                    words_only=request.words_only,
                    by=request.by,
                    thinking=request.thinking,
                    zone=zone,
                    to_be_judged=seconds > 0,
                )
            found = self._searcher.judged(ranked, seconds)  # others may search while it reads
        by_hit = deep.by_hit if isinstance(deep, Deepened) else {}
        with self._lock:
            devices = [recorder(self._database, hit) for hit in found.hits]
            names = DeviceNames(self._database)
            places = [_place(self._database, hit) for hit in found.hits]
            titles = titles_of(
                self._database, ((hit.agent, hit.session) for hit in found.hits if hit.kind in OF_SESSIONS)
            )
        return SearchDocument(
            query=request.query,
            mode=found.mode.value,
            depth=Depth.DEEP if isinstance(deep, Deepened) else Depth.FAST,
            note="; ".join(part for part in (unknown, _note(found), deep.note if deep else "") if part),
            weak=found.weak,
            more=found.more,
            results=[
                _result(
                    hit,
                    titles.get((hit.agent, hit.session), "") if hit.kind in OF_SESSIONS else hit.title,
                    (device, names.name(device)),
                    place,
                    by_hit.get(hit.id, {}),
                    explain=request.explain,
                )
                for hit, device, place in zip(found.hits, devices, places, strict=True)
            ],
            took_ms=round((time.perf_counter() - began) * 1000, 3),
            explain=deep.explain if deep and request.explain else None,
        )

    def _fast(self, request: SearchRequest, scope: Scope, now: int) -> Fast:
        """The fast searches of a deep one. The lock is not held while a model is waited for."""

        def search(words: str, limit: int, words_only: bool) -> SearchResult:
            with self._lock:
                return self._searcher.search(
                    telling_words(words),
                    now_ms=now,
                    limit=limit,
                    scope=scope,
                    words_only=words_only,
                    by=request.by,
                    thinking=request.thinking,
                    zone=self.settings.capture.nameless_zone(),
                )

        def mark() -> str:
            with self._lock:
                return forget_mark(self._database)

        return Fast(search, mark)

    def show(self, request: ShowRequest) -> ShowDocument:
        """See ``MemorySearch``."""
        request = within_limits(request)
        with self._lock:
            here = None
            if request.folder:
                here = key_of(self._database, ProjectFinder(self.settings.person_home).of(request.folder))
            return shown(self._database, request, here)

    def conversations(self, request: ConversationsRequest) -> ConversationsDocument:
        """See ``Conversations``."""
        with self._listing:
            return self._list().listed(request)

    def activity(self, request: ConversationFilter) -> ActivityDocument:
        """See ``Conversations``."""
        with self._listing:
            return self._list().activity(request)

    def conversation(self, request: ConversationRequest) -> ConversationTextDocument:
        """See ``Conversations``."""
        with self._listing:
            return self._list().read(request)

    def _list(self) -> "ConversationList":
        """The list of conversations: made again after each change of the memory, and no search waits for that. Under
        ``_listing``."""
        if self._conversations is None:
            from crystal_node.search.conversations import (
                ConversationList,  # a search in a process of its own needs none
            )

            database = self._closing.enter_context(Database.open(self.settings.home.database))
            self._conversations = ConversationList(database, self.settings.capture.nameless_zone())
        return self._conversations

    def read(self, work: Callable[[Database], T]) -> T:
        """Run queries of this device's memory, in one snapshot."""
        with self._lock, self._database.snapshot():
            return work(self._database)

    @property
    def ready(self) -> bool:
        """Whether a search by meaning neither loads a model nor asks a server first."""
        return self._embedder.loaded

    def prepare(self) -> None:
        """Load the model in the background, if it is one of this machine."""
        with self._lock:
            self._embedder.look()
        if self._preparing is None or not self._preparing.is_alive():
            self._preparing = threading.Thread(target=self._prepare, name="crystal-model", daemon=True)
            self._preparing.start()

    def _prepare(self) -> None:
        # The next search raises the same error.
        with suppress(EmbeddingError):
            self._embedder.prepare()
        with suppress(JudgeError):  # `crystal doctor` says why there is none
            if self._judge is not None:
                self._judge.prepare()

    def release(self) -> None:
        """Free the model's memory; the next search by meaning loads it again."""
        self._embedder.release()

    def close(self) -> None:
        with self._listing, self._lock:
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
        notes.append(NEAREST)
    if found.judge_note:
        notes.append(found.judge_note)
    return "; ".join(notes)


def _place(database: Database, hit: Hit) -> str:
    one, two = (hit.source, hit.path) if hit.kind == DOCUMENT else (hit.agent, hit.session)
    if hit.kind == MEMORY:
        one = two = ""
    kind = CONVERSATION if hit.kind in OF_SESSIONS else hit.kind
    return place_to_name(database, hit.chunk, kind, one, two)


def _result(
    hit: Hit, title: str, device: tuple[str, str], place: str, deep: HitExplanation, *, explain: bool
) -> ResultDocument:
    """``device``: id and name."""
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
        title=title,
        freshness=hit.freshness.value,
        memory=hit.category,
        provisional=hit.provisional,
        device=device[0],
        device_name=device[1],
        alike=list(hit.alike),
        weak=hit.weak,
        relevance=round(hit.relevance, 4),
        turn=None if hit.turn is None else _turn(hit.turn),
        place=place,
        again_at=iso(hit.again_at) or "" if hit.again_at else "",
        explain=_explained(hit) | deep if explain else None,
    )


def _turn(turn: Turn) -> TurnDocument:
    return TurnDocument(
        question=turn.question,
        question_id=turn.question_id,
        answer_id=turn.answer_id,
        answered=turn.answered,
        began_at=iso(turn.began_at) or "",
        ended_at=iso(turn.ended_at) or "",
        messages=turn.messages,
    )


def _explained(hit: Hit) -> dict[str, float | int | str | None]:
    parts = hit.explanation
    by_judge: dict[str, float | int | str | None] = {}
    if parts.judge_score is not None:
        by_judge = {"judge_rank": parts.judge_rank, "judge_score": round(parts.judge_score, 4)}
    return by_judge | {
        "keyword_rank": parts.keyword_rank,
        "keyword_score": round(parts.keyword_score, 6),
        "keyword_strength": round(parts.keyword_strength, 6),
        "keyword_weight": round(parts.keyword_weight, 6),
        "vector_rank": parts.vector_rank,
        "similarity": round(parts.similarity, 6),
        "vector_strength": round(parts.vector_strength, 6),
        "fused": round(parts.fused, 6),
        "context": round(parts.context, 6),
        "recency": round(parts.recency, 6),
    }


def shown(database: Database, request: ShowRequest, here: ProjectKey | None = None) -> ShowDocument:
    """A message, memory or document's piece whole, and what stands around it. ``here``: the project that one is in.

    Raises UsageError, NoSuchEntry, and what reading the database raises.
    """
    with database.snapshot():
        found = find_shown_text(database, request.id)
        place = opened_place(database, found, place_in(request.id), here)
        if place is not None and place.kind == DOCUMENT:
            return _of_document(database, found, place, request)
        return _of_conversation(database, found, place, request)


def _of_conversation(
    database: Database, found: StoredText, place: TextPlace | None, request: ShowRequest
) -> ShowDocument:
    """A memory is shown the same way; it stands alone."""
    content = placed_id(found.id.hex(), "" if place is None else place.digits, ID_DIGITS_MAX)
    if request.turn:
        said = turn_of(database, content)
    else:
        said = transcript(database, content, before=request.before, after=request.after)
    asked = next(piece for piece in said.pieces if piece.hit)
    category = _category(database, found)
    return ShowDocument(
        id=asked.id,
        kind=ResultKind.CONVERSATION if said.session or category is None else ResultKind.MEMORY,
        agent=said.agent,
        session=said.session,
        project=said.project,
        repository=said.repository,
        source=said.source,
        path="",
        title=titles_of(database, [(said.agent, said.session)])[said.agent, said.session]
        if said.session
        else "",
        memory=category,
        provisional=asked.provisional,
        device=asked.device.hex(),
        device_name=DeviceNames(database).name(asked.device.hex()),
        before=said.before,
        after=said.after,
        pieces=_pieces(database, said),
    )


def _pieces(database: Database, said: Transcript) -> list[PieceDocument]:
    kind, one, two = (CONVERSATION, said.agent, said.session) if said.session else (MEMORY, "", "")
    return [
        PieceDocument(
            id=piece.id,
            text=piece.text,
            role=piece.role,
            agent=said.agent,
            created_at=iso(piece.created_at) or "",
            asked=piece.hit,
            place=place_to_name(database, piece.chunk, kind, one, two),
            model=piece.model,
        )
        for piece in said.pieces
    ]


def _of_document(
    database: Database, found: StoredText, place: TextPlace, request: ShowRequest
) -> ShowDocument:
    source, path = place.one, place.two
    created_at, part, title = database.rows(
        "SELECT created_at, part, title FROM document_places WHERE chunk = ? AND source = ? AND path = ?"
        " ORDER BY created_at DESC, part LIMIT 1",
        (found.chunk, source, path),
    )[0]
    before, after = (0, 0) if request.turn else (request.before, request.after)
    first = max(part - before, 0)
    pieces = [
        piece
        for piece in document_pieces(database, source, path, first=first, limit=part - first + 1 + after)
        if piece.part <= part + after
    ]
    moment = iso(created_at) or ""
    recorded_by = (source_recorder(database, source) or b"").hex()
    return ShowDocument(
        id=found.id.hex(),
        kind=ResultKind.DOCUMENT,
        agent="",
        session="",
        project="",
        repository="",
        source=source,
        path=path,
        title=title,
        memory=_category(database, found),
        provisional=bool(database.value("SELECT provisional FROM chunks WHERE rowid = ?", (found.chunk,))),
        device=recorded_by,
        device_name=DeviceNames(database).name(recorded_by),
        before=first,
        after=int(database.value(_PARTS_BEHIND, (source, path, part + after))),
        pieces=[_piece(database, place, piece, moment, asked=piece.part == part) for piece in pieces],
    )


def _piece(
    database: Database, place: TextPlace, piece: DocumentPiece, moment: str, *, asked: bool
) -> PieceDocument:
    return PieceDocument(
        id=piece.id.hex(),
        text=piece.text,
        role="",
        agent="",
        created_at=moment,
        asked=asked,
        place=place_to_name(database, piece.chunk, place.kind, place.one, place.two),
    )


def _category(database: Database, found: StoredText) -> str | None:
    category = database.value("SELECT category FROM memory_states WHERE chunk = ? LIMIT 1", (found.chunk,))
    return None if category is None else str(category)
