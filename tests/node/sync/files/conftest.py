"""Two devices on one store."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.desks import Desk, Desks


@pytest.fixture
def desks(tmp_path: Path) -> Desks:
    return Desks(tmp_path, "laptop")


@pytest.fixture
def core(desks: Desks) -> Generator[Desk]:
    desk = desks.open("core")
    yield desk
    desk.close()


@pytest.fixture
def laptop(desks: Desks) -> Generator[Desk]:
    desk = desks.open("laptop")
    yield desk
    desk.close()
