"""``crystal mcp``: the memory as an MCP server, and its entry in the MCP clients on this machine."""

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from crystal_node.base.clock import now_ms
from crystal_node.base.errors import ExitCode, UsageError, describe
from crystal_node.base.settings import resolve, serve_token
from crystal_node.search.finding.keeper import Keeper
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, emit_line, note, say
from crystal_node.surfaces.mcp.clients.installation import McpClients
from crystal_node.surfaces.mcp.clients.places import McpClient

if TYPE_CHECKING:
    from crystal_node.surfaces.mcp.greeting import Greeter
    from crystal_node.surfaces.mcp.tools import McpTool

group = typer.Typer(
    help="Serve the memory to agents over MCP.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
)
_LOG_FORMAT = "crystal mcp: %(message)s"
_PORT = 18792
"""Beside the gateway's, 18790, and a relay's, 18791: all three may run on one machine."""

Http = Annotated[
    bool, typer.Option("--http", help="Serve over streamable HTTP on 127.0.0.1, with the gateway's token.")
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        metavar="N",
        min=0,
        max=65535,
        help="With --http: the port; 0 takes a free one. 18792 if not given.",
    ),
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Offer only the tools that change nothing.")]

Clients = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        metavar="NAME",
        help="Only this one; may be given several times. All that are here, if not given.",
    ),
]


@group.callback()
def run(
    context: typer.Context,
    http: Http = False,
    port: Port = None,
    read_only: ReadOnly = False,
    as_json: Json = False,
) -> None:
    """Serve the memory to agents over MCP.

    Serves over standard input and output, as MCP clients start it, or with --http over HTTP. Over HTTP, clients send the
    token of `crystal serve` (state/gateway/token of the home, or CRYSTAL_SERVE_TOKEN). See docs/mcp.md.

    Example:

        claude mcp add -s user crystal -- crystal mcp
        crystal mcp install
        crystal mcp --http
    """
    if context.invoked_subcommand is not None:
        return
    if not http and (port is not None or as_json):
        raise UsageError("--port and --json go with --http", hint="Add --http, or leave them out.")

    if not http:
        serve_stdio(None, read_only=read_only)
        return
    from crystal_node.surfaces.mcp.tools import READING_TOOLS, TOOLS

    logging.basicConfig(format=_LOG_FORMAT, level=logging.ERROR)
    tools = READING_TOOLS if read_only else TOOLS
    _over_http(Keeper(resolve), tools, _PORT if port is None else port, as_json=as_json)


def serve_stdio(greeter: "Greeter | None", *, read_only: bool) -> None:
    """Serve over standard input and output, and end the process with its client."""
    from crystal_node.surfaces.mcp.stdio import serve
    from crystal_node.surfaces.mcp.tools import READING_TOOLS, TOOLS

    logging.basicConfig(format=_LOG_FORMAT, level=logging.ERROR)
    serve(Keeper(resolve), READING_TOOLS if read_only else TOOLS, greeter)


def _over_http(keeper: Keeper, tools: "tuple[McpTool, ...]", port: int, *, as_json: bool) -> None:
    from crystal_node.surfaces.gateway.access import GatewayAccess, kept_token
    from crystal_node.surfaces.gateway.server import listen, port_of
    from crystal_node.surfaces.mcp.http import PATH, serve_http
    from crystal_node.surfaces.mcp.server import CrystalServer

    settings = keeper.settings()
    settings.home.check_private()
    access = GatewayAccess(settings.home, kept_token(settings.home, serve_token()), now_ms)
    with listen(port) as listener:
        url = f"http://127.0.0.1:{port_of(listener)}{PATH}"

        def ready() -> None:
            if as_json:
                emit_line({"url": url, "pid": os.getpid()})
            else:
                say(f"Serving MCP at {url} for this machine alone, until Ctrl-C.")

        serve_http(CrystalServer(keeper, tools), access, listener, ready)
    if not as_json:
        note("Stopped.")


@group.command("install")
def install(client: Clients = None, as_json: Json = False) -> int:
    """Add Crystal to the MCP servers of agents on this machine.

    Other servers stay as they are; running it again changes nothing. Known are claude-code, claude-desktop, codex,
    gemini-cli, qwen-code, cursor, vscode, openclaw, opencode and copilot-cli.

    Example:

        crystal mcp install
        crystal mcp install --client codex
    """
    agents = _clients()

    def do(each: McpClient) -> str:
        return "installed" if agents.install(each) else "was installed"

    return _each(agents, client or [], do, as_json=as_json)


@group.command("uninstall")
def uninstall(client: Clients = None, as_json: Json = False) -> int:
    """Remove Crystal from the MCP servers of agents on this machine.

    Other servers stay as they are.

    Example:

        crystal mcp uninstall
    """
    agents = _clients()

    def do(each: McpClient) -> str:
        return "taken out" if agents.uninstall(each) else "was not there"

    return _each(agents, client or [each.name for each in agents.all], do, as_json=as_json)


@group.command("status")
def status(client: Clients = None, as_json: Json = False) -> int:
    """Show which agents on this machine have Crystal as MCP server.

    Example:

        crystal mcp status --json
    """
    agents = _clients()

    def do(each: McpClient) -> str:
        return agents.look(each).state.value

    return _each(agents, client or [each.name for each in agents.all], do, as_json=as_json)


def _clients() -> McpClients:
    return McpClients(resolve())


def _each(agents: McpClients, names: list[str], do: Callable[[McpClient], str], *, as_json: bool) -> int:
    """Call ``do`` for each client, also after a failure. Returns the exit code of the first failure."""
    code: int = ExitCode.OK
    rows: list[dict[str, object]] = []
    for client in agents.named(names):
        row: dict[str, object] = {"client": client.name, "file": str(client.file)}
        try:
            row["state"] = do(client)
        except Exception as error:
            failure = describe(error)
            if failure.exit_code == ExitCode.UNEXPECTED:
                raise
            code = code or failure.exit_code
            row |= {"state": "failed", "error": failure.message, "hint": failure.hint}
        rows.append(row)
        if not as_json:
            say(f"{client.title:<16} {row['state']:<14} {client.file}")
            if "error" in row:
                note(f"  {row['error']}\n  {row['hint']}")
    if as_json:
        emit({"clients": rows})
    elif not rows:
        say("There is no agent on this machine that takes MCP servers.")
    return code
