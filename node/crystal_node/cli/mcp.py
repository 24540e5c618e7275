"""``crystal mcp``: the memory as an MCP server, and its entry among the servers of the clients on this machine."""

import typer

from crystal_node.cli.options import Debug

group = typer.Typer(
    help="The memory as an MCP server for Claude, Codex and other agents.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
)


@group.callback()
def run(context: typer.Context, debug: Debug = False) -> None:
    """Serve the memory to one agent over standard input and output, as MCP clients start it.

    Example:

        claude mcp add -s user crystal -- crystal mcp
    """
    if context.invoked_subcommand is not None:
        return
    from crystal_node.mcp.keeping import Keeper
    from crystal_node.mcp.stdio import serve
    from crystal_node.settings import resolve

    serve(Keeper(resolve))
