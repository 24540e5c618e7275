"""A provider that is down, refuses or is off: everything is recorded, found by its words, and gets its vectors later."""

import subprocess
import time
from collections.abc import Callable

import pytest

from crystal_node.sync import round_embedder
from crystal_node.sync.round_embedder import AFTER_FAILURE_SECONDS_MAX, RoundEmbedder
from tests.node.models.embedding.conftest import TEXTS, concerns, filled, migrated, standing
from tests.support.embedding_server import EmbeddingServer
from tests.support.machine import Vault


def test_what_is_recorded_while_it_is_down_is_found_by_words_everywhere_and_embedded_later(
    vault: Vault, server: EmbeddingServer
) -> None:
    laptop = vault.add()
    filled(vault.core, 12)
    migrated(vault.core, server)
    server.down = True
    laptop.call("remember", "the spare key hangs behind the barometer")
    vault.settle()
    for machine in vault.machines:
        assert machine.found("spare key barometer")[0] == "the spare key hangs behind the barometer"
    assert "texts-without-vectors" in concerns(vault.core)
    assert "texts-without-vectors" not in concerns(laptop)
    now = standing(vault.core)
    assert now["without_vectors"] == 1
    assert "503" in str(now["problem"])
    assert "503" in vault.core.call("search", "barometer", "--json").json["note"]
    said = vault.core.call("doctor", "--offline", check=False).out
    assert "no vectors for now" in said
    server.down = False
    vault.settle()
    assert standing(vault.core)["without_vectors"] == standing(laptop)["without_vectors"] == 0
    assert "texts-without-vectors" not in concerns(vault.core)
    assert len(vault.digests()) == 1


def test_a_core_without_its_key_goes_on_by_words_and_names_what_is_missing(vault: Vault) -> None:
    filled(vault.core, 5)
    vault.core.call("config", "set", "embedding_provider", "openai")
    found = vault.core.call("search", "--json", "harbour 7").json
    assert found["mode"] == "hybrid", "the vault's vectors are the built-in model's until they are migrated"
    refused = vault.core.call("embed", "migrate", "--yes", check=False)
    assert refused.code == 12
    assert "OPENAI_API_KEY" in refused.err


def test_switched_off_nothing_is_embedded_and_switched_on_again_all_is(vault: Vault) -> None:
    vault.core.call("config", "set", "embedding_provider", "none")
    filled(vault.core, 5)
    now = standing(vault.core)
    assert (now["vault_model"], now["without_vectors"], now["problem"]) == (None, 5, None)
    assert vault.core.found("harbour 7")
    vault.core.call("config", "set", "embedding_provider", "builtin")
    vault.core.call("sync")
    now = standing(vault.core)
    assert (now["queries"], now["without_vectors"]) == ("hybrid", 0)


async def test_a_failing_provider_is_left_alone_for_longer_and_longer(vault: Vault) -> None:
    from crystal_core.embed.port import EmbedderUnavailable
    from crystal_node.base.settings import resolve
    from crystal_node.device.device import opened

    with pytest.MonkeyPatch.context() as patch:
        for name, value in vault.core.environment.items():
            patch.setenv(name, value)
        with opened(resolve()) as device:
            clock = [1000.0]
            ingest = RoundEmbedder(device, lambda: clock[0])
            assert await ingest.begin()
            waits: list[float] = []
            for _ in range(8):
                ingest.failed(EmbedderUnavailable("nobody answers"))
                assert await ingest.begin() == ""
                began = clock[0]
                while ingest.resting:
                    clock[0] += 1.0
                waits.append(clock[0] - began)
            assert waits == sorted(waits)
            assert waits[-1] == AFTER_FAILURE_SECONDS_MAX
            ingest.failed(EmbedderUnavailable("later", after=5000.0))
            clock[0] += 4999.0
            assert ingest.resting
            clock[0] += 2.0
            assert await ingest.begin()
            ingest.embedded()
            assert ingest.words() == ""
            ingest.close()


def test_what_would_cost_more_than_a_little_waits_until_it_was_agreed_to(
    vault: Vault, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_embedder, "UNASKED_TEXTS_MAX", 4)

    def far(_url: str) -> bool:
        return False

    monkeypatch.setattr(round_embedder, "is_loopback", far)
    server.dimensions = 1536
    vault.core.call("config", "set", "embedding_provider", "none")
    filled(vault.core, 6)
    vault.core.call("config", "set", "embedding_url", server.openai)
    vault.core.call("config", "set", "embedding_provider", "openai")
    vault.core.call("remember", "what is new is embedded as it comes")
    vault.core.call("sync")
    now = standing(vault.core)
    assert (now["vault_model"], now["without_vectors"]) == (
        "openai/text-embedding-3-small/1536/w1-1984-1024-128",
        6,
    )
    assert not any("Entry" in text for text in server.inputs)
    assert "texts-without-vectors" in concerns(vault.core)
    assert "`crystal embed migrate` shows how much" in vault.core.call("doctor", "--offline", check=False).out
    vault.core.call("embed", "migrate", "--yes")
    assert standing(vault.core)["without_vectors"] == 0
    assert "texts-without-vectors" not in concerns(vault.core)


def test_what_comes_all_at_once_is_found_by_its_words_elsewhere_before_it_is_embedded(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop = vault.add()

    async def later(_self: object) -> None:
        return

    with monkeypatch.context() as patched:
        patched.setattr(RoundEmbedder, "catch_up", later)
        filled(vault.core)
    laptop.call("sync")
    assert laptop.found("names harbour 980")[0] == "Entry 140 of the log names harbour 980."
    assert standing(laptop)["without_vectors"] == TEXTS
    assert "holds no vectors yet" in laptop.call("search", "harbour 7", "--json").json["note"]
    assert vault.core.call("sync", "--json").json["embedded"] == TEXTS
    assert standing(vault.core)["without_vectors"] == 0
    laptop.call("sync")
    assert standing(laptop)["without_vectors"] == 0


def test_a_device_that_does_not_lead_needs_no_provider_to_sync(vault: Vault, server: EmbeddingServer) -> None:
    laptop = vault.add()
    filled(vault.core, 5)
    migrated(vault.core, server)
    laptop.call("config", "set", "embedding_provider", "openai")
    server.asked.clear()
    said = laptop.call("sync")
    assert "no vectors" not in said.out + said.err
    laptop.call("config", "set", "embedding_provider", "ollama")
    laptop.call("config", "set", "embedding_model", "a-model-nobody-knows")
    laptop.call("config", "set", "embedding_url", server.url)
    laptop.call("sync")
    assert server.asked == []
    found = laptop.call("search", "--json", "harbour 7").json
    assert found["mode"] == "keyword"
    assert "crystal config set embedding_model nomic-embed-text" in found["note"]
    assert server.asked == []


@pytest.mark.slow
def test_a_watching_core_embeds_what_it_could_not_as_soon_as_the_provider_is_back(
    vault: Vault, server: EmbeddingServer
) -> None:
    filled(vault.core, 5)
    migrated(vault.core, server)
    server.down = True
    watching = vault.core.start("sync", "--watch")
    try:
        vault.core.call("remember", "the spare key hangs behind the barometer")
        _until(watching, lambda: "texts-without-vectors" in concerns(vault.core))
        server.down = False
        _until(watching, lambda: standing(vault.core)["without_vectors"] == 0)
        _until(watching, lambda: "texts-without-vectors" not in concerns(vault.core))
    finally:
        watching.terminate()
        watching.communicate()


def _until(watching: "subprocess.Popen[str]", true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90.0
    while not true():
        assert watching.poll() is None, watching.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
