"""The MCP server over 100,000 chunks: how long an agent waits for it to start, and for a search by the SDK's own client.

Searches go over standard input and output, one after the other, without an agent in the background: the server answers by
itself. What they are beside the search itself is shown by the same search asked of a finder in this process.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from bench.bench_recall import vault_home
from bench.harness import Row, percentile, value_at_most
from bench.memories import sentences
from crystal_node.base.settings import child_environment, resolve
from crystal_node.search.finding.documents import Depth, SearchRequest
from crystal_node.search.finding.finder import Finder

SUBJECTS = 3000
QUERIES = 200
STARTS = 9


def run(quick: bool) -> list[Row]:
    count = 20 if quick else QUERIES
    subjects = sentences()[: SUBJECTS + count]
    queries, subjects = subjects[:count], subjects[count:]
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as folder:
        home = vault_home(Path(folder), 5_000 if quick else 100_000, subjects)
        environment = child_environment({"CRYSTAL_HOME": str(home), "HOME": folder})
        starts = [asyncio.run(_started(environment)) for _ in range(3 if quick else STARTS)]
        searches = asyncio.run(_searched(environment, queries))
        with Finder(resolve(environment=environment)) as finder:
            for query in queries[:5]:
                finder.search(SearchRequest(query=query, limit=8, depth=Depth.FAST))
            direct = [_timed(finder, query) for query in queries]
    return [
        Row(
            name="search of 100,000 chunks by MCP, warm, p95",
            value=percentile(searches, 95),
            unit="ms",
            baseline="the same search in this process",
            baseline_value=percentile(direct, 95),
            target=value_at_most(100.0),
        ),
        Row(
            name="from the start of the process to the answer to initialize, p50",
            value=percentile(starts, 50),
            unit="ms",
            target=value_at_most(300.0),
        ),
    ]


def _server(environment: dict[str, str]) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "crystal_node", "mcp"], env=environment
    )


async def _started(environment: dict[str, str]) -> float:
    began = time.perf_counter()
    async with Client(stdio_client(_server(environment)), mode="legacy"):
        return (time.perf_counter() - began) * 1000


async def _searched(environment: dict[str, str], queries: list[str]) -> list[float]:
    samples: list[float] = []
    async with Client(stdio_client(_server(environment)), mode="legacy") as client:
        for number, query in enumerate([*queries[:5], *queries]):
            began = time.perf_counter()
            result = await client.call_tool(
                "crystal_search", {"query": query, "depth": "fast", "nearest": True}
            )
            if number >= 5:
                samples.append((time.perf_counter() - began) * 1000)
            if result.is_error or "<recorded " not in str(result.content):
                raise RuntimeError(f"no answer to {query!r}")
    return samples


def _timed(finder: Finder, query: str) -> float:
    began = time.perf_counter()
    finder.search(SearchRequest(query=query, limit=8, depth=Depth.FAST))
    return (time.perf_counter() - began) * 1000
