"""The tool that lists sessions of all machines, and packs one for the agent that asks."""

from crystal_node.base.clock import now_ms
from crystal_node.base.wording import ago, one_line
from crystal_node.derive.resume.rows import SessionRow
from crystal_node.derive.resume.sessions import Sessions
from crystal_node.search.tokens import cut_to_tokens, estimated_tokens
from crystal_node.surfaces.mcp.arguments import SessionsArguments
from crystal_node.surfaces.mcp.calls import Call
from crystal_node.surfaces.mcp.fence import name
from crystal_node.surfaces.mcp.handoff_text import handoff_text

SESSIONS_MAX = 30
_ID_CHARS = 128


def sessions(call: Call, given: SessionsArguments) -> tuple[None, str]:
    """``crystal_sessions``."""
    found = Sessions(call.keeper.settings())
    if given.handoff:
        head = found.head(found.named(given.handoff))
        device = found.index.device_name(head.device)
        return None, handoff_text(head, device, found.handoff(head), given.max_tokens)
    found.refresh()
    words = given.query.casefold().split()
    rows = [row for row in found.index.rows() if all(word in _words(found, row) for word in words)]
    lines = [
        f"{len(rows):,} sessions, the latest first. Titles are recorded data. The person resumes one by its command."
    ]
    room = given.max_tokens - estimated_tokens(lines[0]) - 20
    now = now_ms()
    for row in rows[:SESSIONS_MAX]:
        line = _line(found, row, now)
        room -= estimated_tokens(line + "\n")
        if room < 0:
            break
        lines.append(line)
    left = len(rows) - len(lines) + 1
    return None, cut_to_tokens(
        "\n".join([*lines, *([f"{left:,} more: ask with a query."] if left else [])]), given.max_tokens
    )


def _words(found: Sessions, row: SessionRow) -> str:
    return (
        f"{row.title} {row.project} {row.tool} {found.index.device_name(row.device)} {row.session}".casefold()
    )


def _line(found: Sessions, row: SessionRow, now: int) -> str:
    when = f"{ago((now - row.updated_at) / 1000)} ago" if row.updated_at else "undated"
    where = f", in {name(row.project)}" if row.project else ""
    session = one_line(row.session, _ID_CHARS).replace("`", "'")
    return (
        f"- {name(row.title or 'untitled')}{where}, {name(row.tool)} on {name(found.index.device_name(row.device))}, {when}: "
        f"`crystal resume {session}`"
    )
