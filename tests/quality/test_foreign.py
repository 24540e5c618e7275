"""Foreign texts: as many as asked for, with vectors where the model's would lie."""

import numpy as np
from numpy.typing import NDArray

from bench.quality.foreign import CHARS_MIN, WithForeign, pool
from tests.quality.test_public import DIMENSIONS, Letters

PASSAGES = [
    f"{first} sentence about {second} and what follows of it" for first in "abcdefgh" for second in "pqrs"
]


def vectors(made: list[list[bytes]]) -> NDArray[np.float32]:
    rows = b"".join(window for windows in made for window in windows)
    return np.frombuffer(rows, "<f2").reshape(-1, DIMENSIONS).astype(np.float32)


def test_there_are_as_many_as_asked_for_each_another_and_the_model_sees_the_pool_alone() -> None:
    model = Letters()
    foreign = WithForeign(model, PASSAGES, 500)
    assert len(set(foreign.texts)) == 500
    foreign.embed_windows(foreign.texts)
    assert set(model.asked) == set(PASSAGES)


def test_one_passage_has_the_models_vector_and_several_have_one_near_it() -> None:
    foreign = WithForeign(Letters(), PASSAGES, 500)
    made, real = (vectors(one.embed_windows(foreign.texts)) for one in (foreign, Letters()))
    alone = [number for number, text in enumerate(foreign.texts) if text in PASSAGES]
    assert len(alone) >= len(PASSAGES) // 2
    assert np.array_equal(made[alone], real[alone])
    assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=2e-3)
    assert (made * real).sum(axis=1).min() > 0.8
    assert len(np.unique(made, axis=0)) > 450


def test_other_texts_are_the_models_and_stand_in_their_order() -> None:
    foreign = WithForeign(Letters(), PASSAGES, 40)
    mixed = [foreign.texts[0], "something else", foreign.texts[1]]
    found = foreign.embed_windows(mixed)
    assert found[1] == Letters().embed_windows(["something else"])[0]
    assert [found[0], found[2]] == foreign.embed_windows([mixed[0], mixed[2]])


def test_the_pool_has_each_passage_once_and_none_that_says_too_little() -> None:
    found = pool([*PASSAGES, *PASSAGES, "short"])
    assert sorted(found) == sorted(PASSAGES)
    assert min(map(len, found)) >= CHARS_MIN
    assert pool(PASSAGES) == found
