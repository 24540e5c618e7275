"""`python -m bench.quality.public --set beam|cosqa [--by turn|message] [--part dev|test|all]`: the figures, printed.

The folder with the sets is named by `--public` or by the environment variable CRYSTAL_PUBLIC_SETS. The first run waits for
the model; later ones take the vectors from the file of `bench.quality.vectors`.
"""

import argparse
import sys
from collections.abc import Sequence
from statistics import fmean
from typing import cast

from bench.quality.halves import shortfalls
from bench.quality.measuring import ALL, Measured
from bench.quality.public.beam import read_beam
from bench.quality.public.corpus import VARIABLE, public_folder
from bench.quality.public.cosqa import read_cosqa
from bench.quality.public.figures import NAMES
from bench.quality.public.measurement import measured_part
from bench.quality.public.memory import memory_of
from bench.quality.vectors import KeptVectors
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.search.by import By


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quality.public", description="Measure search on a public set."
    )
    parser.add_argument("--set", choices=("beam", "cosqa"), required=True)
    parser.add_argument("--by", type=By, choices=tuple(By), default=By.TURN)
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
            result = measured_part(memory, part, questions)
            print(f"{result.name}, by {options.by}: {len(questions)} questions\n{_table(result)}")
    kept.close()
    return 0


def _table(result: Measured) -> str:
    metrics = [name for name in NAMES if name in result.metrics]
    kinds = (*(result.names if len(result.names) > 1 else ()), ALL)
    lines = [f"{'':44}" + "".join(f"{metric:>14}" for metric in metrics)]
    for mode in result.by_mode:
        for kind in kinds:
            cells: list[str] = []
            for metric in metrics:
                values = result.values(mode, kind, metric)
                cells.append(f"{fmean(values):>14.3f}" if values else " " * 14)
            count = sum(kind in (one, ALL) for one in result.kinds)
            lines.append(f"{mode + ', ' + kind:40}{count:4}" + "".join(cells))
    return "\n".join((*lines, *(f"falls short: {one}" for one in shortfalls(result))))


if __name__ == "__main__":
    sys.exit(main())
