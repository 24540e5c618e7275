"""A call for each tool of Crystal's MCP server, as a program's model makes it, and what has to be in its result."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.tools.workplace import Workplace

FACT = "The tern mast is painted green."
_REFUSED = r"The person did not agree\. Nothing was changed"


@dataclass(frozen=True, slots=True)
class McpCall:
    """``arguments`` are made when the call is due; ``result`` is a pattern. ``recorded``: recorded words are fenced in it.

    ``asks``: the person is asked first. Without a screen a program says no for its person, or cannot ask at all.
    """

    tool: str
    arguments: Callable[[Workplace], dict[str, Any]]
    result: str
    recorded: bool = False
    asks: bool = False

    def check(self, result: str, *, refuses: bool) -> None:
        """Raises AssertionError unless the result is what the model has to read, once and fenced.

        ``refuses``: this program says no for its person.
        """
        assert re.search(_REFUSED if self.asks and refuses else self.result, result), result
        if self.recorded:
            assert result.count(FACT) == 1, result
            assert re.search(
                r"<recorded (\w+)>(?:(?!<recorded).)*" + re.escape(FACT) + r".*?</recorded \1>",
                result,
                re.DOTALL,
            ), result


def _id(workplace: Workplace) -> str:
    (found,) = [
        hit
        for hit in workplace.machine.call("search", "--json", "--", "tern mast green").json["results"]
        if hit["text"] == FACT
    ]
    return str(found["id"])[:16]


def _folder(workplace: Workplace) -> dict[str, Any]:
    papers = workplace.project("papers")
    (papers / "tides.md").write_text("# Tides\n\nSpring tides come with the new moon.\n")
    return {"path": str(papers)}


MCP_CALLS = (
    McpCall("crystal_remember", lambda _: {"text": FACT, "category": "fact"}, r"\bid [0-9a-f]{12}"),
    McpCall("crystal_search", lambda _: {"query": "which colour has the tern mast"}, r"\bid ", recorded=True),
    McpCall("crystal_open", lambda workplace: {"id": _id(workplace)}, r"\bid ", recorded=True),
    McpCall("crystal_memories", lambda _: {}, r"\bid ", recorded=True),
    McpCall("crystal_sessions", lambda _: {}, r"sessions, the latest first"),
    McpCall("crystal_status", lambda _: {}, r"texts"),
    McpCall("crystal_sources_add", _folder, r"confirm", asks=True),
    McpCall("crystal_sources_sync", lambda _: {}, r"."),
    McpCall("crystal_sources_status", lambda _: {}, r"."),
    McpCall("crystal_forget", lambda workplace: {"ids": [_id(workplace)]}, r"confirm", asks=True),
)
