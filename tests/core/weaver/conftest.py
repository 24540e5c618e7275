"""A database for each test."""

from collections.abc import Generator
from pathlib import Path

import pytest

from crystal_core.weaver.database import WeaverDatabase


@pytest.fixture
def database(tmp_path: Path) -> Generator[WeaverDatabase]:
    with WeaverDatabase.open(tmp_path / "weaver.db") as opened:
        yield opened
