"""What is run often starts cold each time: nothing is imported that only servers, models or validation need."""

import json
import subprocess
import sys

import pytest

from tests.support.machine import Machine, Vault
from tests.support.relay_process import RelayProcess

SERVERS = frozenset({"mcp", "mcp_types", "pydantic", "starlette", "uvicorn", "apscheduler"})
MODEL = frozenset({"onnxruntime"})
HOOK = {
    "hook_event_name": "UserPromptSubmit",
    "session_id": "s",
    "prompt": "When is the harbour crane serviced?",
}


@pytest.fixture(scope="module")
def memory(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = Vault(relay, tmp_path_factory.mktemp("memory")).core
    machine.call("remember", "The harbour crane is serviced every second Tuesday.")
    machine.call("sync")
    return machine


@pytest.mark.parametrize(
    "command",
    [
        ("search", "harbour crane"),
        ("search", "--json", "harbour crane"),
        ("nudge",),
        ("recall", "--hook"),
        ("status", "--json"),
        ("memories", "list"),
        ("sources", "status"),
    ],
    ids=" ".join,
)
def test_a_command_loads_no_server_and_only_a_search_the_model(
    memory: Machine, command: tuple[str, ...]
) -> None:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "crystal_node", *command],
        env=memory.environment | {"CRYSTAL_HOME": str(memory.home)},
        input=json.dumps(HOOK),
        capture_output=True,
        encoding="utf-8",
        timeout=90,
        check=True,
    )
    loaded = {line.rsplit("|", 1)[-1].strip() for line in result.stderr.splitlines() if "|" in line}
    assert "crystal_node.surfaces.cli" in loaded
    packages = {name.partition(".")[0] for name in loaded}
    assert not packages & SERVERS
    assert command[0] == "search" or not packages & MODEL
