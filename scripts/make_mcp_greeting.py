"""Writes the fixed first answers of the MCP server: ``python -m scripts.make_mcp_greeting``.

They are the SDK's own, to ``initialize`` and ``tools/list``, for each version of the protocol that begins with a handshake.
"""

import json
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from crystal_node.base.settings import resolve
from crystal_node.search.finding.keeper import Keeper
from crystal_node.surfaces.mcp.greeting import FILE
from crystal_node.surfaces.mcp.server import CrystalServer
from crystal_node.surfaces.mcp.tools import READING_TOOLS, TOOLS, McpTool

SETS = {"all": TOOLS, "read_only": READING_TOOLS}
NO_VERSION = ""
"""In place of this distribution's version, which is filled in when it runs."""


def document() -> dict[str, Any]:
    """Each answer once, and which version of the protocol has which."""
    answers: list[dict[str, Any]] = []
    versions: dict[str, dict[str, int]] = {}

    def kept(answer: dict[str, Any]) -> int:
        if answer not in answers:
            answers.append(answer)
        return answers.index(answer)

    for version in HANDSHAKE_PROTOCOL_VERSIONS:
        versions[version] = {}
        for name, tools in SETS.items():
            hello, listed = anyio.run(_answers, version, tools)
            hello["serverInfo"]["version"] = NO_VERSION
            versions[version]["initialize"] = kept(hello)
            versions[version][f"tools/list {name}"] = kept(listed)
    return {"versions": versions, "answers": answers}


def text() -> str:
    """The file."""
    return json.dumps(document(), ensure_ascii=False, indent=1) + "\n"


async def _answers(version: str, tools: tuple[McpTool, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    server = CrystalServer(Keeper(resolve), tools).protocol
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](8)
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](8)
    client = {"name": "x", "version": "1"}
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
    asked: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    answers: list[dict[str, Any]] = []
    async with to_server, incoming, outgoing, from_server, anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, incoming, outgoing, server.create_initialization_options())
        for each in asked:
            await to_server.send(SessionMessage(jsonrpc_message_adapter.validate_python(each)))
            if "id" in each:
                said = (await from_server.receive()).message
                answers.append(json.loads(said.model_dump_json(by_alias=True, exclude_unset=True))["result"])
        tasks.cancel_scope.cancel()
    return answers[0], answers[1]


def main() -> None:
    FILE.write_text(text(), encoding="utf-8")
    print(f"Written: {FILE}")


if __name__ == "__main__":
    main()
