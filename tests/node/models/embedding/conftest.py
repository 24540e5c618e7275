"""A server that embeds, as large as Ollama's usual model, and a Core that has some texts."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.node.conftest import cheap_passphrases, relay, vault
from tests.support.embedding_server import EmbeddingServer, embedding_server
from tests.support.machine import Machine, transcript

__all__ = ["cheap_passphrases", "relay", "server", "vault"]

OLLAMA_DIMENSIONS = 768
TEXTS = 150


@pytest.fixture
def server() -> Generator[EmbeddingServer]:
    with embedding_server() as running:
        running.dimensions = OLLAMA_DIMENSIONS
        yield running


def filled(machine: Machine, count: int = TEXTS) -> Path:
    """Texts that the machine records and sends."""
    path = transcript(
        machine, *(f"Entry {number} of the log names harbour {number * 7}." for number in range(count))
    )
    machine.call("capture")
    machine.call("sync")
    return path


def migrated(machine: Machine, server: EmbeddingServer) -> None:
    """Over to the server's model."""
    machine.call("embed", "migrate", "ollama", "--url", server.url, "--yes")


def standing(machine: Machine) -> dict[str, object]:
    document: dict[str, object] = machine.call("embed", "status", "--json").json
    return document


def concerns(machine: Machine) -> list[str]:
    return [each["name"] for each in machine.call("status", "--json").json["concerns"]]
