"""Writes docs/mcp-answers.md: what an agent sees of the memory over MCP, for ten ordinary questions.

`python -m scripts.make_mcp_answers [--check]`: with `--check` nothing is written and the exit code is 1 when the page is not
current. The memory is small and always the same: the demo's conversation, one of another project, and two things that were
remembered. It stands on a Core of its own in a folder that is removed; the answers are those that the SDK's own client is given
by a real server. Only the number of each fence is replaced, since it is another one each time.
"""

import asyncio
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from crystal_node.base.settings import child_environment
from crystal_node.search.tokens import estimated_tokens
from crystal_node.surfaces.demo.machines import DemoRelay
from crystal_node.surfaces.demo.source import sample

PAGE = Path(__file__).resolve().parent.parent / "docs" / "mcp-answers.md"
NUMBER = "5f2c81d0"
"""Of every fence on the page."""

_HEAD = """\
# What an agent sees

Ten questions that an agent asks with `crystal_search`, and the answers as its model reads them: there is nothing else, and no
structured copy. The memory is small: the demo's conversation about a tide gauge, one about a harbour's web page, and two
memories. The figures are tokens by [Crystal's estimate](mcp.md#what-an-answer-costs); the number in the fences is another one
in each answer. Written by `python -m scripts.make_mcp_answers`.
"""

QUESTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("What was decided", {"query": "what did we decide about the retry budget"}),
    ("An error and its cause", {"query": "why was the tide gauge reading too high"}),
    ("How something is done here", {"query": "how do we filter the spikes from the car ferry"}),
    ("Where something is", {"query": "where is the archive kept", "limit": 2}),
    ("When something is due", {"query": "when does the harbour master want the forecast"}),
    ("What the person prefers", {"query": "what units should levels be reported in", "limit": 3}),
    ("In one project", {"query": "time zone", "project": "tidewatch", "limit": 2}),
    ("At a date", {"query": "what did we say about the ferry timetable on 9 November 2026", "limit": 2}),
    ("In few tokens", {"query": "why does the nightly export fail", "max_tokens": 400}),
    ("What was never said", {"query": "which colour should the aeroplane's seats have"}),
)

_SITE = (
    ("user", "The ferry timetable on the harbour's page shows yesterday's departures until noon. Why?"),
    ("assistant", "Let me look at how the page is built."),
    (
        "assistant",
        "The proxy keeps the page for twelve hours, so noon is when it is fetched anew. `/timetable` has ten minutes now.",
    ),
    ("user", "Good. Which font did we settle on for the boards?"),
    ("assistant", "Inter for the boards, since its figures have one width and the columns stay in line."),
)
_SITE_AT = "2026-11-09T14:00:00+00:00"
_MEMORIES = (
    ("Levels are reported in millimetres above chart datum, never in feet.", "preference"),
    ("Jonas works from Halifax, four hours behind UTC.", "fact"),
)
_MEMORIES_AT = "2026-11-18T08:00:00+00:00"


@dataclass(frozen=True, slots=True)
class Asked:
    """One call and its answer."""

    title: str
    call: str
    answer: str


def main(arguments: Sequence[str]) -> int:
    wanted = page()
    if "--check" in arguments:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == wanted
        if not current:
            print(f"{PAGE.name} is not current: python -m scripts.make_mcp_answers", file=sys.stderr)
        return int(not current)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


def page() -> str:
    """The page as it should be."""
    with tempfile.TemporaryDirectory(prefix="crystal-answers-", ignore_cleanup_errors=True) as folder:
        environment = _memory(Path(folder))
        listed, answers = asyncio.run(_answers(environment))
    return "".join(_page(listed, answers))


def _page(listed: int, answers: Sequence[Asked]) -> Iterator[str]:
    yield _HEAD
    costs = sorted(estimated_tokens(asked.answer) for asked in answers[: len(QUESTIONS)])
    middle = (costs[len(costs) // 2 - 1] + costs[len(costs) // 2]) // 2
    yield (
        f"\nAn answer costs {costs[0]:,} to {costs[-1]:,} tokens, {middle:,} in the middle. All tools with their descriptions "
        f"and schemas cost about {round(listed, -2):,} tokens, once in a session.\n"
    )
    for asked in answers:
        yield f"\n## {asked.title}\n\n    {asked.call}\n\n{estimated_tokens(asked.answer):,} tokens:\n\n"
        yield f"```text\n{asked.answer}\n```\n"


def _memory(folder: Path) -> dict[str, str]:
    """A Core with the memory, and the environment of its programs. Its relay is there only while it is set up."""
    home = folder / "mara"
    home.mkdir()
    environment = child_environment(
        {"HOME": str(home), "CRYSTAL_HOME": str(home / ".ldm"), "CRYSTAL_KEY_STORE": "file", "TZ": "UTC"}
    )
    environment.pop("CLAUDE_CONFIG_DIR", None)
    transcripts = home / ".claude" / "projects" / "-home-mara-src-tidewatch"
    transcripts.mkdir(parents=True)
    for path in sample().paths:
        shutil.copy(path, transcripts / path.name)
    relay = DemoRelay(folder / "relay")
    relay.start()
    try:
        place = ("--relay", relay.url, "--role", "core", "--name", "desktop", "--yes")
        _run(environment | {"CRYSTAL_RELAY_ENROLL_TOKEN": relay.token}, "init", *place)
        _run(environment, "import", str(_export(folder / "export")))
        _run(environment, "capture")
        _run(environment, "sync")
    finally:
        relay.stop()
    return environment


def _export(folder: Path) -> Path:
    said = [
        {
            "text": text,
            "role": role,
            "agent": "cc-mini",
            "session": "0a51e0",
            "message": str(number),
            "created_at": _milliseconds(_SITE_AT) + 20_000 * number,
            "project": "/home/mara/src/harbour-site",
            "source": "codex",
        }
        for number, (role, text) in enumerate(_SITE)
    ]
    remembered = [
        {"text": text, "category": category, "agent": "cc-mini", "created_at": _milliseconds(_MEMORIES_AT)}
        for text, category in _MEMORIES
    ]
    folder.mkdir()
    parts: dict[str, object] = {}
    for name, records in (
        ("conversations", said),
        ("memories", remembered),
        ("sources", []),
        ("documents", []),
    ):
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(text)
        parts[f"{name}.jsonl"] = {"lines": len(records), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    manifest: dict[str, object] = {
        "format": "crystal-export",
        "version": 1,
        "made_at": "",
        "device": "",
        "parts": parts,
        "files": [],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def _milliseconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


def _run(environment: dict[str, str], *arguments: str) -> None:
    command = [sys.executable, "-P", "-m", "crystal_node", *arguments]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"crystal {arguments[0]}: {done.stderr or done.stdout}")


async def _answers(environment: dict[str, str]) -> tuple[int, list[Asked]]:
    """The tokens of the list of tools, and what the calls gave."""
    server = StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "crystal_node", "mcp"], env=environment
    )
    found: list[Asked] = []
    async with Client(stdio_client(server)) as client:
        tools = (await client.list_tools()).tools
        listed = estimated_tokens(
            json.dumps([[tool.name, tool.description, tool.input_schema] for tool in tools])
        )
        for title, arguments in QUESTIONS:
            found.append(await _asked(client, title, "crystal_search", arguments))
        first = re.findall(r"\bid ([0-9a-f]{12})\b", found[0].answer)
        if first:
            opened = await _asked(
                client, "The first of them, opened", "crystal_open", {"id": first[0], "max_tokens": 900}
            )
            found.append(opened)
    return listed, found


async def _asked(client: Client, title: str, tool: str, arguments: dict[str, Any]) -> Asked:
    result = await client.call_tool(tool, arguments)
    (part,) = result.content
    if not isinstance(part, types.TextContent) or result.is_error or result.structured_content is not None:
        raise RuntimeError(f"{tool} {arguments}: {result}")
    answer = re.sub(r"(</?recorded )[0-9a-f]{8}>", rf"\g<1>{NUMBER}>", part.text)
    return Asked(title, f"{tool} {json.dumps(arguments, ensure_ascii=False)}", answer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
