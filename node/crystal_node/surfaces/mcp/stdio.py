"""One client over standard input and output, until it closes its end.

Standard output is the protocol's alone: other output is redirected to standard error, by the SDK or by the greeter, which has
answered the client's first requests (``greeting``). When standard input ends, the process
ends at once: databases are changed in transactions, and there are no child processes.
"""

import os
import signal
from pathlib import Path
from typing import TextIO, cast

import anyio
from mcp.server.stdio import stdio_server

from crystal_node.search.finding.keeper import Keeper
from crystal_node.surfaces.mcp.greeting import Greeter
from crystal_node.surfaces.mcp.server import CrystalServer
from crystal_node.surfaces.mcp.tools import McpTool


def serve(keeper: Keeper, tools: tuple[McpTool, ...], greeter: Greeter | None = None) -> None:
    """Serve until the client is gone; then end this process. ``greeter``: through it, if the client has spoken to it."""
    # A thread reads standard input and cannot be woken: a signal ends the process by itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        anyio.run(_serve, CrystalServer(keeper, tools, folder=str(Path.cwd())), greeter)
    except BaseExceptionGroup as group:
        gone, others = group.split((BrokenPipeError, ConnectionError))
        if others is not None:
            raise
        assert gone is not None
    # Threads of cancelled tools must not keep it alive.
    os._exit(0)


async def _serve(server: CrystalServer, greeter: Greeter | None) -> None:
    through = None if greeter is None else anyio.wrap_file(cast("TextIO", greeter))
    if greeter is not None:
        greeter.hand_over()
    async with server.resting(), stdio_server(through, through) as (incoming, outgoing):
        await server.protocol.run(incoming, outgoing, server.protocol.create_initialization_options())
