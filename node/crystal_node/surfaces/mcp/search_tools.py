"""The tools that only read: search, show, status, memories."""

from crystal_node.search.finding.documents import ResultDocument, SearchRequest, ShowRequest
from crystal_node.surfaces.mcp.answer_text import memories_text, search_text, show_text, status_text
from crystal_node.surfaces.mcp.answers import (
    NOTICE,
    FoundText,
    MemoriesAnswer,
    MemoryAnswer,
    PieceAnswer,
    ProblemAnswer,
    SearchAnswer,
    ShowAnswer,
    StatusAnswer,
)
from crystal_node.surfaces.mcp.arguments import (
    ANSWER_CHARS_MAX,
    MemoriesArguments,
    NoArguments,
    SearchArguments,
    ShowArguments,
)
from crystal_node.surfaces.mcp.calls import Call

MEMORY_CHARS = 4000
"""Of one memory in a list; crystal_show gives it whole."""


def search(call: Call, given: SearchArguments) -> tuple[SearchAnswer, str]:
    """``crystal_search``."""
    with call.keeper.finding() as finding:
        found = finding.search(SearchRequest.of(given))
    chars = min(given.chars, ANSWER_CHARS_MAX // max(len(found.results), 1))
    answer = SearchAnswer(
        notice=NOTICE,
        query=given.query,
        mode=found.mode,
        depth=found.depth,
        note=found.note,
        next_offset=given.offset + len(found.results) if found.more and found.results else None,
        results=[_found(result, chars) for result in found.results],
    )
    return answer, search_text(answer)


def show(call: Call, given: ShowArguments) -> tuple[ShowAnswer, str]:
    """``crystal_show``."""
    with call.keeper.finding() as finding:
        found = finding.show(ShowRequest(id=given.id, before=given.before, after=given.after))
    chars = min(given.chars, ANSWER_CHARS_MAX // len(found.pieces))
    answer = ShowAnswer(
        notice=NOTICE,
        id=found.id,
        kind=found.kind,
        agent=found.agent,
        session=found.session,
        project=found.project,
        repository=found.repository,
        source=found.source,
        path=found.path,
        title=found.title,
        memory=found.memory,
        shared=not found.provisional,
        pieces=[
            PieceAnswer(
                id=piece.id,
                text=piece.text[:chars],
                whole=len(piece.text) <= chars,
                role=piece.role,
                created_at=piece.created_at,
                asked=piece.asked,
            )
            for piece in found.pieces
        ],
    )
    return answer, show_text(answer)


def status(call: Call, _given: NoArguments) -> tuple[StatusAnswer, str]:
    """``crystal_status``."""
    from crystal_node.agent.health.status import device_status
    from crystal_node.base.wording import iso
    from crystal_node.device.activity import Activity
    from crystal_node.device.device import opened

    with opened(call.keeper.settings()) as device:
        found, name = device_status(device), device.name
    answer = StatusAnswer(
        device=name,
        role="core" if found.member.is_core else "node",
        texts=found.counts.texts,
        memories=found.counts.memories,
        forgotten=found.counts.forgotten,
        waiting=found.channels.conversations.waiting,
        synced_at=iso(found.moments.get(Activity.PULL, 0)),
        recording=call.keeper.settings().capture.on and not found.privacy.on,
        private=found.privacy.on,
        background=found.watching,
        model=found.model or None,
        problems=[ProblemAnswer(text=each.text, remedy=each.fix) for each in found.stuck],
    )
    return answer, status_text(answer)


def memories(call: Call, given: MemoriesArguments) -> tuple[MemoriesAnswer, str]:
    """``crystal_memories``."""
    from crystal_core import memories as kept
    from crystal_core.database import Database
    from crystal_node.base.wording import iso

    category = None if given.category is None else given.category.value
    with Database.open(call.keeper.settings().home.database) as database, database.snapshot():
        total = kept.count_memories(database, category=category, status=given.status)
        found = kept.memories(
            database, category=category, status=given.status, limit=given.limit, offset=given.offset
        )
    beyond = given.offset + len(found)
    answer = MemoriesAnswer(
        notice=NOTICE,
        total=total,
        next_offset=beyond if found and beyond < total else None,
        memories=[
            MemoryAnswer(
                id=each.id.hex(),
                text=each.text[:MEMORY_CHARS],
                category=each.category,
                confidence=each.confidence,
                status=each.status,
                agent=each.agent,
                created_at=iso(each.created_at) or "",
                changed_at=iso(each.changed_at) or "",
                shared=not each.pending,
            )
            for each in found
        ],
    )
    return answer, memories_text(answer)


def _found(result: ResultDocument, chars: int) -> FoundText:
    text, whole = result.text, len(result.text) <= chars
    if not whole:
        text = result.snippet if 0 < len(result.snippet) <= chars else result.text[:chars]
    return FoundText(
        id=result.id,
        text=text,
        whole=whole,
        score=result.score,
        kind=result.kind,
        agent=result.agent,
        session=result.session,
        role=result.role,
        created_at=result.created_at,
        project=result.project,
        repository=result.repository,
        source=result.source,
        path=result.path,
        title=result.title,
        freshness=result.freshness,
        memory=result.memory,
        shared=not result.provisional,
        alike=result.alike,
    )
