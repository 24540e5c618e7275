"""`crystal mcp --http`: the SDK's client with the token gets in, everybody else stays out."""

from collections.abc import Generator

import anyio
import httpx2
import pytest

from tests.support.machine import Machine
from tests.support.mcp_client import HELLO, HttpServer, recorded, serving, text_of


@pytest.fixture(scope="module")
def server(memory: Machine) -> Generator[HttpServer]:
    with serving(memory) as running:
        yield running


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_several_clients_with_the_token_search_at_once(server: HttpServer, era: str) -> None:
    found: list[str] = []

    async def ask() -> None:
        async with server.connected(mode=era) as client:
            result = await client.call_tool("crystal_search", {"query": "who services the crane"})
            found.append(recorded(result)[0].text)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
    assert len(found) == 3
    assert all("Ingrid" in text for text in found)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer constructor"}, 401),
        ({"authorization": "Basic {token}"}, 401),
        ({"authorization": "Bearer {token}", "host": "evil.example:{port}"}, 421),
        ({"authorization": "Bearer {token}", "host": "127.0.0.1"}, 421),
        ({"authorization": "Bearer {token}", "origin": "https://evil.example"}, 403),
        ({"authorization": "Bearer {token}", "origin": "null"}, 403),
        ({"authorization": "Bearer {token}", "sec-fetch-site": "cross-site"}, 403),
    ],
)
async def test_nobody_else_gets_in(server: HttpServer, headers: dict[str, str], status: int) -> None:
    port = server.url.split(":")[2].split("/")[0]
    sent = {name: value.format(token=server.token, port=port) for name, value in headers.items()}
    accept = {"accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient() as http:
        answer = await http.post(server.url, json=HELLO, headers=accept | sent)
        assert answer.status_code == status
        assert server.token not in answer.text
        assert "serverInfo" not in answer.text


async def test_a_body_that_is_too_large_is_refused_and_the_server_goes_on(server: HttpServer) -> None:
    headers = {
        "authorization": f"Bearer {server.token}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
    }
    async with httpx2.AsyncClient() as http:
        answer = await http.post(server.url, content=b" " * (2 * 1024 * 1024), headers=headers)
        assert answer.status_code == 413
        nonsense = await http.post(server.url, content=b"{" * 1000, headers=headers)
        assert nonsense.status_code == 400
    async with server.connected() as client:
        assert (await client.list_tools()).tools


async def test_where_no_folder_says_the_project_an_agent_is_told_where_a_memory_holds(
    server: HttpServer,
) -> None:
    text = "The lighthouse has a green lamp."
    async with server.connected() as client:
        wide = text_of(await client.call_tool("crystal_remember", {"text": text}))
        assert ", for everywhere." in wide and "again with project" in wide
        [listed] = recorded(await client.call_tool("crystal_memories", {"limit": 1}))
        assert (listed.text, " | for everywhere | " in listed.head) == (text, True)
        narrow = text_of(
            await client.call_tool("crystal_remember", {"text": text, "project": "someone/work"})
        )
        assert "someone/work" in narrow and "alone" in narrow and "again with project" not in narrow
        [listed] = recorded(await client.call_tool("crystal_memories", {"limit": 1}))
        assert "for project" in listed.head and "someone/work" in listed.head


def test_a_port_without_http_is_refused_and_not_passed_over(machine: Machine) -> None:
    assert "--http" in machine.call("mcp", "--port", "5", check=False).err
    assert machine.call("mcp", "--json", check=False).code == 2
