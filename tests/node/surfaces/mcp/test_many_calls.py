"""One server answers call after call: by itself, quickly, with ids that open what they name, and never what was forgotten."""

import time
from pathlib import Path

import pytest

from crystal_node.search.tokens import estimated_tokens
from tests.support.machine import Machine
from tests.support.mcp_client import connected, id_of, recorded, text_of, word_of

CALLS = 20
SECONDS_MAX = 2.0
"""Of a warm call in the middle, on a busy machine; it takes some hundredths of a second."""


def _children() -> set[str]:
    """The processes of this one and of its children."""
    pending, found = ["self"], set[str]()
    while pending:
        for task in Path(f"/proc/{pending.pop()}/task").glob("*/children"):
            for child in task.read_text().split():
                found.add(child)
                pending.append(child)
    return found


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no list of children here")
async def test_a_call_starts_no_process_and_takes_no_time(memory: Machine) -> None:
    async with connected(memory) as client:
        await client.call_tool("crystal_search", {"query": "harbour crane"})
        before, took = _children(), list[float]()
        for number in range(CALLS):
            began = time.perf_counter()
            result = await client.call_tool("crystal_search", {"query": f"who services the crane {number}"})
            took.append(time.perf_counter() - began)
            assert not result.is_error
            assert _children() == before
    assert sorted(took)[CALLS // 2] < SECONDS_MAX


async def test_every_id_opens_what_it_names_and_answers_keep_to_their_tokens(memory: Machine) -> None:
    async with connected(memory) as client:
        for tokens in (1, 100, 300, 1500, 20_000):
            given = {"query": "what was decided about the sensors", "max_tokens": tokens, "nearest": True}
            found = await client.call_tool("crystal_search", given)
            assert estimated_tokens(text_of(found)) <= tokens
            for each in recorded(found):
                for whole in ("turn", "conversation"):
                    opened = await client.call_tool("crystal_open", {"id": each.id, "whole": whole})
                    assert each.id in [piece.id for piece in recorded(opened)]
                    assert opened.structured_content is None


async def test_what_was_forgotten_is_in_no_answer_of_the_same_server(memory: Machine) -> None:
    text = "The combination of the boat shed is written under the third oar."
    async with connected(memory) as client:
        identity = id_of(await client.call_tool("crystal_remember", {"text": text}))
        asked = {"query": "combination of the boat shed", "nearest": True}
        assert identity in [each.id for each in recorded(await client.call_tool("crystal_search", asked))]
        word = word_of(await client.call_tool("crystal_forget", {"ids": [identity]}))
        done = await client.call_tool("crystal_forget", {"ids": [identity], "confirm": word})
        told = [
            text_of(done),
            text_of(await client.call_tool("crystal_search", asked)),
            text_of(await client.call_tool("crystal_memories", {"status": None})),
            text_of(await client.call_tool("crystal_open", {"id": identity})),
        ]
    assert all("third oar" not in each for each in told)
