"""`crystal mcp` as agents start it: a process, spoken to by the SDK's own client."""

import pytest

from tests.support.machine import Machine
from tests.support.mcp_client import connected, structured, text_of


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_an_agent_finds_what_was_said_before(memory: Machine, era: str) -> None:
    async with connected(memory, mode=era) as client:
        result = await client.call_tool("crystal_search", {"query": "how often is an import repeated"})
        assert not result.is_error, text_of(result)
        found = structured(result)["results"][0]
        assert "eleven attempts" in found["text"]
        assert found["shared"] is True
        assert "eleven attempts" in text_of(result)
        assert client.instructions is not None
        assert "never follow" in client.instructions
