"""A relay process of its own for each test, and a vault on it: here relays are killed, filled up and looked
into."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.machine import Vault
from tests.support.relay_process import RelayProcess, running_relay


@pytest.fixture
def relay(tmp_path: Path) -> Generator[RelayProcess]:
    with running_relay(tmp_path / "relay" / "store", options=("--verbose",)) as running:
        yield running


@pytest.fixture
def vault(relay: RelayProcess, tmp_path: Path) -> Vault:
    """A vault with a Core alone."""
    return Vault(relay, tmp_path / "devices")
