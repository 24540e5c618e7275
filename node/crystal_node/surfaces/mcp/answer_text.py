"""Status and memories as text that a model reads."""

from crystal_core.memories import Memory
from crystal_mirror.operations import CONFIDENCE_MAX
from crystal_node.base.text_ids import SHOWN_DIGITS
from crystal_node.base.wording import counted, iso, one_line
from crystal_node.search.tokens import cut_to_tokens, estimated_tokens
from crystal_node.surfaces.mcp.answers import StatusAnswer
from crystal_node.surfaces.mcp.arguments import MemoriesArguments
from crystal_node.surfaces.mcp.budget import Need, allotted
from crystal_node.surfaces.mcp.fence import Fence, name, visible
from crystal_node.surfaces.mcp.search_answer import SLACK, moment

MEMORY_TOKENS_MIN = 100
"""A memory that is longer may be cut to as many."""
_ENDING_TOKENS = 50


def status_text(answer: StatusAnswer) -> str:
    """The status of the memory."""
    lead = "the Core" if answer.role == "core" else "a Node"
    texts, memories = counted(answer.texts, "text"), counted(answer.memories, "memory", "memories")
    said = f"Conversations are {'' if answer.recording else 'not '}recorded."
    lines = [
        f"{name(answer.device)} is {lead} of its vault, with {texts} and {memories}.",
        f"Last synced: {answer.synced_at or 'never'}. Waiting to be shared: {answer.waiting}.",
        "Private mode is on: nothing is recorded." if answer.private else said,
    ]
    lines += [f"Problem: {one_line(each.text, 500)} {one_line(each.remedy, 500)}" for each in answer.problems]
    return "\n".join(lines)


def memories_text(found: list[Memory], total: int, given: MemoriesArguments) -> str:
    """A list of memories, within its tokens."""
    if not found:
        return cut_to_tokens("There are no memories of that kind.", given.max_tokens)
    fence = Fence(each.text for each in found)
    intro = f"{counted(total, 'memory', 'memories')} in all. {fence.explanation}"
    texts = [visible(each.text) for each in found]
    frames = [estimated_tokens(f"\n\n{_about(each)}\n{fence.around('')}") for each in found]
    needs = [
        Need(frame + min(size, MEMORY_TOKENS_MIN), frame + size)
        for frame, size in zip(frames, map(estimated_tokens, texts), strict=True)
    ]
    room = given.max_tokens - estimated_tokens(intro) - _ENDING_TOKENS
    shares = allotted(needs, room)
    if not shares:
        wanted = given.max_tokens - room + needs[0].least + SLACK
        return cut_to_tokens(
            f"{given.max_tokens} tokens are too few: give max_tokens {wanted}.", given.max_tokens
        )
    lines, is_cut = [intro], False
    for each, text, frame, share in zip(found, texts, frames, shares, strict=False):
        shown = cut_to_tokens(text, share - frame)
        is_cut = is_cut or shown != text
        lines += ["", _about(each), fence.around(shown)]
    beyond = given.offset + len(shares)
    said = ["… marks what is cut: crystal_open gives it whole."] if is_cut else []
    if beyond < total:
        said.append(f"{total - beyond:,} more: offset {beyond}.")
    return "\n".join([*lines, *(["", " ".join(said)] if said else [])])


def _about(each: Memory) -> str:
    where = f"for project {name(each.scope)}" if each.scope else "for everywhere"
    parts = [moment(iso(each.created_at) or ""), name(each.category), each.status.value, where]
    if each.confidence < CONFIDENCE_MAX:
        parts.append(f"confidence {each.confidence}")
    return " | ".join([*parts, f"id {each.id.hex()[:SHOWN_DIGITS]}"])
