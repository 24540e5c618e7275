"""A gateway goes on for weeks: whatever happens to its home meanwhile concerns one request, not the process."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from crystal_node.base.settings import Settings, resolve
from crystal_node.search.finding.documents import SearchRequest
from crystal_node.search.finding.keeper import Keeper
from tests.node.surfaces.gateway.conftest import SAID
from tests.support.gateway import Gateway
from tests.support.machine import Machine, Vault

IMPORTER = SearchRequest(query="retry budget of the importer", limit=1, words_only=True)


def _settings(machine: Machine) -> Settings:
    return resolve(None, machine.environment | {"CRYSTAL_HOME": str(machine.home)})


def _first(kept: Keeper) -> list[str]:
    return [hit.text for hit in kept.ask(lambda finding: finding.search(IMPORTER)).results]


def test_a_memory_that_was_restored_answers_from_then_on(memory: Machine, vault: Vault) -> None:
    own = vault.core
    own.call("remember", "The importer of this vault has a retry budget of two.")
    kept = Keeper(lambda: _settings(own))
    try:
        assert _first(kept) == ["The importer of this vault has a retry budget of two."]
        folder = _settings(own).home.database.parent
        for name in ("crystal.db-wal", "crystal.db-shm"):
            (folder / name).unlink(missing_ok=True)
        with closing(sqlite3.connect(_settings(memory).home.database)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        copy = folder / "restored.db"
        shutil.copyfile(_settings(memory).home.database, copy)
        copy.chmod(0o600)
        copy.replace(folder / "crystal.db")
        assert _first(kept) == [SAID[0]]
    finally:
        kept.close()


def test_a_memory_that_nobody_asks_is_closed_and_opened_again(memory: Machine) -> None:
    kept = Keeper(lambda: _settings(memory), idle_seconds=0.0)
    try:
        assert _first(kept) == [SAID[0]]
        assert kept.rest()
        assert _first(kept) == [SAID[0]]
    finally:
        kept.close()
    assert _first(kept) == [SAID[0]]  # closed by mistake, it opens again
    kept.close()


def test_searches_go_on_while_another_process_writes(gateway: Gateway) -> None:
    database = gateway.machine.home / "memory" / "crystal.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = gateway.post("/api/search", {"query": "retry budget of the importer", "words_only": True})
        other.execute("ROLLBACK")
    assert answer["results"][0]["text"] == SAID[0]


def test_keys_that_are_away_are_told_and_searches_need_none(gateway: Gateway) -> None:
    secrets: Path = gateway.machine.home / "state" / "secrets"
    away = secrets.with_name("away")
    secrets.rename(away)
    secrets.mkdir(mode=0o700)
    try:
        told = gateway.ask("GET", "/api/status")
        assert told.status_code == 503
        assert "keys" in told.json()["error"]
        assert gateway.post("/api/search", {"query": "importer", "words_only": True})["results"]
    finally:
        secrets.rmdir()
        away.rename(secrets)
    assert gateway.get("/api/status")["role"] == "core"


def test_what_another_command_remembers_is_found_at_once(gateway: Gateway) -> None:
    gateway.machine.call("remember", "The violet lamp stands in the tower.")
    found = gateway.post("/api/search", {"query": "violet lamp tower", "words_only": True})["results"]
    assert found[0]["text"] == "The violet lamp stands in the tower."
    gateway.machine.call("forget", found[0]["id"])
    again = gateway.post("/api/search", {"query": "violet lamp tower", "words_only": True})["results"]
    assert "The violet lamp stands in the tower." not in [hit["text"] for hit in again]
