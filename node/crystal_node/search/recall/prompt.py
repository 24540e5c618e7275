"""What is recalled at a prompt: few records of this project, best first, or nothing.

A search always has a best result; a record that does not answer costs tokens and attention at every prompt. So a record is told
only from a measured relevance on, and the others only where they are about as good as the first.
"""

from collections.abc import Sequence

from crystal_core.search.phrases import asks
from crystal_core.search.turns import PERSON
from crystal_node.search.finding.documents import Depth, ResultDocument, SearchDocument, SearchRequest

RECORDS_MAX = 3
LOOKED_AT = 10
"""Results of the search from which the records are chosen."""
QUERY_CHARS_MAX = 2_000
"""Of a prompt, from its beginning, that are searched for."""
RELEVANCE_MIN = 0.5
RELEVANCE_MIN_BY_WORDS = 0.5
NEAR_BEST = 0.9
"""Share of the best record's relevance that further ones have."""


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
    fit = [result for result in found.results if result.relevance >= least and says_something(result)]
    fit = [result for result in fit if not session or result.session != session]
    fit = [result for result in fit if result.id not in given]
    best = max((result.relevance for result in fit), default=0.0)
    return [result for result in fit if result.relevance >= NEAR_BEST * best][:RECORDS_MAX]


def says_something(result: ResultDocument) -> bool:
    """Whether it is more than a question that nobody answered."""
    if result.turn is None:
        return result.role != PERSON or not asks(result.text)
    return result.turn.answered or (result.role == PERSON and not asks(result.text))
