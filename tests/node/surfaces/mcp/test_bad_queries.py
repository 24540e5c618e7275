"""`crystal_search` over MCP and queries that nobody means well, or by mistake: one client sends them all, and is answered."""

from typing import Any

import pytest

from tests.support.bad_queries import BLANK, CHARS_MAX, ENORMOUS, ODD, PASTED
from tests.support.machine import Machine
from tests.support.mcp_client import connected, recorded, text_of

_REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"query": query}, "query") for query in BLANK),
    ({"query": ENORMOUS}, f"{CHARS_MAX:,}"),
    ({"query": ["crane"]}, "query"),
    ({"query": "crane", "since": "2026-02-30"}, "2026-02-30"),
    ({"query": "crane", "until": "someday"}, "someday"),
    ({"query": "crane", "since": "last week", "until": "2 months ago"}, "last week"),
]


async def test_whatever_is_asked_is_answered_and_the_server_goes_on(memory: Machine) -> None:
    async with connected(memory) as client:
        for name, query in ODD.items():
            result = await client.call_tool("crystal_search", {"query": query})
            assert not result.is_error, (name, text_of(result))
        for name, query in PASTED.items():
            found = recorded(await client.call_tool("crystal_search", {"query": query, "nearest": True}))
            assert any("harbour crane" in each.text for each in found), name
        for arguments, told in _REFUSED:
            result = await client.call_tool("crystal_search", arguments)
            assert result.is_error, arguments
            assert told in text_of(result), arguments
            assert len(text_of(result)) < 1000, "what was sent is not sent back"
        found = recorded(await client.call_tool("crystal_search", {"query": "harbour crane"}))
        assert "Ingrid" in found[0].text


@pytest.mark.parametrize("name", ["escapes", "control characters", "bidi", "binary"])
async def test_a_query_s_commands_do_not_come_back(memory: Machine, name: str) -> None:
    async with connected(memory) as client:
        text = text_of(await client.call_tool("crystal_search", {"query": f"crane {ODD[name]}"}))
    assert not set(text) & set("\x1b\x07\x9b\x7f\u202e\u2066")


async def test_times_and_projects_are_understood_as_people_say_them(memory: Machine) -> None:
    async with connected(memory) as client:
        within = {"query": "harbour crane", "since": "January 2026", "until": "in january 2026"}
        assert recorded(await client.call_tool("crystal_search", within))
        assert not recorded(
            await client.call_tool("crystal_search", {"query": "harbour crane", "until": "2025"})
        )
        result = await client.call_tool("crystal_search", {"query": "harbour crane", "project": "wrok"})
        assert not recorded(result)
        assert "wrok" in text_of(result)
        assert "someone/work" in text_of(result)
