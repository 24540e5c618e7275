"""docs/mcp.md is what the MCP server says of itself."""

from crystal_node.base.settings import resolve
from crystal_node.surfaces.mcp.clients.places import clients_of
from crystal_node.surfaces.mcp.greeting import FILE
from crystal_node.surfaces.mcp.tools import TOOLS
from scripts.make_mcp_greeting import text as greeting
from scripts.make_mcp_reference import PAGE, page


def test_the_page_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "python -m scripts.make_mcp_reference"


def test_the_first_answers_are_the_servers_own() -> None:
    assert FILE.read_text(encoding="utf-8") == greeting(), "python -m scripts.make_mcp_greeting"


def test_the_page_names_every_tool_and_client() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for tool in TOOLS:
        assert f"### {tool.name}\n" in text
    for client in clients_of(resolve(environment={})):
        assert f"| `{client.name}` |" in text
