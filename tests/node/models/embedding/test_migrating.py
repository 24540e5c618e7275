"""``crystal embed migrate``: said before, resumable wherever it is killed, with search working all the time."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from crystal_node.sync.round_embedder import RoundEmbedder
from tests.node.models.embedding.conftest import TEXTS, concerns, filled, migrated, standing
from tests.support.embedding_server import EmbeddingServer
from tests.support.machine import Machine, Vault, transcript

SECONDS_MAX = 60.0
IDENTITY = "ollama/nomic-embed-text/768/w1-1984-1024-128"


def _found(machine: Machine, query: str, *more: str) -> dict[str, Any]:
    return machine.call("search", "--json", *more, "--", query).json


def _made(machine: Machine) -> int:
    path = machine.home / "state" / "embedding.db"
    if not path.exists():
        return 0
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(20_000)
    try:
        return sum(1 for _ in connection.execute("SELECT 1 FROM made"))
    finally:
        connection.close()


def test_a_dry_run_says_what_it_costs_and_sends_no_text(vault: Vault, server: EmbeddingServer) -> None:
    filled(vault.core, 20)
    dry = ("embed", "migrate", "--dry-run", "--json")
    plan = vault.core.call(*dry, "openai", OPENAI_API_KEY="sk-test-1").json
    assert plan["destination"] == "api.openai.com"
    assert plan["changes_over"]
    assert plan["texts"] == 20
    assert 0 < plan["dollars"] < 0.01
    assert plan["model"].startswith("openai/text-embedding-3-small/1536/")
    said = vault.core.call("embed", "migrate", "google", "--dry-run", GOOGLE_API_KEY="k" * 20).out
    assert "They are sent to generativelanguage.googleapis.com, which reads them." in said
    assert vault.core.call(*dry, "openai", check=False).code == 12, "there is no key"
    mistyped = vault.core.call(*dry, "olama", check=False)
    assert mistyped.code == 2
    assert "ollama" in mistyped.err
    assert standing(vault.core)["vault_model"] != plan["model"]
    assert (
        vault.core.call("embed", "migrate", "ollama", "--url", server.url, typed="no\n", check=False).code
        == 2
    )
    assert not (vault.core.home / "state" / "embedding.db").exists()


def test_the_others_follow_and_only_who_has_chosen_it_sends_anything_to_it(
    vault: Vault, server: EmbeddingServer
) -> None:
    laptop = vault.add()
    filled(vault.core)
    vault.settle()
    done = vault.core.call("embed", "migrate", "ollama", "--url", server.url, "--yes", "--json").json
    assert (done["model"], done["made"], done["embedded"]) == (IDENTITY, TEXTS, TEXTS)
    assert len(server.inputs) < TEXTS + 40, "each text is read once"
    assert not (vault.core.home / "state" / "embedding.db").exists()
    vault.settle()
    assert len(vault.digests()) == 1
    found = _found(vault.core, "which entry names harbour 49")
    assert (found["mode"], found["note"]) == ("hybrid", "")
    server.asked.clear()
    found = _found(laptop, "which entry names harbour 49")
    assert found["mode"] == "keyword"
    assert "crystal config set embedding_provider ollama" in found["note"]
    assert found["results"]
    assert laptop.call("embed", "migrate", "builtin", "--yes", check=False).code != 0
    assert "core" in laptop.call("embed", "migrate", "builtin", "--yes", check=False).err.lower()
    laptop.call("sync")
    assert server.asked == [], "a device that has not chosen it sends nothing there"
    laptop.call("config", "set", "embedding_provider", "ollama")
    laptop.call("config", "set", "embedding_url", server.url)
    found = _found(laptop, "which entry names harbour 49")
    assert (found["mode"], found["note"]) == ("hybrid", "")
    laptop.call("remember", "what the laptop adds is embedded by the Core alone")
    laptop.call("sync")
    assert not any(text.startswith("search_document: what the laptop adds") for text in server.inputs)


def test_killed_while_it_makes_them_it_goes_on_and_the_old_ones_answer_meanwhile(
    vault: Vault, server: EmbeddingServer
) -> None:
    filled(vault.core)
    before = standing(vault.core)["vault_model"]
    asked, go_on = list[int](), threading.Event()

    def slow(rows: list[list[float]]) -> list[list[float]]:
        asked.append(len(rows))
        if sum(asked) > 80:
            go_on.wait(SECONDS_MAX)
        return rows

    server.spoil = slow
    started = vault.core.start("embed", "migrate", "ollama", "--url", server.url, "--yes")
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while sum(asked) <= 80:
            assert time.monotonic() < deadline
            assert started.poll() is None
            time.sleep(0.02)
        found = _found(vault.core, "which entry names harbour 49")
        assert (found["mode"], found["note"]) == ("hybrid", ""), (
            "by the old vectors, while the new ones are made"
        )
    finally:
        os.kill(started.pid, signal.SIGKILL)
        started.communicate()
        go_on.set()
    assert _made(vault.core) >= 64
    assert standing(vault.core)["vault_model"] == before
    migrated(vault.core, server)
    now = standing(vault.core)
    assert (now["vault_model"], now["without_vectors"], now["migration"]) == (IDENTITY, 0, None)


def test_what_a_failing_provider_made_is_kept_and_not_paid_for_again(
    vault: Vault, server: EmbeddingServer
) -> None:
    filled(vault.core)
    before = standing(vault.core)["vault_model"]
    asked: list[int] = []

    def third(rows: list[list[float]]) -> list[list[float]]:
        asked.append(len(rows))
        return rows if sum(asked) < 100 else []

    server.spoil = third
    failed = vault.core.call("embed", "migrate", "ollama", "--url", server.url, "--yes", check=False)
    assert failed.code == 12
    made = _made(vault.core)
    assert 0 < made < TEXTS
    now = standing(vault.core)
    assert (now["vault_model"], now["migration"]) == (before, {"model": IDENTITY, "made": made})
    assert _found(vault.core, "which entry names harbour 49")["mode"] == "hybrid", "by the old vectors"
    server.spoil = lambda rows: rows
    server.asked.clear()
    plan = vault.core.call("embed", "migrate", "ollama", "--url", server.url, "--dry-run", "--json").json
    assert (plan["texts"], plan["made"]) == (TEXTS - made, made)
    server.asked.clear()
    migrated(vault.core, server)
    documents = [text for text in server.inputs if text.startswith("search_document: Entry")]
    assert len(documents) < TEXTS - made + 40
    assert standing(vault.core)["without_vectors"] == 0


def test_killed_while_the_vault_changes_over_the_cores_next_rounds_finish_it(
    vault: Vault, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(vault.core)
    real, steps = RoundEmbedder.step, list[str]()

    async def killed(self: RoundEmbedder, model: str) -> object:
        steps.append(model)
        if len(steps) > 1:
            raise KeyboardInterrupt
        return await real(self, model)

    with monkeypatch.context() as patch:
        patch.setattr(RoundEmbedder, "step", killed)
        vault.core.call("embed", "migrate", "ollama", "--url", server.url, "--yes", check=False)
    assert len(steps) == 2
    half = standing(vault.core)
    assert half["vault_model"] == IDENTITY
    assert 0 < int(str(half["without_vectors"])) < TEXTS
    found = _found(vault.core, "which entry names harbour 49")
    assert found["mode"] == "hybrid"
    assert "are being made" in found["note"]
    server.asked.clear()
    vault.core.call("sync")
    assert standing(vault.core)["without_vectors"] == 0
    assert not any(text.startswith("search_document: Entry 149") for text in server.inputs), (
        "it was made before"
    )
    assert not (vault.core.home / "state" / "embedding.db").exists()


def test_a_forget_reaches_what_was_made_beforehand(vault: Vault, server: EmbeddingServer) -> None:
    filled(vault.core, 100)
    vault.core.call("remember", "the combination of the safe is four seven one one")
    vault.core.call("sync")
    asked: list[int] = []

    def after_most(rows: list[list[float]]) -> list[list[float]]:
        asked.append(len(rows))
        return rows if len(asked) < 6 else []

    server.spoil = after_most
    path = vault.core.home / "state" / "embedding.db"
    vault.core.call("embed", "migrate", "ollama", "--url", server.url, "--yes", check=False)
    made = _made(vault.core)
    if made < 101:  # the newest text may be among those that are still to be made
        server.spoil = lambda rows: rows
        _make_all_but_change_over(vault.core, server)
    vector = _vector_of_last(path)
    assert vector in path.read_bytes()
    found = _found(vault.core, "combination of the safe")["results"][0]["id"]
    vault.core.call("forget", found[:12])
    vault.core.call("sync")
    assert _made(vault.core) == 100
    assert vector not in path.read_bytes()


def test_another_model_under_the_same_name_is_told_and_all_can_be_made_anew(
    vault: Vault, server: EmbeddingServer
) -> None:
    filled(vault.core, 30)
    migrated(vault.core, server)
    server.seed = "two"
    vault.core.call("remember", "the anchor chain has nine shackles")
    vault.core.call("sync")
    assert "texts-without-vectors" in concerns(vault.core)
    assert standing(vault.core)["without_vectors"] == 1
    found = _found(vault.core, "anchor chain shackles")
    assert found["mode"] == "keyword"
    assert "another model" in found["note"]
    assert "crystal embed migrate" in found["note"]
    assert "nine shackles" in found["results"][0]["text"]
    server.asked.clear()
    vault.core.call("embed", "migrate", "--anew", "--yes")
    documents = [text for text in server.inputs if "of the log names harbour" in text]
    assert len(documents) <= len(set(documents)) + 1, "each text is read once, and one is compared"
    assert not (vault.core.home / "state" / "embedding.db").exists()
    assert standing(vault.core)["without_vectors"] == 0
    assert _found(vault.core, "anchor chain shackles")["mode"] == "hybrid"
    assert "texts-without-vectors" not in concerns(vault.core)


def test_back_to_the_built_in_model_needs_no_server(vault: Vault, server: EmbeddingServer) -> None:
    filled(vault.core, 20)
    migrated(vault.core, server)
    server.asked.clear()
    done = vault.core.call("embed", "migrate", "builtin", "--yes", "--json").json
    assert done["model"].startswith("all-MiniLM-L6-v2/")
    assert vault.core.call("config", "--json").json
    assert _found(vault.core, "which entry names harbour 49")["mode"] == "hybrid"
    assert server.asked == []


def test_the_environment_comes_first_and_that_is_told(vault: Vault) -> None:
    filled(vault.core, 3)
    refused = vault.core.call(
        "embed", "migrate", "builtin", "--yes", check=False, CRYSTAL_EMBEDDING_PROVIDER="ollama"
    )
    assert refused.code == 2
    assert "CRYSTAL_EMBEDDING_PROVIDER" in refused.err


def _make_all_but_change_over(machine: Machine, server: EmbeddingServer) -> None:
    async def never(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crystal_node.surfaces.cli.embed.change_over", never)
        machine.call("embed", "migrate", "ollama", "--url", server.url, "--yes", check=False)


def _vector_of_last(path: Path) -> bytes:
    connection = apsw.Connection(str(path))
    try:
        last = connection.execute("SELECT vectors FROM made ORDER BY chunk DESC LIMIT 1")
        return next(cast("Iterator[tuple[bytes]]", last))[0][:64]
    finally:
        connection.close()


def test_with_the_multilingual_model_another_language_is_found_on_all_devices(vault: Vault) -> None:
    laptop = vault.add()
    transcript(
        vault.core,
        "Die Heizung im Bad wird nicht warm, obwohl das Ventil ganz offen ist.",
        "Le contrat d'entretien de la chaudière se renouvelle tacitement.",
        *(f"Entry {number} of the log names harbour {number * 7}." for number in range(12)),
    )
    vault.core.call("capture")
    vault.settle()
    plan = vault.core.call("embed", "migrate", "multilingual", "--dry-run", "--json").json
    assert (plan["destination"], plan["dollars"]) == (None, 0.0)
    done = vault.core.call("embed", "migrate", "multilingual", "--yes", "--json").json
    assert done["model"].startswith("multilingual/minilm-l6-v2+use-multilingual-v3/896/")
    vault.settle()
    assert len(vault.digests()) == 1
    found = _found(vault.core, "bathroom radiator stays cold")
    assert found["mode"] == "hybrid"
    assert found["results"][0]["text"].startswith("Die Heizung")
    assert "embedding_provider multilingual" in _found(laptop, "bathroom radiator stays cold")["note"]
    laptop.call("config", "set", "embedding_provider", "multilingual")
    found = _found(laptop, "bathroom radiator stays cold")
    assert found["mode"] == "hybrid"
    assert "embedding_provider" not in found["note"]
    assert found["results"][0]["text"].startswith("Die Heizung")
