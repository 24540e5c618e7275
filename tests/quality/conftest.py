"""The sets without most of what no query wants, in a memory that all tests search."""

from collections.abc import Generator

import pytest

from bench.quality.ranking import Memory, memory_of
from bench.quality.sets import read_sets
from crystal_core.embed.builtin import BuiltinEmbedder


@pytest.fixture(scope="module")
def memory() -> Generator[Memory]:
    with BuiltinEmbedder() as embedder, memory_of(read_sets(small=True), embedder) as found:
        yield found
