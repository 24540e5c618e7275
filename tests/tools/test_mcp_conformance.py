"""The protocol's own conformance suite against `crystal mcp --http`: a scenario passes, or fails for a listed reason."""

import os
import subprocess
from pathlib import Path

import pytest

from scripts.install_test_tools import PROGRAMS, Tools
from tests.support.machine import Machine
from tests.support.mcp_client import serving
from tests.support.token_proxy import with_token

_EXPECTED = Path(__file__).with_name("mcp_expected_failures.yml")
_SUITE = PROGRAMS["mcp-conformance"]


def test_the_conformance_suite_finds_no_failure_that_is_not_expected(tmp_path: Path) -> None:
    tools = Tools.of(os.environ)
    if missing := tools.missing(_SUITE):
        pytest.skip(missing)
    machine = Machine(tmp_path / "machine")
    machine.root.mkdir()
    machine.run("up", "--yes", "--json", "--no-service", "--from-now")
    with serving(machine) as server, with_token(server.url, server.token) as url:
        options = ["--url", url, "--suite", "all", "--expected-failures", str(_EXPECTED)]
        done = subprocess.run(
            [str(tools.command(_SUITE)), "server", *options],
            env=tools.environment(),
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
            timeout=100,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "server-initialize: 1 passed, 0 failed" in done.stdout
