"""A judge by words: the share of a query's words that a passage has. Plain enough to know its scores beforehand."""

import re
from collections.abc import Sequence

_WORD = re.compile(r"\w+")


class OverlapJudge:
    """See the port, ``crystal_core.search.judge``. ``asked``: the batches, in order."""

    identity = "overlap/words"

    def __init__(self, *, ready: bool = True) -> None:
        self.ready = ready
        self.asked: list[list[str]] = []

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        self.asked.append(list(passages))
        wanted = _words(query)
        return [len(wanted & _words(passage)) / max(len(wanted), 1) for passage in passages]


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
