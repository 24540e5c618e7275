"""Writes the part of docs/mcp.md that lists tools, resources and prompts, from the server's own list.

`python -m scripts.make_mcp_reference [--check]`: with `--check` nothing is written and the exit code is 1 when the page is not
current. What stands before the mark in the page is written by hand.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from crystal_node.surfaces.mcp.catalogue import (
    PROMPTS_LISTED,
    RESOURCES_LISTED,
    TEMPLATES_LISTED,
    listed_tool,
)
from crystal_node.surfaces.mcp.schemas import schema_of
from crystal_node.surfaces.mcp.tools import TOOLS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "mcp.md"
MARK = "<!-- From here on written by python -m scripts.make_mcp_reference -->\n"


def main(arguments: Sequence[str]) -> int:
    text = PAGE.read_text(encoding="utf-8")
    wanted = page(text)
    if "--check" in arguments:
        if text != wanted:
            print(f"{PAGE.name} is not current: python -m scripts.make_mcp_reference", file=sys.stderr)
        return int(text != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


def page(text: str) -> str:
    """The page with the part below the mark made anew."""
    head, mark, _ = text.partition(MARK)
    return head + (mark or "\n" + MARK) + "\n" + reference()


def reference() -> str:
    """All tools, resources and prompts."""
    return "\n".join([*_tools(), *_resources(), *_prompts()]) + "\n"


def _tools() -> Iterator[str]:
    yield "## Tools"
    for each in TOOLS:
        tool, arguments = listed_tool(each), schema_of(each.arguments)
        hints = tool.annotations
        yield f"\n### {tool.name}\n\n{tool.description}\n"
        if hints is not None:
            yield (
                "Changes nothing.\n"
                if hints.read_only_hint
                else (
                    "**Removes for good.**\n" if hints.destructive_hint else "Changes what is remembered.\n"
                )
            )
        fields = cast("dict[str, Any]", arguments["properties"])
        if fields:
            yield "| argument | what it is | limits | default |"
            yield "|---|---|---|---|"
        for name, schema in fields.items():
            default = (
                "required" if name in tool.input_schema.get("required", ()) else _code(schema.get("default"))
            )
            yield f"| `{name}` | {schema['description']} | {_limits(schema, arguments)} | {default} |"
        if each.answer is not None:
            names = ", ".join(f"`{name}`" for name in each.answer.__struct_fields__)
            yield ("\n" if fields else "") + f"Answers with {names}."


def _resources() -> Iterator[str]:
    yield "\n## Resources\n\n| address | what it is |\n|---|---|"
    for resource in RESOURCES_LISTED:
        yield f"| `{resource.uri}` | {resource.title} |"
    for template in TEMPLATES_LISTED:
        yield f"| `{template.uri_template}` | {template.title} |"


def _prompts() -> Iterator[str]:
    yield "\n## Prompts\n\n| prompt | what it has done | argument |\n|---|---|---|"
    for prompt in PROMPTS_LISTED:
        given = "; ".join(f"`{each.name}`: {each.description}" for each in prompt.arguments or ())
        yield f"| `{prompt.name}` | {prompt.description} | {given} |"


def _limits(schema: dict[str, Any], whole: dict[str, Any]) -> str:
    parts = [schema, *schema.get("anyOf", ())]
    found: list[str] = []
    for each in parts:
        part = whole["$defs"][each["$ref"].rsplit("/", 1)[1]] if "$ref" in each else each
        if "enum" in part:
            found.append(", ".join(f"`{value}`" for value in part["enum"] if value is not None))
        if "maximum" in part:
            found.append(f"{part.get('minimum', 0)} to {part['maximum']}")
        if "maxLength" in part:
            found.append(f"{part['maxLength']} characters at most")
        if "maxItems" in part:
            found.append(f"{part['maxItems']} at most")
    return "; ".join(found)


def _code(value: object) -> str:
    if value in ("", [], ()):
        return "none"
    return "none" if value is None else f"`{value}`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
