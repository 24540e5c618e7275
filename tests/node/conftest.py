"""One relay process for all tests of a module; each test makes its own vault on it."""

from collections.abc import Generator
from pathlib import Path

import pytest

from crystal_crypto.keystore.files import FileKeyStore
from tests.crypto.killed_passphrases import CHEAP
from tests.support.machine import Machine, Vault
from tests.support.relay_process import RelayProcess, running_relay


@pytest.fixture(autouse=True)
def cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is called in this process sets passphrases at a cost that suits tests; `tests/crypto` holds what it really is."""
    monkeypatch.setattr(FileKeyStore.set_passphrase, "__defaults__", (CHEAP,))


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Generator[RelayProcess]:
    with running_relay(tmp_path_factory.mktemp("relay") / "store") as running:
        yield running


@pytest.fixture
def vault(relay: RelayProcess, tmp_path: Path) -> Vault:
    """A vault with a Core alone."""
    return Vault(relay, tmp_path)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that is not set up."""
    (tmp_path / "machine").mkdir()
    return Machine(tmp_path / "machine")
