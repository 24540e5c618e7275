"""`python -m bench.quality.coding --figures`: what search finds in the conversations, printed.

`--sessions` and `--questions` print some of them, to be read.

The first run waits for the model; later ones take the vectors from the file of `bench.quality.vectors`.
"""

import argparse
import sys
from collections.abc import Sequence
from random import Random

from bench.quality.coding.conversations import Corpus, make_corpus
from bench.quality.coding.measures import NAMES, measured
from bench.quality.coding.memory import memory_of
from bench.quality.coding.questions import Question, make_questions
from bench.quality.coding.world import Part
from bench.quality.measuring import ALL, Measured
from bench.quality.vectors import KeptVectors
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.search.by import By


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quality.coding",
        description="Conversations about code, and what search finds in them.",
    )
    parser.add_argument("--figures", action="store_true", help="print the figures")
    parser.add_argument(
        "--part", choices=tuple(Part), type=Part, default=Part.DEV, help="held: nobody tunes to it"
    )
    parser.add_argument("--by", choices=tuple(By), type=By, default=By.TURN)
    parser.add_argument("--everywhere", action="store_true", help="search all projects, and name the one")
    parser.add_argument("--intervals", action="store_true", help="with 95 %% intervals")
    parser.add_argument("--sessions", type=int, default=0, metavar="N", help="print N sessions")
    parser.add_argument("--questions", type=int, default=0, metavar="N", help="print N questions")
    parser.add_argument("--seed", type=int, default=1, help="which sessions and questions are printed")
    options = parser.parse_args(arguments)
    corpus = make_corpus(options.part)
    questions = make_questions(corpus)
    _read(corpus, questions, Random(options.seed), options.sessions, options.questions)
    if options.figures:
        messages = sum(len(session.messages) for session in corpus.sessions)
        print(
            f"{options.part}: {len(corpus.sessions)} sessions, {messages} messages, {len(questions)} questions,"
            f" by {options.by}, {'everywhere' if options.everywhere else 'in the project'}"
        )
        kept = KeptVectors(BuiltinEmbedder())
        with memory_of(corpus, kept) as memory:
            scoped = not options.everywhere
            rankings = memory.rankings(options.by, scoped=scoped)
            print(_table(measured("coding", questions, rankings, scoped=scoped), intervals=options.intervals))
        kept.close()
    return 0


def _table(found: Measured, *, intervals: bool) -> str:
    wide = 22 if intervals else 10
    lines = [f"{'':26}" + "".join(f"{name.replace('false silence', 'false sil.'):>{wide}}" for name in NAMES)]
    for mode in found.by_mode:
        for kind in (*found.names, ALL):
            count = sum(kind in (one, ALL) for one in found.kinds)
            cells = "".join(
                f"{_cell(found, mode, kind, name, intervals=intervals):>{wide}}" for name in NAMES
            )
            lines.append(f"{mode + ', ' + kind:21}{count:5}{cells}")
    return "\n".join(lines)


def _cell(found: Measured, mode: str, kind: str, name: str, *, intervals: bool) -> str:
    mean = found.mean(mode, kind, name)
    if mean is None:
        return ""
    return f"{mean.value:.3f}" + (f" ({mean.low:.3f}-{mean.high:.3f})" if intervals else "")


def _read(corpus: Corpus, questions: Sequence[Question], random: Random, sessions: int, asked: int) -> None:
    for session in random.sample(corpus.sessions, sessions):
        print(f"==== {session.project.name}, {session.source}, {session.id}")
        for message in session.messages:
            print(f"[{message.role}, {message.kind}] {message.text}")
    for question in random.sample(questions, asked):
        print(f"{question.cls:9} {question.project.name:17} {question.text}")
        for session in corpus.sessions:
            for message in session.messages:
                if (session.id, message.id) in question.right and message.role == "assistant":
                    print(f"{'':28}-> {' '.join(message.text.split())[:300]}")


if __name__ == "__main__":
    sys.exit(main())
