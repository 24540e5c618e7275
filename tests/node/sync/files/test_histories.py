"""Random histories of three devices: people write, rename and delete, rounds run and are broken off, homes lose their books.

Afterwards all hold the same files, but for those whose names clash where they were made: these stay there and are named. And
every content that nobody overwrote or deleted himself is in a tree or in a trash.
"""

import random
from pathlib import Path

import pytest

from crystal_mirror.requests import Request, StoreFailure
from tests.support.desks import Desk, Desks

NAMES = ("core", "laptop", "phone")
PATHS = ("a", "b", "folder/a", "folder/b", "A", "folder")
SEEDS = 12
STEPS = 40


class People:
    """What they did, and which contents they gave up by it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.written: set[bytes] = set()
        self.given_up: set[bytes] = set()

    def act(self, desk: Desk) -> None:
        tree = desk.tree()
        choice = self.rng.random()
        if choice < 0.6 or not tree:
            self._write(desk, self.rng.choice(PATHS))
        elif choice < 0.8:
            path = self.rng.choice(sorted(tree))
            self.given_up.add(tree[path])
            (desk.root / path).unlink()
        else:
            source, target = self.rng.choice(sorted(tree)), desk.root / f"moved-{self.rng.randrange(5)}"
            if not target.exists():
                (desk.root / source).rename(target)

    def _write(self, desk: Desk, path: str) -> None:
        file = desk.root / path
        if file.is_dir() or any(parent.is_file() for parent in file.parents):
            return
        if file.exists():
            self.given_up.add(file.read_bytes())
        content = self.rng.randbytes(self.rng.choice((3, 40, 700)))
        self.written.add(content)
        desk.write(path, content)


def breaks_off(rng: random.Random, left: int) -> object:
    def before(_request: Request) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreFailure("the network went away")

    return before if rng.random() < 0.3 else None


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_people_do_all_devices_end_with_the_same_files_and_nothing_is_lost(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    desks = Desks(tmp_path, *NAMES[1:])
    people, opened = People(rng), {name: desks.open(name) for name in NAMES}
    for _ in range(STEPS):
        name = rng.choice(NAMES)
        choice = rng.random()
        if choice < 0.5:
            people.act(opened[name])
        elif choice < 0.97:
            desks.store.before = breaks_off(rng, rng.randrange(30))  # type: ignore[assignment]
            try:
                opened[name].sync()
            except StoreFailure:
                pass
            finally:
                desks.store.before = None
        else:
            opened[name].close()
            for path in (desks.folder / name / "state").glob("files.db*"):
                path.unlink()
            opened[name] = desks.open(name)
    refused: dict[str, set[str]] = {}
    for _ in range(7):
        for name, desk in opened.items():
            desk.book.confirm()
            refused[name] = set(desk.sync().refused)
    trees = [
        {path: data for path, data in desk.tree().items() if path not in refused[name]}
        for name, desk in opened.items()
    ]
    assert trees[0] == trees[1] == trees[2]
    assert len({path.casefold() for path in trees[0]}) == len(trees[0])
    trashed = {item.file.read_bytes() for desk in opened.values() for item in desk.disk.trash.items()}
    here = {data for desk in opened.values() for data in desk.tree().values()}
    lost = people.written - people.given_up - here - trashed
    assert not lost, f"seed {seed} lost {len(lost)} contents"
    for desk in opened.values():
        assert not desk.book.offers()
        assert desk.replica.recompute_digest() == desk.replica.digest()
        desk.close()
