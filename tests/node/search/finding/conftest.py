"""A Core with a few texts, for all tests of a module."""

from collections.abc import Generator

import pytest

from tests.node.search.finding.deep_memory import SAID, model
from tests.support.llm_server import LlmServer, llm_server
from tests.support.machine import Machine, core_that_heard
from tests.support.relay_process import RelayProcess


@pytest.fixture(scope="module")
def memory(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return core_that_heard(relay, tmp_path_factory.mktemp("memory"), *SAID)


@pytest.fixture
def fresh(memory: Machine) -> Machine:
    """Without a kept answer."""
    for path in memory.home.glob("state/search.db*"):
        path.unlink()
    return memory


@pytest.fixture
def server() -> Generator[LlmServer]:
    with llm_server(model()) as running:
        yield running
