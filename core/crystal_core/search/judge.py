"""Port: a judge reads a query together with each of the first hits, and says how likely each answers it; and how that counts.

    order of the ranking ──► the first `JUDGED_MAX` ──► judge ──► place and score, mixed ──► the same hits, in another order

Rules for every implementation:

- A score is between 0 and 1, a finite number; texts that answer alike have alike scores, whatever stands beside them.
- The same texts give practically the same scores while `identity` is the same.
- Neither the query nor a passage is written, logged or sent anywhere.
- `scores` loads a model that is not loaded; `ready` says whether it is. A search waits for none: it asks only who is ready.
- Calls may come from several threads; an implementation serialises them if necessary.

A judge decides the order of what was found, never whether it was. It judges all of the first hits or counts for nothing: else a
hit's place would depend on how busy the machine was with the hits behind it. Whoever judged nothing leaves the order as it was.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from crystal_crypto.errors import CrystalError

JUDGED_MAX = 20
"""Hits of a search that are judged, from the first."""
PASSAGE_CHARS_MAX = 400
"""Of a passage that is judged. Six layers in PyTorch take 70 ms for it on a busy core, and four times that for 1,600."""
QUERY_CHARS_MAX = 600
TOGETHER = 4
"""Passages judged between two looks at the clock."""
SECONDS_MAX = 1.0
"""Usual budget of one search."""

SCORE_WEIGHT = 0.6
"""Share of the judge's score in the new order; the rest is the place that the ranking gave."""
PLACE_HALF = 4.0
"""The place at which the ranking's share has fallen to half of the first place's."""

T = TypeVar("T")


class JudgeError(CrystalError):
    """Passages could not be judged. The order stays that of the ranking; the call may be repeated."""

    exit_code = 12
    hint = "Search goes on without a judge; `crystal doctor` says why it has none."


class JudgeUnavailable(JudgeError):
    """The package or the model is not on this machine."""


class Judge(Protocol):
    """Scores passages against a query. See the rules at the top of this module."""

    @property
    def identity(self) -> str:
        """Kind and model as one printable ASCII word, for explanations."""
        ...

    @property
    def ready(self) -> bool:
        """Whether `scores` begins at once, with nothing to load."""
        ...

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return a score for each passage, in order; [] for none. Raises `JudgeError`."""
        ...


class Judgement(Struct, frozen=True):
    """What a judge said of the first hits. `scores`: in the order before it; () where it counts for nothing, and `note` why."""

    scores: tuple[float, ...] = ()
    note: str = ""


def judgement(
    judge: Judge,
    query: str,
    passages: Sequence[str],
    *,
    seconds: float = SECONDS_MAX,
    clock: Callable[[], float] = time.monotonic,
) -> Judgement:
    """Ask a ready judge about the first `JUDGED_MAX` passages, within `seconds` and one batch more. Raises no `JudgeError`."""
    if not judge.ready:
        return Judgement(note="the judge is not loaded yet")
    wanted = [passage[:PASSAGE_CHARS_MAX] for passage in passages[:JUDGED_MAX]]
    if len(wanted) < 2:
        return Judgement()
    end = clock() + seconds
    found: list[float] = []
    for first in range(0, len(wanted), TOGETHER):
        if clock() >= end:
            return Judgement(note="the judge took too long")
        try:
            found += judge.scores(query[:QUERY_CHARS_MAX], wanted[first : first + TOGETHER])
        except JudgeError as error:
            return Judgement(note=f"the judge failed: {error}")
    if len(found) != len(wanted) or not all(math.isfinite(score) and 0 <= score <= 1 for score in found):
        return Judgement(note="the judge gave scores that are none")
    return Judgement(tuple(found))


def judged(order: Sequence[T], scores: Sequence[float]) -> list[T]:
    """Return `order` with its first `len(scores)` hits placed by place and score; the others follow as they were.

    Equal scores change nothing. Raises ValueError for more scores than hits.
    """
    if len(scores) > len(order):
        raise ValueError(f"{len(scores)} scores for {len(order)} hits")
    values = [_value(rank, score) for rank, score in enumerate(scores)]
    places = sorted(range(len(scores)), key=lambda rank: -values[rank])
    return [*(order[rank] for rank in places), *order[len(scores) :]]


def _value(rank: int, score: float) -> float:
    return SCORE_WEIGHT * score + (1 - SCORE_WEIGHT) * PLACE_HALF / (PLACE_HALF + rank)
