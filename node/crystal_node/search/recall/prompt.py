"""What is recalled at a prompt: few records of this project, best first, or nothing.

A search always has a best result; a record that does not answer costs tokens and attention at every prompt. So a record is told
only from a measured relevance on, and a second one only where it is not much worse than the first.
"""

from collections.abc import Sequence

from crystal_core.search.phrases import asks
from crystal_core.search.turns import PERSON
from crystal_node.search.finding.documents import Depth, ResultDocument, SearchDocument, SearchRequest

RECORDS_MAX = 2
"""A third one would be the answer in one case of five."""
LOOKED_AT = 10
"""Results of the search from which the records are chosen."""
QUERY_CHARS_MAX = 2_000
"""Of a prompt, from its beginning, that are searched for."""
RELEVANCE_MIN = 0.22
RELEVANCE_MIN_BY_WORDS = 0.12
"""Measured on the conversations to tune with (`python -m bench.quality.recall --thresholds`), as the least at which half of the
records told answer and 95 % of the prompts without an answer get nothing: 52 % of the prompts that have an answer get it, 54 %
of the records told are one, and 96 % of the prompts without one get nothing, at 136 tokens a prompt. By words alone 32 %, 59 %
and 96 %, at 80 tokens. On conversations that nobody tuned to: 44 %, 47 % and 79 %, at 117 tokens; by words 25 %, 52 %, 88 %."""
NEAR_BEST = 0.4
"""Share of the best record's worth that a further one has. The worth is the relevance, less a tenth for each rank of the
search's own order up to the fourth, which knows more than a single result does."""


def request_for(prompt: str, projects: Sequence[tuple[str, str]], *, words_only: bool) -> SearchRequest:
    """The search for a prompt in these projects; in none, for memories that hold everywhere."""
    return SearchRequest(
        query=prompt[:QUERY_CHARS_MAX],
        limit=LOOKED_AT,
        depth=Depth.FAST,
        words_only=words_only,
        projects=list(projects),
    )


def chosen(found: SearchDocument, given: set[str], session: str) -> list[ResultDocument]:
    """The results to be told, best first. ``given``: ids that the session has; ``session``: its own id, or ""."""
    least = RELEVANCE_MIN if found.mode == "hybrid" else RELEVANCE_MIN_BY_WORDS
    fit = [
        (result.relevance * (1 - 0.1 * min(rank, 3)), result)
        for rank, result in enumerate(found.results)
        if result.relevance >= least and says_something(result)
    ]
    fit = [one for one in fit if not session or one[1].session != session]
    fit = [one for one in fit if one[1].id not in given]
    fit.sort(key=lambda one: -one[0])
    return [result for worth, result in fit if worth >= NEAR_BEST * fit[0][0]][:RECORDS_MAX]


def says_something(result: ResultDocument) -> bool:
    """Whether it is more than a question that nobody answered."""
    if result.turn is None:
        return result.role != PERSON or not asks(result.text)
    return result.turn.answered or (result.role == PERSON and not asks(result.text))
