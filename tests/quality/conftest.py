"""The sets with some of their notes, in a memory that all tests search."""

from collections.abc import Generator

import pytest

from bench.quality.__main__ import NOTES_OF_TESTS
from bench.quality.ranking import Memory, memory_of
from bench.quality.sets import read_sets
from crystal_core.embed.builtin import BuiltinEmbedder


@pytest.fixture(scope="module")
def memory() -> Generator[Memory]:
    with BuiltinEmbedder() as embedder, memory_of(read_sets(notes_max=NOTES_OF_TESTS), embedder) as found:
        yield found
