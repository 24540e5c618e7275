"""Which language model is asked: the one that is named, or the first that there is; keys come from where they belong."""

import asyncio
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from crystal_core.llm.errors import LlmError, Refused, Unavailable
from crystal_core.llm.port import Prompt
from crystal_core.llm.prices import price_of
from crystal_node.base.errors import LocalStorage
from crystal_node.base.settings import Settings, resolve
from crystal_node.base.settings.api_keys import KeyOwner, api_key
from crystal_node.models.llm.discovery import find_llm
from tests.support.llm_server import LlmServer, llm_server

NOWHERE = "http://127.0.0.1:1"
OPENAI, ANTHROPIC = "sk-proj-openai-0123456789", "sk-ant-api03-0123456789"


@pytest.fixture
def server() -> Generator[LlmServer]:
    with llm_server() as running:
        yield running


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner in KeyOwner:
        monkeypatch.delenv(owner.variable, raising=False)


def settings(folder: Path, **variables: str) -> Settings:
    given = {"CRYSTAL_HOME": str(folder), "HOME": str(folder), "CRYSTAL_OLLAMA_HOST": NOWHERE}
    return resolve(environment=given | variables)


def found(given: Settings, provider: str = "", mlx: str = NOWHERE) -> str:
    llm = find_llm(given, provider, mlx_url=f"{mlx}/v1")
    return "none" if llm is None else f"{llm.identity.provider}/{llm.identity.model}"


def test_auto_takes_mlx_then_ollama_then_openai_then_anthropic_then_none(
    tmp_path: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", OPENAI)
    monkeypatch.setenv("ANTHROPIC_API_KEY", ANTHROPIC)
    near = settings(tmp_path, CRYSTAL_OLLAMA_HOST=server.url)
    far = settings(tmp_path)
    assert found(near, mlx=server.url) == "mlx/test-model"
    assert found(near) == "ollama/test-model"
    assert found(far) == "openai/gpt-4.1-mini"
    monkeypatch.delenv("OPENAI_API_KEY")
    assert found(far) == "anthropic/claude-haiku-4-5"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-oat01-a-subscription")
    assert found(far) == "none"
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert found(far) == "none"
    assert server.asked == []


def test_a_model_that_only_embeds_is_not_taken(tmp_path: Path, server: LlmServer) -> None:
    server.embedders = ["nomic-embed-text:latest", "all-minilm:latest"]
    given = settings(tmp_path, CRYSTAL_OLLAMA_HOST=server.url)
    assert found(given, "ollama") == "ollama/test-model"
    server.models = []
    assert found(given) == "none"
    with pytest.raises(Unavailable):
        found(given, "ollama")


def test_the_model_that_is_named_is_taken_or_an_error(tmp_path: Path, server: LlmServer) -> None:
    server.models = ["one:latest", "two:7b"]
    host = {"CRYSTAL_OLLAMA_HOST": server.url}
    assert found(settings(tmp_path, CRYSTAL_OLLAMA_MODEL="two:7b", **host), "ollama") == "ollama/two:7b"
    assert found(settings(tmp_path, CRYSTAL_OLLAMA_MODEL="one", **host), "ollama") == "ollama/one"
    with pytest.raises(Unavailable):
        found(settings(tmp_path, CRYSTAL_OLLAMA_MODEL="three", **host), "ollama")


@pytest.mark.parametrize("provider", ["mlx", "ollama", "openai", "anthropic", "openai-compatible", "no-such"])
def test_a_named_provider_is_never_replaced_by_another(tmp_path: Path, provider: str) -> None:
    with pytest.raises(LlmError) as caught:
        found(settings(tmp_path), provider)
    assert caught.value.hint
    assert found(settings(tmp_path), "none") == "none"


async def test_openais_key_goes_to_no_other_server(
    tmp_path: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", OPENAI)
    llm = await asyncio.to_thread(
        find_llm, settings(tmp_path, CRYSTAL_LLM_URL=server.openai), "openai-compatible"
    )
    assert llm is not None
    await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=10)
    await llm.aclose()
    assert OPENAI not in str(server.asked[0].headers)


def test_keys_come_from_their_variable_before_the_file_and_show_themselves_to_nobody(tmp_path: Path) -> None:
    home = settings(tmp_path).home
    (tmp_path / "memory").mkdir()
    path = tmp_path / "memory" / ".env"
    path.write_text(f'# keys\nexport OPENAI_API_KEY="{OPENAI}"\nANTHROPIC_API_KEY={ANTHROPIC}\n')
    path.chmod(0o600)
    key = api_key(KeyOwner.OPENAI, home, {})
    assert key is not None
    assert key.reveal() == OPENAI
    assert OPENAI not in f"{key!r} {key}"
    other = api_key(KeyOwner.ANTHROPIC, home, {"ANTHROPIC_API_KEY": "sk-ant-api03-variable"})
    assert other is not None
    assert other.reveal() == "sk-ant-api03-variable"
    path.chmod(0o640)
    with pytest.raises(LocalStorage, match="others"):
        api_key(KeyOwner.OPENAI, home, {})


@pytest.mark.parametrize("value", ["sk-ant-oat01-x", "two words", "ünïcode", "x" * 2000, "a\nb"])
def test_what_is_no_key_is_refused_without_being_shown(tmp_path: Path, value: str) -> None:
    with pytest.raises(Refused) as caught:
        api_key(KeyOwner.ANTHROPIC, settings(tmp_path).home, {"ANTHROPIC_API_KEY": value})
    assert value not in str(caught.value)
    assert value not in caught.value.hint


def test_prices_are_by_the_models_own_name_and_unknown_ones_are_not_guessed() -> None:
    mini = price_of("openai", "gpt-4.1-mini-2025-04-14", local=False)
    assert mini == price_of("openai", "gpt-4.1-mini", local=False)
    assert mini is not None
    assert mini.dollars(1_000_000, 0) == 0.40
    assert price_of("openai", "gpt-4.1-minimal", local=False) is None
    assert price_of("openai", "another", local=False) is None
    assert price_of("ollama", "anything", local=True) is not None
    assert price_of("ollama", "anything", local=False) is None


def test_a_pipe_in_the_place_of_the_keys_holds_nobody_up(tmp_path: Path) -> None:
    given = settings(tmp_path)
    given.home.database.parent.mkdir(parents=True)
    os.mkfifo(given.home.database.parent / ".env", 0o600)
    assert api_key(KeyOwner.OPENAI, given.home, {}) is None
