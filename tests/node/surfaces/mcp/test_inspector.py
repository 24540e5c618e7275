"""The MCP inspector, which is written by others in another language, understands everything that `crystal mcp` says."""

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from scripts.install_test_servers import INSPECTOR, INSPECTOR_DONE
from tests.support.machine import Machine

pytestmark = pytest.mark.skipif(
    not INSPECTOR_DONE.exists() or shutil.which("node") is None,
    reason="no MCP inspector here (python -m scripts.install_test_servers)",
)
_PROGRAM = INSPECTOR / "node_modules" / "@modelcontextprotocol" / "inspector-cli" / "build" / "index.js"


def _inspected(machine: Machine, *arguments: str) -> dict[str, Any]:
    target = [sys.executable, "-P", "-m", "crystal_node", "mcp"]
    done = subprocess.run(
        ["node", str(_PROGRAM), *target, *arguments],
        env=os.environ | machine.environment,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_lists_and_calls(memory: Machine) -> None:
    tools = _inspected(memory, "--method", "tools/list")["tools"]
    assert {"crystal_search", "crystal_forget", "crystal_sources_sync"} <= {tool["name"] for tool in tools}
    call = ("--method", "tools/call", "--tool-name", "crystal_search", "--tool-arg", "query=harbour crane")
    result = _inspected(memory, *call, "--tool-arg", "limit=2")
    assert "Ingrid" in result["content"][0]["text"]
    assert "structuredContent" not in result
    assert not result.get("isError")
    resources = _inspected(memory, "--method", "resources/list")["resources"]
    assert resources[0]["uri"] == "memory://recent"
