"""The SDK's own client, connected to a real `crystal mcp` process of a machine, over standard input and output or HTTP."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.machine import Machine

ANSWER_SECONDS_MAX = 60.0
HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def parameters(machine: Machine, *arguments: str, **variables: str) -> StdioServerParameters:
    """What starts `crystal mcp` on a machine."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "crystal_node", "mcp", *arguments],
        env=machine.environment | variables,
        cwd=machine.root,
    )


def started(machine: Machine) -> "subprocess.Popen[str]":
    """The bare process, to be spoken to by hand."""
    how = parameters(machine)
    return subprocess.Popen(
        [how.command, *how.args],
        env=how.env,
        cwd=how.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
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


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded text in an answer, and the line before its fence."""

    head: str
    id: str
    text: str


def recorded(result: types.CallToolResult | str) -> list[Recorded]:
    """What an answer shows of recorded texts, in order."""
    text = result if isinstance(result, str) else text_of(result)
    return [
        Recorded(found["head"], found["id"], found["text"])
        for found in _RECORDED.finditer(text.replace("\r", ""))
    ]


_RECORDED = re.compile(
    r"^(?P<head>[^\n]*\bid (?P<id>[0-9a-f]{12}(?:@[0-9a-f]{8})?))\n<recorded (?P<number>[0-9a-f]{8})>\n(?P<text>.*?)\n"
    r"</recorded (?P=number)>$",
    re.MULTILINE | re.DOTALL,
)


def id_of(result: types.CallToolResult) -> str:
    """The id under which a text is remembered."""
    return str(re.findall(r"\bid ([0-9a-f]{12})\b", text_of(result))[0])


def word_of(result: types.CallToolResult) -> str:
    """The word that an answer wants for what cannot be undone."""
    return str(re.findall(r'confirm "([0-9a-f]+)"', text_of(result))[0])


def structured(result: types.CallToolResult) -> dict[str, Any]:
    """The structured part of a tool's result."""
    assert result.structured_content is not None, text_of(result)
    return dict(result.structured_content)


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A running `crystal mcp --http` and the token it wants."""

    url: str
    token: str
    pid: int

    @asynccontextmanager
    async def connected(self, **options: Any) -> AsyncGenerator[Client]:
        """A client of it."""
        headers = {"authorization": f"Bearer {self.token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=ANSWER_SECONDS_MAX) as http:
            transport = streamable_http_client(self.url, http_client=http)
            async with Client(transport, read_timeout_seconds=ANSWER_SECONDS_MAX, **options) as client:
                yield client


@contextmanager
def serving(machine: Machine) -> Generator[HttpServer]:
    """A real server on a free port of this machine, ended by SIGTERM."""
    process = machine.start("mcp", "--http", "--port", "0", "--json")
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        token = (machine.home / "state" / "gateway" / "token").read_text().strip()
        yield HttpServer(told["url"], token, told["pid"])
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
