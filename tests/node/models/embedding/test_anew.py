"""``crystal embed migrate --anew``: interrupted anywhere it goes on, without the option too, and leaves nothing behind."""

import pytest

from crystal_node.sync.round_embedder import RoundEmbedder
from tests.node.models.embedding.conftest import TEXTS, filled, migrated, standing
from tests.support.embedding_server import EmbeddingServer
from tests.support.machine import Machine, Vault


def _kept(machine: Machine) -> bool:
    return (machine.home / "state" / "embedding.db").exists()


def _documents(server: EmbeddingServer) -> list[str]:
    return [text for text in server.inputs if "Entry" in text]


@pytest.fixture
def embedded(vault: Vault, server: EmbeddingServer) -> Machine:
    """A Core whose vectors the server made, before another model took the place of its own."""
    filled(vault.core)
    migrated(vault.core, server)
    server.seed = "two"
    server.asked.clear()
    return vault.core


def test_stopped_half_way_it_goes_on_without_the_option_and_leaves_nothing_behind(
    embedded: Machine, server: EmbeddingServer
) -> None:
    given: list[int] = []

    def half(rows: list[list[float]]) -> list[list[float]]:
        given.append(len(rows))
        return rows if sum(given) < 100 else []

    server.spoil = half
    assert embedded.call("embed", "migrate", "--anew", "--yes", check=False).code == 12
    server.spoil = lambda rows: rows
    plan = embedded.call("embed", "migrate", "--dry-run", "--json").json
    assert plan["changes_over"]
    assert plan["made"] + plan["texts"] == TEXTS
    assert 0 < plan["made"] < TEXTS
    assert "are all made again" in embedded.call("embed", "migrate", "--dry-run").out
    embedded.call("sync")  # rounds in between do not take it for done
    assert _kept(embedded)
    server.asked.clear()
    embedded.call("embed", "migrate", "--yes")
    assert len(set(_documents(server))) <= plan["texts"] + 2, "what was made is not paid for again"
    assert not _kept(embedded)
    assert standing(embedded)["without_vectors"] == 0
    found = embedded.call("search", "--json", "which entry names harbour 49").json
    assert (found["mode"], found["note"]) == ("hybrid", "")
    assert not embedded.call("embed", "migrate", "--dry-run", "--json").json["changes_over"]


def test_killed_while_the_vault_changes_over_the_next_rounds_finish_it_and_leave_nothing_behind(
    embedded: Machine, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, steps = RoundEmbedder.step, list[str]()

    async def killed(self: RoundEmbedder, model: str) -> object:
        steps.append(model)
        if len(steps) > 1:
            raise KeyboardInterrupt
        return await real(self, model)

    with monkeypatch.context() as patch:
        patch.setattr(RoundEmbedder, "step", killed)
        embedded.call("embed", "migrate", "--anew", "--yes", check=False)
    assert 0 < int(str(standing(embedded)["without_vectors"])) < TEXTS
    assert _kept(embedded)
    server.asked.clear()
    embedded.call("sync")
    assert standing(embedded)["without_vectors"] == 0
    assert len(_documents(server)) <= 1, "it was made before"
    assert not _kept(embedded)
