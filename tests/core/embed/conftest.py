"""One loaded model for all tests of the embedder, and its files in a directory that a test may spoil."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.embed.manifest import MANIFEST_FILE, read_manifest
from crystal_core.embed.session import PROCESS_ENVIRONMENT

# As a composition root does it, before the libraries are imported.
os.environ.update(PROCESS_ENVIRONMENT)

MODEL = Path(__file__).resolve().parents[3] / "core" / "crystal_core" / "embed" / "model"


@pytest.fixture(scope="session")
def embedder() -> Iterator[BuiltinEmbedder]:
    with BuiltinEmbedder(threads=2) as made:
        yield made


@pytest.fixture
def model_copy(tmp_path: Path) -> Path:
    """A private copy of the model's files."""
    directory = tmp_path / "model"
    directory.mkdir()
    for name in (MANIFEST_FILE, *read_manifest(MODEL).files):
        shutil.copyfile(MODEL / name, directory / name)
    return directory
