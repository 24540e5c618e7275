"""One device for all tests of a module: each test has a folder and a source of its own name."""

import os
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from crystal_core.documents import Document, document_pieces, documents
from crystal_crypto.keystore.files import FileKeyStore
from crystal_node.base.settings import Settings, resolve
from crystal_node.derive.sources.results import SourceSynced
from crystal_node.derive.sources.service import sync_sources
from crystal_node.device.device import Device, opened
from tests.crypto.killed_passphrases import CHEAP
from tests.support.machine import Machine, Vault
from tests.support.relay_process import RelayProcess

OLD = 1_600_000_000


@dataclass
class Folder:
    """A folder of a person on a machine, and the source that is made of it."""

    machine: Machine
    root: Path
    name: str
    device: Device = field(repr=False)

    def write(self, path: str, text: str | bytes, *, at: int = OLD) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        os.utime(file, (at, at))
        return file

    async def sync(self, **options: Any) -> SourceSynced:
        synced = await sync_sources(self.device, self.name, **options)
        return synced.sources[0]

    def documents(self) -> dict[str, Document]:
        return {each.path: each for each in documents(self.device.replica.database, self.name)}

    def texts(self, path: str) -> list[str]:
        return [piece.text for piece in document_pieces(self.device.replica.database, self.name, path)]


def settings_of(machine: Machine) -> Settings:
    return resolve(None, machine.environment | {"CRYSTAL_HOME": str(machine.home)})


@pytest.fixture(scope="module")
def single(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A Core by itself."""
    before = FileKeyStore.set_passphrase.__defaults__
    FileKeyStore.set_passphrase.__defaults__ = (CHEAP,)
    try:
        return Vault(relay, tmp_path_factory.mktemp("single")).core
    finally:
        FileKeyStore.set_passphrase.__defaults__ = before


@pytest.fixture
def device(single: Machine) -> Generator[Device]:
    with opened(settings_of(single)) as device:
        yield device


@pytest.fixture
def folder(single: Machine, device: Device, tmp_path: Path) -> Folder:
    """A source that is added already, with nothing in it."""
    from crystal_node.derive.sources.service import add_source

    root = tmp_path / "notes"
    root.mkdir()
    name = tmp_path.name
    add_source(device, root, name=name)
    return Folder(single, root, name, device)
