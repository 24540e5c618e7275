"""The figures of one question, from what the hits show. All lie between 0 and 1; a question has only those that it is good for.

answer@k      whether one of the first k hits answers it
MRR@10        1 / rank of the first that does, if it is among ten
recall@10     the share of the messages that answer it which the first ten hits show
shown@5       whether one of the first five shows the very message that answers
echo@5        share of the first five hits that only ask, and answer nothing; not of what was never said, if the search says so
leak@10       share of the hits from other projects, where only one was searched
newest first  of what changed: whether what holds stands before what held
silence       of what was never said: whether the search says that nothing fits, or finds nothing
false silence of what was said: whether it says so all the same
"""

from collections.abc import Mapping, Sequence

from bench.quality.coding.conversations import Place
from bench.quality.coding.memory import Found, Ranking, Shown
from bench.quality.coding.questions import Question
from bench.quality.coding.world import Class
from bench.quality.measuring import Measured

CUTS = (1, 5, 10)
MRR, RECALL = "MRR@10", "recall@10"
SHOWN, ECHO, LEAK = "shown@5", "echo@5", "leak@10"
NEWEST_FIRST, SILENCE, FALSE_SILENCE = "newest first", "silence", "false silence"
NAMES = (
    *(f"answer@{cut}" for cut in CUTS),
    MRR,
    RECALL,
    SHOWN,
    ECHO,
    LEAK,
    NEWEST_FIRST,
    SILENCE,
    FALSE_SILENCE,
)
FEW = 5


def figures(found: Found, question: Question, *, scoped: bool) -> dict[str, float]:
    """Of one question, in its project or everywhere."""
    hits = found.hits
    few = hits[:FEW]
    scores: dict[str, float] = {}
    if question.right:
        rank = _rank(hits, question.right)
        scores |= {f"answer@{cut}": float(rank is not None and rank <= cut) for cut in CUTS}
        scores[MRR] = 1 / rank if rank else 0.0
        places = frozenset[Place]().union(*(hit.places for hit in hits))
        scores[RECALL] = len(question.right & places) / len(question.right)
        scores[SHOWN] = float(any(hit.passage in question.right for hit in few))
        if scoped and found.weak is not None:
            scores[FALSE_SILENCE] = float(found.weak)
        stale = _rank(hits, question.stale)
        if question.cls is Class.NOW and (rank or stale):
            scores[NEWEST_FIRST] = float(rank is not None and (stale is None or rank < stale))
    elif scoped and found.weak is not None:
        scores[SILENCE] = float(found.weak or not hits)
    if question.right or not found.weak:
        scores[ECHO] = sum(hit.empty for hit in few) / len(few) if few else 0.0
    if scoped:
        scores[LEAK] = sum(hit.project != question.project.name for hit in hits) / max(len(hits), 1)
    return scores


def measured(
    name: str, questions: Sequence[Question], rankings: Mapping[str, Ranking], *, scoped: bool
) -> Measured:
    """Of all questions by each way of ranking."""
    return Measured(
        name,
        [question.cls.value for question in questions],
        {
            mode: [figures(ranking(question), question, scoped=scoped) for question in questions]
            for mode, ranking in rankings.items()
        },
    )


def _rank(hits: Sequence[Shown], wanted: frozenset[Place]) -> int | None:
    return next((rank for rank, hit in enumerate(hits, 1) if hit.places & wanted), None)
