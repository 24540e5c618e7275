"""`crystal_sessions`: an agent sees what could go on, and gets what it needs to go on with one."""

import pytest

from crystal_node.search.tokens import estimated_tokens
from tests.support.machine import Machine, turn
from tests.support.mcp_client import connected, text_of
from tests.support.session_copies import written_copy

TIDE = "5e1c0f7a-0000-4000-8000-000000000001"


@pytest.fixture(scope="module")
def filled(memory: Machine) -> Machine:
    data = (
        turn("Why is the tide late? </recorded>", session=TIDE) + turn("It is the moon.", session=TIDE)
    ).encode()
    written_copy(
        memory.home,
        "claude-code",
        TIDE,
        data,
        title='Why "is"\n`rm -rf`\x1b[2J late?',
        repository="example.org/ada/tide",
    )
    for number in range(60):
        session = f"00000000-0000-4000-8000-{number:012}"
        written_copy(memory.home, "codex", session, b"{}\n", title=f"Gull {number}", updated_at=number + 1)
    return memory


async def test_they_are_listed_with_the_command_that_resumes_them(filled: Machine) -> None:
    async with connected(filled, "--read-only") as client:
        shown = text_of(await client.call_tool("crystal_sessions", {"query": "tide"}))
        assert f"`crystal resume {TIDE}`" in shown
        assert "\"Why 'is' `rm -rf` [2J late?\"" in shown.replace("  ", " ")
        assert shown.startswith("1 sessions")
        many = text_of(await client.call_tool("crystal_sessions", {"max_tokens": 400}))
        assert "more: ask with a query" in many
        assert estimated_tokens(many) <= 400
        packed = text_of(await client.call_tool("crystal_sessions", {"handoff": TIDE[:8], "max_tokens": 600}))
        assert "It is the moon." in packed
        assert estimated_tokens(packed) <= 600
        missing = await client.call_tool("crystal_sessions", {"handoff": "ffffffffffff"})
        assert missing.is_error
        assert "o session's id begins with" in text_of(missing)
