"""Foreign texts: how much less is found when so many of other people's stand around.

A foreign text is made of one to four passages out of a pool: sentences of the documentation that ships with Python, or of the
made conversations about code, which speak of the same matters as our own sets and are harder to tell from what is right. Those
of one passage have the model's own vector. The vector of a longer one is the mean of its passages' vectors, by `WEIGHT`, with a
direction of its own (`OWN`), so that no two lie in the same place. So a hundred thousand cost the model no more than the pool.

Against the vectors that the model makes of the same texts, over 200 of them: the nearest to a query of ours is at .26 and
really at .27 on average, the tenth at .17 and .17, and each one's nearest neighbour at .49 and .44. The cosine of made and real
is .84.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from bench.memories import sentences
from bench.quality.coding.conversations import make_corpus
from bench.quality.coding.world import Part
from bench.quality.measuring import OWN as OWN_SETS
from bench.quality.measuring import Measured, measured
from bench.quality.public.beam import MINUTE, read_beam
from bench.quality.public.corpus import Corpus, Text
from bench.quality.public.measurement import measured_questions
from bench.quality.public.memory import memory_of as public_memory_of
from bench.quality.ranking import memory_of
from bench.quality.sets import AGE_DAYS_MAX, Passage, Sets
from crystal_core.embed.port import Embedder

POOL_MAX = 5000
OWN = 0.1
"""Length of a vector's own direction, beside a mean of length 1 or less."""
WEIGHT = 1.5
"""Exponent of a passage's length: the longer ones of a text decide."""
CHARS_MIN, CHARS_MAX = 40, 300
MESSAGES_A_SESSION = 12
MINUTES_APART = 6


@dataclass(frozen=True, slots=True)
class Among:
    """The same questions without and with foreign texts."""

    name: str
    count: int
    alone: Measured
    among: Measured


def measured_among(sets: Sets, folder: Path | None, count: int, embedder: Embedder) -> Iterator[Among]:
    """Our own sets, and BEAM where it is present, asked everywhere; among each kind of foreign texts."""
    beam = read_beam(folder) if folder else None
    own_alone = _own(sets, [], embedder)
    beam_alone = _beam(beam, [], embedder) if beam else None
    for kind, passages in (("Python's documentation", sentences()), ("conversations about code", _said())):
        foreign = WithForeign(embedder, pool(passages), count)
        yield Among(f"{OWN_SETS}, {kind}", count, own_alone, _own(sets, foreign.texts, foreign))
        if beam and beam_alone:
            yield Among(f"BEAM, {kind}", count, beam_alone, _beam(beam, foreign.texts, foreign))


def _own(sets: Sets, texts: Sequence[str], embedder: Embedder) -> Measured:
    dates = Random(3)
    passages = [
        Passage(f"foreign/{number}", text, dates.random() * AGE_DAYS_MAX) for number, text in enumerate(texts)
    ]
    some = Sets([*sets.passages, *passages], sets.queries)
    with memory_of(some, embedder) as memory:
        return measured(some, memory.rankings())


def _beam(beam: Corpus, texts: Sequence[str], embedder: Embedder) -> Measured:
    questions = [replace(one, repository="") for part in beam.parts.values() for one in part]
    last = max(question.asked_at for question in questions)
    added = [
        Text(
            text,
            "foreign",
            f"foreign-{number // MESSAGES_A_SESSION}",
            str(number),
            ("user", "assistant")[number % 2],
            last - (len(texts) - number) * MINUTES_APART * MINUTE,
        )
        for number, text in enumerate(texts)
    ]
    with public_memory_of(replace(beam, texts=beam.texts + added), embedder) as memory:
        return measured_questions(memory, "BEAM, asked everywhere", questions)


class WithForeign:
    """An embedder that knows the foreign texts' vectors, and asks another one for all else."""

    def __init__(self, embedder: Embedder, pool: Sequence[str], count: int, seed: int = 1) -> None:
        random, chance = Random(seed), np.random.default_rng(seed)
        self._embedder = embedder
        self._pool = list(pool)
        self._vectors = _first_windows(embedder, self._pool)
        self._made: dict[str, list[bytes]] = {}
        while len(self._made) < count:
            chosen = random.sample(range(len(self._pool)), random.randint(1, 4))
            if len(self._made) < len(self._pool) // 2:
                chosen = [len(self._made)]
            text = " ".join(self._pool[one] for one in chosen)
            self._made[text] = [self._mixed(chosen, chance).astype("<f2").tobytes()]

    @property
    def identity(self) -> str:
        return self._embedder.identity

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    @property
    def texts(self) -> list[str]:
        """The foreign texts."""
        return list(self._made)

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        others = [text for text in texts if text not in self._made]
        found = dict(zip(others, self._embedder.embed_windows(others), strict=True))
        return [self._made[text] if text in self._made else found[text] for text in texts]

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self._embedder.embed_query(text)

    def _mixed(self, chosen: Sequence[int], chance: np.random.Generator) -> NDArray[np.float32]:
        lengths = np.array([len(self._pool[one]) for one in chosen], np.float32) ** WEIGHT
        mixed: NDArray[np.float32] = lengths @ self._vectors[list(chosen)] / lengths.sum()
        if len(chosen) > 1:
            own: NDArray[np.float32] = chance.standard_normal(mixed.shape, dtype=np.float32)
            mixed += own * np.float32(OWN / np.sqrt(len(own)))
        return mixed / np.float32(np.linalg.norm(mixed))


def pool(passages: Sequence[str]) -> list[str]:
    """As many as the model is asked for, shuffled, each once."""
    fit = [text for text in dict.fromkeys(passages) if CHARS_MIN <= len(text) <= CHARS_MAX]
    Random(1).shuffle(fit)
    return fit[:POOL_MAX]


def _said() -> list[str]:
    """Sentences of the made conversations."""
    return [
        sentence.strip()
        for session in make_corpus(Part.DEV).sessions
        for message in session.messages
        for sentence in re.split(r"(?<=[.?!])\s+|\n+", message.text)
    ]


def _first_windows(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Vectors of texts that are one window each."""
    rows = b"".join(windows[0] for windows in embedder.embed_windows(texts))
    return np.frombuffer(rows, "<f2").reshape(len(texts), -1).astype(np.float32)
