"""A Core with a language model at a real server: one for each test, and one for all tests that change nothing."""

from collections.abc import Generator

import pytest

from tests.node.derive.weaving.said import TEXTS, said
from tests.support.llm_server import LlmServer, llm_server
from tests.support.machine import Machine, Vault
from tests.support.relay_process import RelayProcess
from tests.support.woven import good_answer


@pytest.fixture
def server() -> Generator[LlmServer]:
    with llm_server(good_answer) as running:
        yield running


@pytest.fixture
def core(vault: Vault, server: LlmServer) -> Machine:
    """A Core on which three things were said, with a model at the server."""
    core = vault.core
    core.extra |= {
        "CRYSTAL_SUMMARY_PROVIDER": "openai-compatible",
        "CRYSTAL_LLM_URL": server.openai,
        "CRYSTAL_TIME_ZONE": "UTC",
    }
    said(core, *TEXTS)
    return core


@pytest.fixture(scope="module")
def quiet(
    relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory
) -> Generator[tuple[Machine, LlmServer]]:
    """A Core like that for tests which change nothing: nobody is asked anything."""
    with llm_server(good_answer) as running:
        core = Vault(relay, tmp_path_factory.mktemp("quiet")).core
        core.extra |= {
            "CRYSTAL_SUMMARY_PROVIDER": "openai-compatible",
            "CRYSTAL_LLM_URL": running.openai,
            "ANTHROPIC_API_KEY": "",
            "OPENAI_API_KEY": "",
        }
        said(core, *TEXTS)
        yield core, running
        assert running.asked == []
