"""Deep search, measured between its bounds: what any model's judgements can make of what the fast search finds.

    best    a judge that knows the answers: the most that reordering the candidates can give
    random  a judge that throws dice: how much of the fast ranking survives a model that is no good

Both are no models and say nothing of any; their expansions are empty of words, so nothing is found that the fast search does
not find. What a real model makes of it `--provider` measures.
"""

import asyncio
import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Protocol

from bench.quality.ranking import Memory, Ranking
from bench.quality.sets import Query
from crystal_core.deep.engine import CANDIDATES, Half, deep_search
from crystal_core.deep.fusion import JUDGEMENT_MAX, DeepCandidate
from crystal_core.deep.prompts import EXPAND
from crystal_core.llm.port import Completion, Llm, LlmIdentity, Prompt

SECONDS_MAX = 120.0
NO_WORD = "-"
BEST, RANDOM = "deep, best judge", "deep, random judge"

Judge = Callable[[str, str], int]
"""A judgement of a text, for a query."""


class NewLlm(Protocol):
    """A model for one event loop."""

    def __call__(self) -> Llm: ...


class StandIn:
    """Answers as a model is asked to, by a rule."""

    identity = LlmIdentity("stand-in", "rule", "", local=True)

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    async def complete(self, prompt: Prompt, *, tokens_max: int, seconds_max: float) -> Completion:
        data: dict[str, Any] = json.loads(prompt.data)
        answer: object = {"lexical": NO_WORD}
        if prompt.system != EXPAND:
            scores = {str(one["n"]): self._judge(data["query"], one["text"]) for one in data["texts"]}
            answer = {"scores": scores}
        return Completion(json.dumps(answer), 0, 0, "rule")

    async def aclose(self) -> None:
        """Nothing is held."""


def bounds(memory: Memory) -> dict[str, Ranking]:
    """The ways of ranking that bound deep search."""
    texts = {passage.id: passage.text for passage in memory.sets.passages}
    right = {(query.text, texts[wanted][:200]) for query in memory.sets.queries for wanted in query.relevant}

    def best(query: str, text: str) -> int:
        return JUDGEMENT_MAX if (query, text.removeprefix("…")[:200]) in right else 0

    def dice(query: str, text: str) -> int:
        return sha256(f"{query}\n{text}".encode()).digest()[0] % (JUDGEMENT_MAX + 1)

    return {
        BEST: deep_ranking(memory, lambda: StandIn(best)),
        RANDOM: deep_ranking(memory, lambda: StandIn(dice)),
    }


def deep_ranking(memory: Memory, new_llm: NewLlm, failures: list[str] | None = None) -> Ranking:
    """Deep search with a model. What it could not do is added to ``failures``."""

    def ranking(query: Query) -> list[str]:
        ids, failure = asyncio.run(_deep(memory, new_llm(), query))
        if failure and failures is not None:
            failures.append(failure)
        return ids

    return ranking


async def _deep(memory: Memory, llm: Llm, query: Query) -> tuple[list[str], str]:
    names: dict[str, str] = {}

    def search(text: str, half: Half) -> list[DeepCandidate]:
        hits = memory.found(query, text, limit=CANDIDATES, words_only=half is Half.WORDS)
        if half is Half.MEANING:
            near = [hit for hit in hits if hit.explanation.vector_rank is not None]
            hits = tuple(sorted(near, key=lambda hit: hit.explanation.vector_rank or 0))
        names.update(zip((hit.id for hit in hits), memory.named(hits), strict=True))
        return [DeepCandidate(hit.id, hit.text, hit.explanation.keyword_score) for hit in hits]

    try:
        result = await deep_search(llm, search, query.text, seconds_max=SECONDS_MAX)
    finally:
        await llm.aclose()
    return [names[one.id] for one in result.ranked], result.failure
