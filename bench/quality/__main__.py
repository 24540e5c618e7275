"""`make bench-quality`: measures all ways of ranking on all sets and writes bench/QUALITY.md.

    --record         makes what is measured the baseline
    --provider NAME  measures deep search with a language model, too, on every sixth query of our own sets: one of this machine,
                     or one elsewhere with its key; what it is given to read is the sets', and nobody's memory
    --public FOLDER  where the public sets lie (else CRYSTAL_PUBLIC_SETS); what is not there is left out
    --foreign N      measures our own sets and BEAM again among N foreign texts

Exit code 1 when something is worse than the baseline by more than the margin, or hybrid falls short of its better half.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import cast

from bench.quality.coding.conversations import make_corpus
from bench.quality.coding.measures import measured as measured_conversations
from bench.quality.coding.memory import memory_of as coding_memory_of
from bench.quality.coding.questions import make_questions
from bench.quality.coding.world import Part
from bench.quality.foreign import measured_among
from bench.quality.goals import CODING
from bench.quality.halves import shortfalls
from bench.quality.judges import bounds, deep_ranking
from bench.quality.measuring import Measured, measured, read_baseline, regressions, write_baseline
from bench.quality.public.corpus import VARIABLE, public_folder
from bench.quality.public.measurement import measured_sets
from bench.quality.ranking import Memory, memory_of
from bench.quality.report import QUALITY, Results, report
from bench.quality.sets import Sets, read_sets
from bench.quality.vectors import KeptVectors
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.embed.port import Embedder
from crystal_core.llm.port import Llm
from crystal_core.search.by import By

ASKED_OF_MODELS = 6
"""Of so many queries a model is given one."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description="Measure what search finds.")
    parser.add_argument("--record", action="store_true", help="make what is measured the baseline")
    parser.add_argument("--provider", default="", help="measure deep search with this provider's model, too")
    parser.add_argument("--public", default="", help=f"folder of the public sets, else {VARIABLE}")
    parser.add_argument(
        "--foreign", type=int, default=0, metavar="N", help="measure among N foreign texts, too"
    )
    options = parser.parse_args(arguments)
    folder = public_folder(cast(str, options.public))
    new_llm = _chosen(cast(str, options.provider)) if options.provider else None
    with BuiltinEmbedder() as embedder:
        kept = KeptVectors(embedder)
        small, _ = _measured(kept, None, small=True)
        full, asked = _measured(kept, new_llm)
        others = [*_conversations(kept), *measured_sets(folder, kept)]
        count = cast(int, options.foreign)
        foreign = list(measured_among(read_sets(), folder, count, kept)) if count else []
        results = Results(kept.identity, len(read_sets().passages), full, asked, others, foreign)
        kept.close()
    if options.record:
        write_baseline("small", small.figures())
        write_baseline("full", full.figures())
    worse = [
        *(f"small: {one}" for one in regressions(small.figures(), read_baseline("small"))),
        *(f"full: {one}" for one in regressions(full.figures(), read_baseline("full"))),
    ]
    QUALITY.write_text(report(results, when=datetime.now(UTC)), encoding="utf-8")
    print(f"Written: {QUALITY.name}")
    return verdict(worse, results.all)


def verdict(worse: Sequence[str], collections: Sequence[Measured]) -> int:
    """The exit code, and why on standard error."""
    short = [str(one) for collection in collections for one in shortfalls(collection)]
    for line in worse:
        print(f"worse than the baseline: {line}", file=sys.stderr)
    for line in short:
        print(f"falls short of its better half: {line}", file=sys.stderr)
    return 1 if worse or short else 0


def _measured(
    embedder: Embedder, new_llm: Callable[[], Llm] | None, *, small: bool = False
) -> tuple[Measured, Measured | None]:
    """All ways of ranking; and a model's, beside hybrid on the same queries."""
    sets = read_sets(small=small)
    print(f"{len(sets.passages):,} passages, {len(sets.queries)} queries …", flush=True)
    with memory_of(sets, embedder) as memory:
        rankings = memory.rankings()
        whole = measured(sets, rankings | ({} if small else bounds(memory)))
        return whole, _by_model(memory, new_llm) if new_llm else None


def _conversations(embedder: Embedder) -> Iterator[Measured]:
    """The made conversations about code: by turn, in the question's project and everywhere."""
    for part, name in ((Part.DEV, "tuned to"), (Part.HELD, "held out")):
        corpus = make_corpus(part)
        questions = make_questions(corpus)
        print(f"{CODING}, {name}: {len(corpus.sessions)} sessions, {len(questions)} questions …", flush=True)
        with coding_memory_of(corpus, embedder) as memory:
            for scoped, where in ((True, "in the project"), (False, "everywhere")):
                rankings = memory.rankings(By.TURN, scoped=scoped)
                yield measured_conversations(f"{CODING}, {name}, {where}", questions, rankings, scoped=scoped)


def _by_model(memory: Memory, new_llm: Callable[[], Llm]) -> Measured:
    some = Sets(memory.sets.passages, memory.sets.queries[::ASKED_OF_MODELS])
    failures: list[str] = []
    name = f"deep, {new_llm().identity}"
    found = measured(some, {"hybrid": memory.by_both, name: deep_ranking(memory, new_llm, failures)})
    for failure in sorted(set(failures)):
        print(f"{failures.count(failure)} times: {failure}", file=sys.stderr)
    return found


def _chosen(provider: str) -> Callable[[], Llm]:
    """As a device's settings and environment have it."""
    from crystal_node.base.settings import resolve
    from crystal_node.models.llm.discovery import find_llm

    settings = resolve(environment=os.environ)

    def new_llm() -> Llm:
        found = find_llm(settings, provider)
        if found is None:
            raise SystemExit(f"{provider} has no model to offer")
        return found

    new_llm()
    return new_llm


if __name__ == "__main__":
    sys.exit(main())
