"""The run of a deep search.

    search ──► strong? ──yes─────────────────────────────────► candidates ──► judged, ten at a time ──► blended
                 └─no──► expand (at most 40 % of the time) ──► search each, fuse ─┘
                              └─ failed, or not in time: the plain search's candidates

If the model fails, lies or is too slow, the answers so far count and the rest stays as in the fast search. The first failure
ends all requests. Answers that are already ``Known`` are not requested again: a judgement belongs to a query and a text, and
stays valid when the memory changes.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from crystal_core.deep.answers import Expansions, read_expansions, read_judgements
from crystal_core.deep.fusion import DeepCandidate, Ranked, blended, fused, is_strong
from crystal_core.deep.prompts import expand_prompt, judge_prompt
from crystal_core.llm.answers import Unreadable
from crystal_core.llm.errors import LlmError
from crystal_core.llm.port import Completion, Llm, Prompt

CANDIDATES = 40
BATCH = 10
"""Candidates judged in one request."""
TOGETHER = 4
"""Concurrent requests to a remote model. A local model gets one at a time: it shares this machine's memory and processor."""
EXPANSION_SHARE = 0.4
"""Share of the time limit."""
EXPANSION_TOKENS_MAX = 500
JUDGEMENT_TOKENS_EACH = 12
JUDGEMENT_TOKENS_MORE = 100
_CLOSE_SECONDS = 0.1
"""A provider's error this close to the time limit counts as a timeout."""


class Half(Enum):
    """Half of the fast search."""

    BOTH = "both"
    WORDS = "words"
    MEANING = "meaning"


Search = Callable[[str, Half], Sequence[DeepCandidate]]
"""Fast search for a query's candidates, best first. Must not raise because of the query's words."""


@dataclass(frozen=True, slots=True)
class Known:
    """A model's earlier answers about this query. ``judgements``: by text."""

    expansions: Expansions | None = None
    judgements: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class DeepResult:
    """Result of a deep search.

    ``ranked``: the candidates, best first. ``strong``: keywords alone were clear, so expansion was skipped. ``failure``: why
    the model did less than requested, "" if it did all. ``known``: all answers so far. ``calls``: requests made.
    """

    ranked: tuple[Ranked, ...]
    strong: bool
    failure: str
    known: Known
    calls: int
    tokens_in: int
    tokens_out: int

    @property
    def judged(self) -> int:
        return sum(one.judgement is not None for one in self.ranked)


async def deep_search(
    llm: Llm,
    search: Search,
    query: str,
    *,
    seconds_max: float,
    intent: str = "",
    candidates: int = CANDIDATES,
    known: Known | None = None,
) -> DeepResult:
    """Run a deep search. Raises what ``search`` raises; the model's errors end up in ``failure``."""
    run = _Run(llm, query, intent.strip(), asyncio.get_running_loop().time() + seconds_max)
    known = known or Known()
    own = search(query, Half.BOTH)
    strong = not run.intent and is_strong(own)
    expansions = known.expansions
    if own and not strong and expansions is None:
        expansions = await run.expand(seconds_max * EXPANSION_SHARE)
    lists = [] if strong or expansions is None else _searched(search, expansions)
    chosen = fused(own, lists)[:candidates]
    judgements = dict(known.judgements)
    judgements |= await run.judge([one for one in chosen if one.id not in judgements])
    return DeepResult(
        tuple(blended(chosen, judgements)),
        strong,
        run.failure,
        Known(expansions, judgements),
        run.calls,
        run.tokens_in,
        run.tokens_out,
    )


def _searched(search: Search, expansions: Expansions) -> list[Sequence[DeepCandidate]]:
    """Search the lexical expansion by keyword and the other two, which are sentences, by meaning."""
    halves = (
        (expansions.lexical, Half.WORDS),
        (expansions.rephrased, Half.MEANING),
        (expansions.hypothetical, Half.MEANING),
    )
    return [search(text, half) for text, half in halves if text]


class _Run:
    """Requests of one run: deadline, number of calls, and the first failure, which ends them."""

    def __init__(self, llm: Llm, query: str, intent: str, deadline: float) -> None:
        self._llm = llm
        self._query = query
        self._deadline = deadline
        self._broken = False
        self.intent = intent
        self.failure = ""
        self.calls = self.tokens_in = self.tokens_out = 0

    async def expand(self, seconds: float) -> Expansions | None:
        prompt = expand_prompt(self._query, self.intent)
        deadline = min(self._deadline, asyncio.get_running_loop().time() + seconds)
        try:
            return read_expansions(await self._ask(prompt, EXPANSION_TOKENS_MAX, deadline))
        except _TooSlow:  # the time left may still do for judging the plain candidates
            self.failure = "the query was not said in other words in time"
        except (LlmError, Unreadable) as error:
            self.failure, self._broken = str(error), True
        return None

    async def judge(self, candidates: Sequence[DeepCandidate]) -> dict[str, int]:
        """Return judgements by text. Failed batches are left out, and no batch begins after a failure."""
        if self._broken:
            return {}
        late = self.failure
        gate = asyncio.Semaphore(1 if self._llm.identity.local else TOGETHER)
        failures: list[str] = []

        async def judged(batch: Sequence[DeepCandidate]) -> dict[str, int]:
            async with gate:
                if failures:
                    return {}
                prompt = judge_prompt(self._query, self.intent, batch)
                tokens = JUDGEMENT_TOKENS_EACH * len(batch) + JUDGEMENT_TOKENS_MORE
                try:
                    scores = read_judgements(await self._ask(prompt, tokens, self._deadline), len(batch))
                except _TooSlow:
                    failures.append("not all texts were judged in time")
                except (LlmError, Unreadable) as error:
                    failures.append(str(error))
                else:
                    return {one.id: score for one, score in zip(batch, scores, strict=True)}
                return {}

        batches = [candidates[start : start + BATCH] for start in range(0, len(candidates), BATCH)]
        found = await asyncio.gather(*(judged(batch) for batch in batches))
        self.failure = "; ".join([*([late] if late else []), *failures[:1]])
        return {text: score for batch in found for text, score in batch.items()}

    async def _ask(self, prompt: Prompt, tokens_max: int, deadline: float) -> str:
        """Raises LlmError, Unreadable, _TooSlow."""
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            raise _TooSlow
        self.calls += 1
        try:
            async with asyncio.timeout_at(deadline):
                answer: Completion = await self._llm.complete(prompt, tokens_max=tokens_max, seconds_max=left)
        except TimeoutError as error:
            raise _TooSlow from error
        except LlmError as error:
            if asyncio.get_running_loop().time() >= deadline - _CLOSE_SECONDS:
                raise _TooSlow from error
            raise
        self.tokens_in += answer.tokens_in
        self.tokens_out += answer.tokens_out
        if answer.cut:
            raise Unreadable("the answer was cut off")
        return answer.text


class _TooSlow(Exception):
    """The time limit was reached."""
