"""The figures of one question of a public set, from the places that each hit shows. All lie between 0 and 1.

recall@k       the share of the places of the evidence that the first k hits show
all@20         whether the first twenty show all of them
MRR@10         1 / rank of the first hit that shows one, if it is among ten
newest first   whether the newer state stands before the older one, among twenty
both@10        whether the first ten show something of both statements that contradict each other
"""

from collections.abc import Sequence

from bench.quality.public.beam import CONTRADICTION, UPDATE
from bench.quality.public.corpus import Place, Question
from bench.quality.public.memory import Answer

RECALL_10, RECALL_20, ALL_20, MRR_10 = "recall@10", "recall@20", "all@20", "MRR@10"
NEWEST_FIRST, BOTH_10 = "newest first", "both@10"
SILENCE, FALSE_SILENCE = "silence", "false silence"
NAMES = (RECALL_10, RECALL_20, ALL_20, MRR_10, NEWEST_FIRST, BOTH_10, SILENCE, FALSE_SILENCE)


def figures(answer: Answer, question: Question) -> dict[str, float]:
    """Only those that the question is good for."""
    wanted, found = question.evidence, answer.found
    if not wanted:
        return {} if answer.silent is None else {SILENCE: float(answer.silent)}
    recall_20 = _share(found[:20], wanted)
    rank = _rank(found[:10], wanted)
    scores = {
        RECALL_10: _share(found[:10], wanted),
        RECALL_20: recall_20,
        ALL_20: float(recall_20 == 1),
        MRR_10: 1 / rank if rank else 0.0,
    }
    if answer.silent is not None:
        scores[FALSE_SILENCE] = float(answer.silent)
    if question.sides is not None:
        older, newer = question.sides
        if question.kind == UPDATE:
            first, second = _rank(found, newer), _rank(found, older)
            scores[NEWEST_FIRST] = float(first is not None and (second is None or first < second))
        if question.kind == CONTRADICTION:
            scores[BOTH_10] = float(
                _rank(found[:10], older) is not None and _rank(found[:10], newer) is not None
            )
    return scores


def _share(found: Sequence[frozenset[Place]], wanted: frozenset[Place]) -> float:
    return len(wanted & frozenset[Place]().union(*found)) / len(wanted)


def _rank(found: Sequence[frozenset[Place]], wanted: frozenset[Place]) -> int | None:
    return next((rank for rank, shown in enumerate(found, 1) if shown & wanted), None)
