"""`python -m bench.quality.public --set beam|cosqa [--by turn|message] [--part dev|test|all]`: the figures, printed.

The folder with the sets is named by `--public` or by the environment variable CRYSTAL_PUBLIC_SETS. The first run waits for
the model; later ones take the vectors from the file of `bench.quality.vectors`.
"""

import argparse
import sys
from collections.abc import Sequence
from statistics import fmean
from typing import cast

from bench.quality.public.beam import read_beam
from bench.quality.public.corpus import VARIABLE, Question, public_folder
from bench.quality.public.cosqa import read_cosqa
from bench.quality.public.figures import NAMES, figures
from bench.quality.public.memory import MESSAGE, TURN, PublicMemory, memory_of
from bench.quality.vectors import KeptVectors
from crystal_core.embed.builtin import BuiltinEmbedder

WEAK = "weak"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quality.public", description="Measure search on a public set."
    )
    parser.add_argument("--set", choices=("beam", "cosqa"), required=True)
    parser.add_argument("--by", choices=(TURN, MESSAGE), default=TURN)
    parser.add_argument("--part", choices=("dev", "test", "all"), default="dev", help="test: held out")
    parser.add_argument("--messages", action="store_true", help="CoSQA's functions as messages")
    parser.add_argument("--public", default="", help=f"folder of the sets, else {VARIABLE}")
    options = parser.parse_args(arguments)
    folder = public_folder(cast(str, options.public))
    corpus = None
    if folder is not None:
        corpus = (
            read_beam(folder) if options.set == "beam" else read_cosqa(folder, as_messages=options.messages)
        )
    if corpus is None:
        print(f"There is no such set: name its folder by --public or {VARIABLE}.", file=sys.stderr)
        return 2
    parts = corpus.parts if options.part == "all" else {options.part: corpus.parts[options.part]}
    kept = KeptVectors(BuiltinEmbedder())
    with memory_of(corpus, kept, options.by) as memory:
        for part, questions in parts.items():
            print(f"{corpus.name}, {part}, by {options.by}: {len(questions)} questions")
            print(_table(memory, questions))
    kept.close()
    return 0


def _table(memory: PublicMemory, questions: Sequence[Question]) -> str:
    kinds = list(dict.fromkeys(question.kind for question in questions))
    lines = [f"{'':44}" + "".join(f"{name:>14}" for name in (*NAMES, WEAK))]
    for mode, ranking in memory.rankings().items():
        scores: list[dict[str, float]] = []
        for question in questions:
            scores.append(figures(ranking(question), question))
            if mode == "hybrid":
                scores[-1][WEAK] = float(memory.search(question).weak)
        for kind in (*(kinds if len(kinds) > 1 else ()), "all"):
            rows = [
                score
                for question, score in zip(questions, scores, strict=True)
                if kind == question.kind or (kind == "all" and question.evidence)
            ]
            lines.append(
                f"{mode + ', ' + kind:40}{len(rows):4}"
                + "".join(_cell(rows, name) for name in (*NAMES, WEAK))
            )
    return "\n".join(lines)


def _cell(rows: Sequence[dict[str, float]], name: str) -> str:
    values = [row[name] for row in rows if name in row]
    return f"{fmean(values):>14.3f}" if values else " " * 14


if __name__ == "__main__":
    sys.exit(main())
