"""What `crystal dream-weave` says before it does anything, what it refuses, and where texts may go."""

import asyncio
from pathlib import Path

import pytest

from crystal_core.llm.errors import Unavailable
from crystal_node.base.settings import resolve
from crystal_node.derive.weaving import WeaveRequest
from crystal_node.derive.weaving.weave import weave
from crystal_node.device.device import opened
from tests.node.derive.weaving.said import folder
from tests.support.llm_server import LlmServer
from tests.support.machine import Machine


def test_a_dry_run_asks_nobody_and_says_what_it_may_take(quiet: tuple[Machine, LlmServer]) -> None:
    core, _ = quiet
    result = core.call("dream-weave", "--dry-run", "--json").json
    assert result["state"] == "dry-run"
    assert result["estimate"]["sessions"] == 1
    assert result["estimate"]["pieces"] == 3
    assert result["estimate"]["calls"] == 6
    assert result["estimate"]["tokens_in"] > 100
    assert not folder(core).exists()
    said = core.call("dream-weave", "--dry-run").out
    assert "on this machine" in said
    assert "tokens" in said


def test_texts_go_to_another_machine_only_after_a_yes(quiet: tuple[Machine, LlmServer]) -> None:
    core, _ = quiet
    refused = core.call(
        "dream-weave", "--provider", "anthropic", check=False, ANTHROPIC_API_KEY="sk-ant-api03-test"
    )
    assert refused.code == 2
    assert "api.anthropic.com" in refused.err
    assert "sk-ant" not in refused.err + refused.out
    estimate = core.call(
        "dream-weave", "--provider", "anthropic", "--dry-run", ANTHROPIC_API_KEY="sk-ant-api03-test"
    ).out
    assert "US dollars" in estimate


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--provider", "anthropic"), "ANTHROPIC_API_KEY"),
        (("--provider", "openai"), "OPENAI_API_KEY"),
        (("--provider", "ollama"), "127.0.0.1:1"),
    ],
)
def test_a_provider_that_is_named_and_not_there_is_an_error_and_not_replaced(
    quiet: tuple[Machine, LlmServer], arguments: tuple[str, ...], words: str
) -> None:
    failed = quiet[0].call("dream-weave", *arguments, check=False, CRYSTAL_OLLAMA_HOST="http://127.0.0.1:1")
    assert failed.code == 12
    assert words in failed.err


def test_who_wants_a_model_gets_no_extract(quiet: tuple[Machine, LlmServer]) -> None:
    settings = resolve(environment={"CRYSTAL_HOME": str(quiet[0].home), "CRYSTAL_KEY_STORE": "file"})
    with opened(settings) as device, pytest.raises(Unavailable):
        asyncio.run(weave(device, WeaveRequest(provider="none", needs_model=True)))


def test_the_token_of_a_subscription_is_no_key_and_is_not_shown(quiet: tuple[Machine, LlmServer]) -> None:
    core, _ = quiet
    token = "sk-ant-oat01-secret"
    failed = core.call(
        "dream-weave", "--provider", "anthropic", "--yes", check=False, ANTHROPIC_API_KEY=token
    )
    assert failed.code == 12
    assert "subscription" in failed.err
    assert token not in failed.err


def test_a_key_beside_the_database_is_read_only_if_nobody_else_can(quiet: tuple[Machine, LlmServer]) -> None:
    core, _ = quiet
    path = core.home / "memory" / ".env"
    path.write_text("export ANTHROPIC_API_KEY='sk-ant-api03-x'\n")
    path.chmod(0o644)
    arguments = ("dream-weave", "--provider", "anthropic", "--dry-run")
    assert core.call(*arguments, check=False, ANTHROPIC_API_KEY="").code == 8
    path.chmod(0o600)
    assert core.call(*arguments, ANTHROPIC_API_KEY="").code == 0


def test_nothing_is_written_through_a_link(quiet: tuple[Machine, LlmServer], tmp_path: Path) -> None:
    core, _ = quiet
    outside = tmp_path / "outside"
    outside.mkdir()
    folder(core).parent.mkdir(parents=True, exist_ok=True)
    folder(core).symlink_to(outside)
    failed = core.call("dream-weave", "--provider", "none", check=False)
    assert failed.code == 8
    assert list(outside.iterdir()) == []
    folder(core).unlink()


def test_private_mode_weaves_nothing(quiet: tuple[Machine, LlmServer]) -> None:
    core, _ = quiet
    core.call("private", "on")
    assert core.call("dream-weave", check=False).code == 2
    core.call("private", "off")


def test_an_unknown_agent_is_told_apart_from_nothing_new(quiet: tuple[Machine, LlmServer]) -> None:
    core, _ = quiet
    assert core.call("dream-weave", "--agent", "nobody", check=False).code == 10
    assert core.call("dream-weave", "--agent", "../../etc", check=False).code == 10
    assert not (core.root / "etc").exists()
