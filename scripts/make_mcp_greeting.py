"""Writes the fixed first answers of the MCP server: ``python -m scripts.make_mcp_greeting``.

They are the SDK's own, but that the first page of resources names no next one: to ``initialize`` and the lists for each
version of the protocol that begins with a handshake, to ``server/discover`` and the lists for the others, and to a
``server/discover`` of a version that it does not know.
"""

import json
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from crystal_node.base.settings import resolve
from crystal_node.search.finding.keeper import Keeper
from crystal_node.surfaces.mcp.greeting import FILE, LISTS
from crystal_node.surfaces.mcp.server import CrystalServer
from crystal_node.surfaces.mcp.tools import READING_TOOLS, TOOLS, McpTool

SETS = {"all": TOOLS, "read_only": READING_TOOLS}
_CLIENT = {"name": "x", "version": "1"}
_ENVELOPE = "io.modelcontextprotocol/"
NO_VERSION = ""
"""In place of this distribution's version, which is filled in when it runs."""


def document() -> dict[str, Any]:
    """Each part of an answer once, and which parts make the answers of each version of the protocol."""
    answers: list[dict[str, Any]] = []
    versions: dict[str, dict[str, list[int]]] = {}

    def kept(*parts: dict[str, Any]) -> list[int]:
        answers.extend(part for part in parts if part not in answers)
        return [answers.index(part) for part in parts]

    for version in HANDSHAKE_PROTOCOL_VERSIONS:
        versions[version] = {}
        for name, tools in SETS.items():
            hello, listed, *others = (
                said["result"] for said in anyio.run(_answers, _greeting(version), tools)
            )
            hello["serverInfo"]["version"] = NO_VERSION
            versions[version]["initialize"] = kept(hello)
            versions[version][f"tools/list {name}"] = kept(listed)
            versions[version] |= {each: kept(other) for each, other in zip(LISTS, others, strict=True)}
    for version in MODERN_PROTOCOL_VERSIONS:
        versions[version] = {}
        for name, tools in SETS.items():
            found, listed, *others = (
                said["result"] for said in anyio.run(_answers, _discovery(version), tools)
            )
            for each in (found, listed, *others):
                each["_meta"][f"{_ENVELOPE}serverInfo"]["version"] = NO_VERSION
            versions[version]["server/discover"] = kept(found)
            versions[version][f"tools/list {name}"] = kept({"tools": listed.pop("tools")}, listed)
            versions[version] |= {each: kept(other) for each, other in zip(LISTS, others, strict=True)}
    for answer in answers:
        answer.pop("nextCursor", None)
    unsupported = anyio.run(_answers, _discovery("unknown")[:1], TOOLS)[0]["error"]
    del unsupported["data"]["requested"]
    return {"versions": versions, "answers": answers, "unsupported": unsupported}


def text() -> str:
    """The file."""
    return json.dumps(document(), ensure_ascii=False, indent=1) + "\n"


def _greeting(version: str) -> list[dict[str, Any]]:
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": _CLIENT}
    return [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        *(
            {"jsonrpc": "2.0", "id": number, "method": method}
            for number, method in enumerate(("tools/list", *LISTS), start=2)
        ),
    ]


def _discovery(version: str) -> list[dict[str, Any]]:
    said = {"protocolVersion": version, "clientInfo": _CLIENT, "clientCapabilities": {}}
    params = {"_meta": {f"{_ENVELOPE}{name}": value for name, value in said.items()}}
    return [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        for number, method in enumerate(("server/discover", "tools/list", *LISTS))
    ]


async def _answers(asked: list[dict[str, Any]], tools: tuple[McpTool, ...]) -> list[dict[str, Any]]:
    """The server's answers to the requests among these messages."""
    server = CrystalServer(Keeper(resolve), tools).protocol
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](8)
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](8)
    answers: list[dict[str, Any]] = []
    async with to_server, incoming, outgoing, from_server, anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, incoming, outgoing, server.create_initialization_options())
        for each in asked:
            await to_server.send(SessionMessage(jsonrpc_message_adapter.validate_python(each)))
            if "id" in each:
                said = (await from_server.receive()).message
                answers.append(json.loads(said.model_dump_json(by_alias=True, exclude_unset=True)))
        tasks.cancel_scope.cancel()
    return answers


def main() -> None:
    FILE.write_text(text(), encoding="utf-8")
    print(f"Written: {FILE}")


if __name__ == "__main__":
    main()
