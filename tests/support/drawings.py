"""State machines as docs/protocol.md draws them, and as the code turns out to be when everything is tried in every state.

A drawing is a fenced block that begins with ``machine: <title>``; each of its lines is ``state --event--> state``. What is not
drawn changes nothing: so the drawing holds exactly those events, in those states, that lead to another state.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

Edge = tuple[str, str, str]
World = TypeVar("World")

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
_BLOCK = re.compile(r"^```\nmachine: (?P<title>[^\n]+)\n(?P<edges>.*?)^```$", re.MULTILINE | re.DOTALL)
_EDGE = re.compile(r"^(?P<before>\S.*?)\s+--(?P<event>[^-].*?[^-])-+>\s+(?P<after>\S.*)$")


def drawn_machines(text: str | None = None) -> dict[str, set[Edge]]:
    """All of the page, by title. Raises ValueError for a line that is no edge, and for one that is drawn twice."""
    machines: dict[str, set[Edge]] = {}
    for block in _BLOCK.finditer(_PAGE.read_text(encoding="utf-8") if text is None else text):
        edges: set[Edge] = set()
        for line in filter(str.strip, block["edges"].splitlines()):
            found = _EDGE.match(line)
            if not found:
                raise ValueError(f"no edge: {line}")
            edge = (found["before"], found["event"], found["after"].strip())
            if edge in edges:
                raise ValueError(f"drawn twice: {line}")
            edges.add(edge)
        if block["title"] in machines:
            raise ValueError(f"drawn twice: {block['title']}")
        machines[block["title"]] = edges
    return machines


def tried(
    fresh: Callable[[], World], events: Mapping[str, Callable[[World], object]], state: Callable[[World], str]
) -> set[Edge]:
    """Every change of state there is: each event is tried in each state that can be reached, in a world of its own.

    An event that is refused raises, in its own function, and is caught there.
    """
    edges: set[Edge] = set()
    ways: dict[str, tuple[str, ...]] = {state(fresh()): ()}
    waiting = list(ways)
    while waiting:
        before = waiting.pop()
        for name, event in events.items():
            world = fresh()
            for step in ways[before]:
                events[step](world)
            assert state(world) == before
            event(world)
            after = state(world)
            if after != before:
                edges.add((before, name, after))
            if after not in ways:
                ways[after] = (*ways[before], name)
                waiting.append(after)
    return edges
