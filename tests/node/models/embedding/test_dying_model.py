"""A text with which the built-in model's process dies each time keeps no other text from getting its vectors."""

import os
import sys
from collections.abc import Callable
from unittest import mock

import pytest

from crystal_node.base.settings import resolve
from crystal_node.device.device import Device, opened
from crystal_node.models.embedding.worker import WorkerEmbedder
from crystal_node.sync import round_embedder
from crystal_node.sync.syncer import Syncer
from tests.node.models.embedding.conftest import concerns, filled, standing
from tests.support.machine import Machine, Vault

_PROGRAM = """
import os, sys
from crystal_core.embed import worker
real = worker.answer
def answer(embedder, identity, request):
    if any(sys.argv[1].encode() in text for text in getattr(request, "texts", ())):
        os._exit(9)
    return real(embedder, identity, request)
worker.answer = answer
worker.main()
"""
TEXTS = 40
ROUNDS_MAX = 30


def _model(deadly: str) -> Callable[..., WorkerEmbedder]:
    """The built-in model in a process that dies with each text that holds these words."""
    command = (sys.executable, "-P", "-c", _PROGRAM, deadly)
    return lambda *_, **__: WorkerEmbedder(threads=1, command=command)


async def _rounds(machine: Machine, end: Callable[[Device], bool]) -> int:
    """Rounds until this is so. Returns how many."""
    with mock.patch.dict(os.environ, machine.environment, clear=True), opened(resolve()) as device:
        async with device.online() as store:
            syncer = Syncer(device, store, purpose="a test", worker=True)
            try:
                for number in range(ROUNDS_MAX):
                    await syncer.round()
                    if end(device):
                        return number
            finally:
                syncer.close()
    return ROUNDS_MAX


def _embedded(device: Device) -> bool:
    return not device.replica.without_vectors(1)


@pytest.fixture
def core(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A Core whose texts have no vectors yet, and which makes no pause after a failure."""
    monkeypatch.setattr(round_embedder, "AFTER_FAILURE_SECONDS_MAX", 0.0)
    vault.core.call("config", "set", "embedding_provider", "none")
    filled(vault.core, TEXTS)
    vault.core.call("config", "set", "embedding_provider", "builtin")
    return vault.core


async def test_a_text_with_which_the_model_dies_is_set_aside_and_all_others_get_vectors(
    core: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_embedder, "embedder_for", _model("harbour 161."))
    assert await _rounds(core, _embedded) < ROUNDS_MAX
    now = standing(core)
    assert (now["texts"], now["without_vectors"], now["set_aside"]) == (TEXTS, 1, 1)
    assert "Entry 23 of the log names harbour 161." in core.found("harbour 161"), "by its words"
    assert "texts-set-aside" in concerns(core)
    assert "texts-without-vectors" not in concerns(core)
    assert "1 text can be found by words only" in core.call("doctor", "--offline", check=False).out
    core.call("config", "set", "embedding_provider", "none")
    core.call("remember", "the spare key hangs behind the barometer")
    core.call("config", "set", "embedding_provider", "builtin")
    assert await _rounds(core, _embedded) < 3, "newer texts do not wait"
    assert (standing(core)["texts"], standing(core)["without_vectors"]) == (TEXTS + 1, 1)


async def test_no_text_is_set_aside_while_the_model_dies_with_every_one(
    core: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_embedder, "embedder_for", _model(" "))
    assert await _rounds(core, _embedded) == ROUNDS_MAX
    now = standing(core)
    assert (now["without_vectors"], now["set_aside"]) == (TEXTS, 0)
    assert "ended without an answer" in str(now["problem"])
    monkeypatch.setattr(round_embedder, "embedder_for", _model("no text has this"))
    assert await _rounds(core, _embedded) < 3
    assert standing(core)["without_vectors"] == 0
