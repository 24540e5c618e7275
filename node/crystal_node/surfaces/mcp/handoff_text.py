"""A session packed for another tool, as one text within a number of tokens.

Sections of facts come first, each with a share of the room; the last turns get what is left, the latest first. Recorded text
stands in fences (``fence``): the other tool's model is told that it is data, and whose request it is to follow.
"""

from collections.abc import Iterable, Sequence

from crystal_node.base.wording import one_line
from crystal_node.derive.resume.handoff import Handoff
from crystal_node.derive.sessions.layout import Head
from crystal_node.search.tokens import cut_to_tokens, estimated_tokens
from crystal_node.surfaces.mcp.fence import Fence, name, visible

HANDOFF_TOKENS = 6_000
HANDOFF_TOKENS_MIN = 500
_SHARES = (
    ("Goal", 0.12),
    ("Summary", 0.15),
    ("Decisions", 0.12),
    ("Files written", 0.08),
    ("Failed", 0.12),
    ("Open", 0.1),
)
_TURN_TOKENS_MIN = 30


def handoff_text(head: Head, device: str, found: Handoff, tokens_max: int = HANDOFF_TOKENS) -> str:
    """The whole text; it costs at most ``tokens_max`` tokens. ``device``: the name of the machine that has the session."""
    parts: dict[str, Sequence[str]] = {
        "Goal": [found.goal] if found.goal else [],
        "Summary": [found.summary] if found.summary else [],
        "Decisions": _bullets(found.decisions),
        "Files written": _bullets(found.files),
        "Failed": _bullets(found.failed),
        "Open": _bullets(found.open),
    }
    fence = Fence([*(line for part in parts.values() for line in part), *(text for _, text in found.turns)])
    lines = [_about(head, device), fence.explanation]
    room = (
        tokens_max
        - estimated_tokens("\n".join(lines))
        - estimated_tokens("\nLast turns, the latest at the end:\n")
    )
    for title, share in _SHARES:
        text = _cut(parts[title], min(int(tokens_max * share), room - _frame(fence, title)))
        if text:
            block = f"\n{title}:\n{fence.around(text)}"
            lines.append(block)
            room -= estimated_tokens(block + "\n")
    turns: list[str] = []
    for role, text in reversed(found.turns):
        who = "The person" if role == "user" else "The model"
        left = room - _frame(fence, who)
        cut = cut_to_tokens(visible(text), left) if left >= _TURN_TOKENS_MIN else ""
        if not cut:
            break
        turns.append(f"{who}:\n{fence.around(cut)}")
        room -= estimated_tokens(turns[-1] + "\n")
    if turns:
        lines += ["\nLast turns, the latest at the end:", *reversed(turns)]
    return "\n".join(lines)


def _about(head: Head, device: str) -> str:
    where = head.repository or head.cwd
    facts = [f"of {name(head.tool)} on {name(device)}", f"in {name(where)}" if where else ""]
    facts += [
        f"on branch {name(head.branch)}" if head.branch else "",
        f"at commit {one_line(head.commit, 12)}" if head.commit else "",
    ]
    return (
        f"Go on with the work of this session {', '.join(each for each in facts if each)}. Read below what was done, look at "
        "the files as they are before you rely on it, and say in a few sentences where things stand before you change anything."
    )


def _bullets(texts: Iterable[str]) -> list[str]:
    return [f"- {text}" for text in texts]


def _frame(fence: Fence, title: str) -> int:
    return estimated_tokens(f"\n{title}:\n{fence.around('')}\n")


def _cut(texts: Sequence[str], tokens: int) -> str:
    """The latest of them that have room; of a single one its beginning."""
    if tokens <= 0 or not texts:
        return ""
    if len(texts) == 1:
        return cut_to_tokens(visible(texts[0]), tokens)
    kept: list[str] = []
    for text in reversed(texts):
        tokens -= estimated_tokens(visible(text) + "\n")
        if tokens < 0:
            break
        kept.append(visible(text))
    return "\n".join(reversed(kept))
