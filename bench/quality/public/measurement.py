"""The public sets that are present, measured."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.quality.measuring import Measured
from bench.quality.public.beam import read_beam
from bench.quality.public.corpus import Question
from bench.quality.public.cosqa import read_cosqa
from bench.quality.public.figures import figures
from bench.quality.public.memory import PublicMemory, memory_of
from crystal_core.embed.port import Embedder

PARTS = {"dev": "tuned to", "test": "held out"}


def measured_part(memory: PublicMemory, part: str, questions: Sequence[Question]) -> Measured:
    return measured_questions(memory, f"{memory.corpus.name}, {PARTS[part]}", questions)


def measured_questions(memory: PublicMemory, name: str, questions: Sequence[Question]) -> Measured:
    return Measured(
        name,
        [question.kind for question in questions],
        {
            mode: [figures(ranking(question), question) for question in questions]
            for mode, ranking in memory.rankings().items()
        },
    )


def measured_sets(folder: Path | None, embedder: Embedder) -> Iterator[Measured]:
    """Each part of each set in the folder, by turn. Nothing without a folder."""
    if folder is None:
        return
    for corpus in (read_beam(folder), read_cosqa(folder)):
        if corpus is not None:
            with memory_of(corpus, embedder) as memory:
                for part, questions in corpus.parts.items():
                    yield measured_part(memory, part, questions)
