"""`crystal mcp` as agents start it: a process, spoken to by the SDK's own client."""

import json
import sys
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceTemplateReference

from crystal_node.surfaces.mcp.arguments import SearchArguments
from crystal_node.surfaces.mcp.schemas import schema_of, told_schema
from crystal_node.surfaces.mcp.tools import TOOLS
from tests.support.machine import Machine
from tests.support.mcp_client import HELLO, connected, id_of, recorded, started, structured, text_of
from tests.support.relay_process import RelayProcess

_TOOLS = {
    "crystal_search",
    "crystal_open",
    "crystal_remember",
    "crystal_forget",
    "crystal_status",
}


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_an_agent_finds_what_was_said_before(memory: Machine, era: str) -> None:
    async with connected(memory, mode=era) as client:
        result = await client.call_tool("crystal_search", {"query": "how often is an import repeated"})
        assert not result.is_error, text_of(result)
        found = recorded(result)[0]
        assert "eleven attempts" in found.text
        assert 'someone/work" | device "' in found.head
        assert '| tool "claude-code" |' in found.head
        assert "2026-01-05T09:00Z" in found.head
        assert result.structured_content is None, "a client would hand it to the model as well, or alone"
        assert client.instructions is not None
        assert "never follow" in client.instructions
        opened = await client.call_tool("crystal_open", {"id": found.id, "before": 2, "after": 2})
        pieces = recorded(opened)
        assert ["the one asked for" in piece.head for piece in pieces].count(True) == 1
        assert len(pieces) == 3
        status = structured(await client.call_tool("crystal_status", {}))
        assert (status["role"], status["texts"], status["problems"]) == ("core", 3, [])


async def test_every_tool_tells_what_it_takes_gives_and_does(memory: Machine) -> None:
    async with connected(memory) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) >= _TOOLS
    for tool in tools.values():
        assert tool.description
        assert tool.title
        assert tool.annotations is not None
        assert tool.annotations.open_world_hint is False
        assert tool.input_schema["type"] == "object"
        assert tool.output_schema is None
        assert all("type" in field for field in tool.input_schema["properties"].values()), tool.name
    hints = {name: tool.annotations for name, tool in tools.items() if tool.annotations is not None}
    assert hints["crystal_search"].read_only_hint is True
    assert hints["crystal_forget"].destructive_hint is True
    assert hints["crystal_remember"].read_only_hint is False


async def test_what_a_model_is_told_of_all_tools_stays_short(memory: Machine) -> None:
    async with connected(memory) as client:
        tools = (await client.list_tools()).tools
    told = [
        {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
        for tool in tools
    ]
    # 1,198 tokens of o200k_base, which takes 4.4 characters of this for one; see docs/mcp.md.
    assert len(json.dumps(told, separators=(",", ":"))) <= 5_260


def test_a_models_schema_names_every_argument_and_choice_and_tells_of_none_that_is_not_there() -> None:
    for tool in TOOLS:
        known, told = schema_of(tool.arguments), told_schema(tool.arguments, tool.told)
        assert list(cast("dict[str, object]", told["properties"])) == list(
            cast("dict[str, object]", known["properties"])
        )
        assert told.get("required", []) == known.get("required", [])
        assert set(tool.told) <= set(tool.arguments.__struct_fields__), tool.name
    fields = cast("dict[str, dict[str, object]]", told_schema(SearchArguments, {})["properties"])
    assert fields["kind"]["enum"] == ["action", "conversation", "document", "memory"]
    assert fields["limit"] == {"type": "integer", "default": 5}


async def test_a_server_for_reading_alone_offers_nothing_that_changes_anything(memory: Machine) -> None:
    async with connected(memory, "--read-only") as client:
        tools = (await client.list_tools()).tools
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
        with pytest.raises(MCPError, match="no tool of that name"):
            await client.call_tool("crystal_remember", {"text": "The moon is made of cheese."})


async def test_resources_are_listed_by_pages_and_read(memory: Machine) -> None:
    async with connected(memory) as client:
        await client.list_prompts()  # from here on the server answers, not what greets in its place
        await client.read_resource("memory://recent")
        listed = await client.list_resources()
        uris = [resource.uri for resource in listed.resources]
        assert uris == ["memory://recent", "memory://memories"]
        texts = await client.list_resources(cursor=listed.next_cursor)
        uris += [resource.uri for resource in texts.resources]
        assert len(uris) == 5
        assert texts.next_cursor is None
        for uri in (uris[0], uris[2], uris[2].replace("chunk", "session")):
            (content,) = (await client.read_resource(uri)).contents
            assert "<recorded " in getattr(content, "text", "")
        templates = (await client.list_resource_templates()).resource_templates
        assert {template.name for template in templates} == {"chunk", "session"}
        for uri in ("memory://chunk/00000000000000", "memory://entity/x", "file:///etc/passwd", "memory://"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
        with pytest.raises(MCPError, match="cursor"):
            await client.list_resources(cursor="1; drop table chunks")


async def test_prompts_are_filled_with_what_the_person_asks_for(memory: Machine) -> None:
    async with connected(memory) as client:
        prompts = (await client.list_prompts()).prompts
        assert {prompt.name for prompt in prompts} >= {"recall", "summarise-what-we-know"}
        filled = await client.get_prompt("recall", {"topic": "the {harbour} crane"})
        assert "the {harbour} crane" in getattr(filled.messages[0].content, "text", "")
        with pytest.raises(MCPError, match="topic"):
            await client.get_prompt("recall", {})


async def test_two_agents_at_once_do_not_disturb_each_other(memory: Machine) -> None:
    async with connected(memory) as first, connected(memory) as second:
        found: list[int] = []

        async def ask(client: Client, query: str) -> None:
            result = await client.call_tool("crystal_search", {"query": query})
            found.append(len(recorded(result)))

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(ask, (first, second)[number % 2], "harbour crane")
        assert found == [found[0]] * 6
        assert found[0] > 0


async def test_a_home_that_is_not_set_up_is_told_and_noticed_when_it_is(
    machine: Machine, relay: RelayProcess
) -> None:
    def set_up() -> None:
        role = ("--role", "core", "--relay", relay.url, "--yes")
        machine.run("init", *role, CRYSTAL_RELAY_ENROLL_TOKEN=relay.enroll_token)
        machine.run("remember", "The tide turns at noon.")

    async with connected(machine) as client:
        result = await client.call_tool("crystal_search", {"query": "when does the tide turn"})
        assert result.is_error
        assert "crystal up" in text_of(result)
        await anyio.to_thread.run_sync(set_up)
        result = await client.call_tool("crystal_search", {"query": "when does the tide turn"})
        assert [found.text for found in recorded(result)] == ["The tide turns at noon."]


def test_when_the_client_is_gone_the_process_ends_at_once(memory: Machine) -> None:
    with started(memory) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(HELLO) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        assert answer["result"]["serverInfo"]["name"] == "crystal"
        assert _children(process.pid) == []
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stdout.read() == ""


def test_a_line_that_is_no_message_ends_nothing(memory: Machine) -> None:
    rubbish = (
        "not json",
        "{}",
        "[]",
        '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"crystal_search","arguments":{"query":"\\ud800"}}}',
        '{"jsonrpc":"2.0","id":7,"method":"no/such/method"}',
        '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":3}}',
        '{"jsonrpc":"2.0","id":null,"method":"tools/list"}',
        "[" * 5000,
    )
    with started(memory) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        process.stdin.write(json.dumps(HELLO) + "\n" + json.dumps(done) + "\n")
        for number, line in enumerate(rubbish, 99):
            ask = {"jsonrpc": "2.0", "id": number, "method": "tools/list"}
            process.stdin.write(line + "\n" + json.dumps(ask) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            while answer.get("id") != number:
                answer = json.loads(process.stdout.readline())
            assert "tools" in answer["result"], line[:80]
        process.stdin.close()
        assert process.wait(60) == 0
        assert "Traceback" not in (process.stderr.read() if process.stderr else "")


def _children(pid: int) -> list[str]:
    if sys.platform != "linux":
        return []
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    return [child for task in tasks for child in (task / "children").read_text().split()]


async def test_ids_are_completed_for_the_addresses_of_texts(memory: Machine) -> None:
    async with connected(memory) as client:
        found = await client.call_tool("crystal_search", {"query": "how often is an import repeated"})
        whole = id_of(found)
        reference = ResourceTemplateReference(type="ref/resource", uri="memory://chunk/{id}")
        completed = await client.complete(reference, {"name": "id", "value": whole[:8]})
        assert [each for each in completed.completion.values if each.startswith(whole.partition("@")[0])]
        nothing = await client.complete(reference, {"name": "id", "value": "no id"})
        assert nothing.completion.values == []
