"""The SDK's own client, connected to a real `crystal mcp` process of a machine."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.support.machine import Machine

ANSWER_SECONDS_MAX = 60.0


def parameters(machine: Machine, *arguments: str, **variables: str) -> StdioServerParameters:
    """What starts `crystal mcp` on a machine."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "crystal_node", "mcp", *arguments],
        env=machine.environment | variables,
        cwd=machine.root,
    )


@asynccontextmanager
async def connected(
    machine: Machine, *arguments: str, errors: Path | None = None, **options: Any
) -> AsyncGenerator[Client]:
    """A client of a process of its own. What the process writes to standard error goes to `errors`."""
    with (errors or machine.root / "mcp-errors.txt").open("a+") as file:
        transport = stdio_client(parameters(machine, *arguments), errlog=file)
        async with Client(transport, read_timeout_seconds=ANSWER_SECONDS_MAX, **options) as client:
            yield client


def text_of(result: types.CallToolResult) -> str:
    """The text part of a tool's result."""
    (part,) = result.content
    assert isinstance(part, types.TextContent)
    return part.text


def structured(result: types.CallToolResult) -> dict[str, Any]:
    """The structured part of a tool's result."""
    assert result.structured_content is not None, text_of(result)
    return dict(result.structured_content)
