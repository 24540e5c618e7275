"""A takeover takes nothing out that is not in its copy, wherever links lead."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from crystal_node.base.errors import LocalStorage
from crystal_prototype.home.takeover import take_over
from tests.prototype.home import prototypes
from tests.prototype.home.prototypes import places_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    root = tmp_path / ".ldm"
    prototypes.home(root)
    return root


def test_a_memory_that_lies_behind_a_link_is_not_taken_out(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk"
    shutil.move(home / "memory", elsewhere)
    (home / "memory").symlink_to(elsewhere)
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir() if path.is_file()}
    with pytest.raises(LocalStorage):
        take_over(places_of(home), NOW, even_so=True)
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir() if path.is_file()} == before
    assert (home / "config.json").exists()
    assert [path.name for path in tmp_path.iterdir() if "prototype" in path.name] == []


def test_links_in_the_home_are_copied_as_links_and_nothing_behind_them_is_touched(
    home: Path, tmp_path: Path
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "key").write_text("the person's own")
    shutil.rmtree(home / "state", ignore_errors=True)
    (home / "state").symlink_to(private)
    (home / "agents" / "linked").symlink_to(private)
    done = take_over(places_of(home), NOW, even_so=True)
    assert (private / "key").read_text() == "the person's own"
    assert (done.copy / "state").is_symlink()
    assert (done.copy / "agents" / "linked").is_symlink()
    assert not (home / "state").is_symlink()
    for path in (done.copy, *done.copy.rglob("*")):
        assert path.is_symlink() or path.stat().st_mode & 0o077 == 0
