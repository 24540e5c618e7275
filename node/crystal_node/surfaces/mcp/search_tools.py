"""The tools that only read: search, open, status, memories."""

from crystal_node.search.finding.documents import CONTEXT_MAX, SearchRequest, ShowRequest, StatusFilter
from crystal_node.surfaces.mcp.answer_text import memories_text, status_text
from crystal_node.surfaces.mcp.answers import ProblemAnswer, StatusAnswer
from crystal_node.surfaces.mcp.arguments import (
    MemoriesArguments,
    NoArguments,
    OpenArguments,
    SearchArguments,
    Whole,
)
from crystal_node.surfaces.mcp.calls import Call
from crystal_node.surfaces.mcp.open_answer import open_text
from crystal_node.surfaces.mcp.search_answer import search_text


def search(call: Call, given: SearchArguments) -> tuple[None, str]:
    """``crystal_search``."""
    with call.keeper.finding() as finding:
        found = finding.search(SearchRequest.of(given))
    return None, search_text(found, given)


def open_one(call: Call, given: OpenArguments) -> tuple[None, str]:
    """``crystal_open``."""
    around = CONTEXT_MAX if given.whole is Whole.CONVERSATION else 0
    request = ShowRequest(id=given.id, before=around, after=around, turn=not around, folder=call.folder)
    if given.before or given.after:
        request = ShowRequest(id=given.id, before=given.before, after=given.after, folder=call.folder)
    with call.keeper.finding() as finding:
        found = finding.show(request)
    return None, open_text(found, given)


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


def memories(call: Call, given: MemoriesArguments) -> tuple[None, str]:
    """``crystal_memories``."""
    from crystal_core import memories as kept
    from crystal_core.database import Database

    category = None if given.category is None else given.category.value
    status = None if given.status in (None, StatusFilter.ANY) else kept.MemoryStatus(str(given.status))
    with Database.open(call.keeper.settings().home.database) as database, database.snapshot():
        total = kept.count_memories(database, category=category, status=status)
        found = kept.memories(
            database, category=category, status=status, limit=given.limit, offset=given.offset
        )
    return None, memories_text(found, total, given)
