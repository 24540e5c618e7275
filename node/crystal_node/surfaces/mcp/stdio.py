"""One client over standard input and output, until it closes its end.

Standard output is the protocol's alone: the SDK redirects other output to standard error. When standard input ends, the process
ends at once: databases are changed in transactions, and there are no child processes.
"""

import os
import signal
from pathlib import Path

import anyio
from mcp.server.stdio import stdio_server

from crystal_node.search.finding.keeper import Keeper
from crystal_node.surfaces.mcp.server import CrystalServer
from crystal_node.surfaces.mcp.tools import McpTool


def serve(keeper: Keeper, tools: tuple[McpTool, ...]) -> None:
    """Serve until the client is gone; then end this process."""
    # A thread reads standard input and cannot be woken: a signal ends the process by itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        anyio.run(_serve, CrystalServer(keeper, tools, folder=str(Path.cwd())))
    except BaseExceptionGroup as group:
        gone, others = group.split((BrokenPipeError, ConnectionError))
        if others is not None:
            raise
        assert gone is not None
    # Threads of cancelled tools must not keep it alive.
    os._exit(0)


async def _serve(server: CrystalServer) -> None:
    async with server.resting(), stdio_server() as (incoming, outgoing):
        await server.protocol.run(incoming, outgoing, server.protocol.create_initialization_options())
