"""The vectors: our code and the independent reader both come to what each file says."""

import ast
from pathlib import Path
from types import ModuleType

import pytest

from tests.crypto import (
    independent_blob,
    independent_founding,
    independent_invite,
    independent_operation,
    independent_reader,
    independent_wrapping,
)
from tests.crypto.readers import expected, ours, theirs
from tests.vectors.generate import FOLDERS, vectors
from tests.vectors.vectorfile import Vector, read_folder

ALL = [vector for folder in FOLDERS for vector in read_folder(folder)]
AT_LEAST = {
    "entry": 60,
    "blob": 80,
    "bundle": 10,
    "letter": 15,
    "operation": 36,
    "code": 25,
    "key": 20,
    "v1": 15,
    "invite": 150,
    "kit": 35,
    "wrapped": 25,
    "founding": 30,
    "deletion": 15,
}


def _name(vector: Vector) -> str:
    return f"{vector.folder}/{vector.name}"


@pytest.mark.parametrize("vector", ALL, ids=_name)
def test_our_reader_comes_to_what_the_vector_says(vector: Vector) -> None:
    assert ours(vector) == expected(vector)


@pytest.mark.parametrize("vector", ALL, ids=_name)
def test_the_independent_reader_comes_to_what_the_vector_says(vector: Vector) -> None:
    assert theirs(vector) == expected(vector)


@pytest.mark.slow
def test_making_the_vectors_again_gives_the_same_files() -> None:
    made = {vector.path: vector.render() for vector in vectors()}
    kept = {vector.path: vector.path.read_text(encoding="ascii") for vector in ALL}
    assert made.keys() == kept.keys()
    assert [path.name for path in made if made[path] != kept[path]] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_holds_enough_faults_and_a_success(folder: str) -> None:
    outcomes = [vector.expect for vector in ALL if vector.folder == folder]
    assert len(outcomes) >= AT_LEAST[folder]
    assert 1 <= outcomes.count("success") < len(outcomes) or folder == "key"


@pytest.mark.parametrize(
    "module",
    [
        independent_reader,
        independent_blob,
        independent_invite,
        independent_wrapping,
        independent_founding,
        independent_operation,
    ],
)
def test_the_independent_reader_uses_nothing_of_ours(module: ModuleType) -> None:
    tree = ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }
    ours_or_tests = {
        name for name in imported if name.split(".")[0].startswith(("crystal", "tests")) or not name
    }
    assert ours_or_tests <= {independent_reader.__name__}
    assert any(name.startswith(("cryptography.", "msgspec")) for name in imported)
