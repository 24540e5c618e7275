"""A book for each test."""

from collections.abc import Generator
from pathlib import Path

import pytest

from crystal_core.weaver.book import WeaverBook


@pytest.fixture
def book(tmp_path: Path) -> Generator[WeaverBook]:
    with WeaverBook.open(tmp_path / "weaver.db") as opened:
        yield opened
