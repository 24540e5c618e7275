"""One run of a deep search, from the chosen model to the page of hits: cache, engine, and the explanation of both."""

import asyncio
import time
from collections.abc import Sequence

from msgspec.structs import replace

from crystal_core.deep.engine import DeepResult, Half, Known, deep_search
from crystal_core.deep.fusion import DeepCandidate
from crystal_core.deep.prompts import VERSION
from crystal_core.llm.port import Llm
from crystal_core.llm.prices import price_of
from crystal_core.search.hits import Hit, Mode, SearchResult
from crystal_core.search.search import LIMIT_MAX
from crystal_node.base.clock import now_ms
from crystal_node.base.settings import Settings
from crystal_node.search.finding.deep_cache import DeepCache, key_of
from crystal_node.search.finding.deep_outcome import (
    Deepened,
    Explanation,
    Fallen,
    Fast,
    HitExplanation,
    demanded,
    fallen,
)
from crystal_node.search.finding.documents import SearchRequest

QUESTION_CHARS = 300
"""Of a turn's question before the passage that is judged."""


def deepened(llm: Llm, settings: Settings, request: SearchRequest, fast: Fast) -> Deepened | Fallen:
    """In a thread without an event loop. Raises what ``fast`` raises."""
    return asyncio.run(_deepened(llm, settings, request, fast))


async def _deepened(llm: Llm, settings: Settings, request: SearchRequest, fast: Fast) -> Deepened | Fallen:
    began = time.monotonic()
    identity = llm.identity
    cache = DeepCache(settings.home.search_database)
    mark = fast.mark()
    key = key_of(f"{identity} {identity.host}", VERSION, request.query, request.intent.strip())
    known = cache.get(key, mark, now_ms())
    candidates = _Candidates(fast, request.candidates)
    try:
        result = await deep_search(
            llm,
            candidates.search,
            request.query,
            seconds_max=settings.searching.seconds_max,
            intent=request.intent,
            candidates=request.candidates,
            known=known,
        )
    finally:
        await llm.aclose()
    if result.known != known and fast.mark() == mark:  # an answer that a forget overtook is not kept
        cache.put(key, mark, result.known, now_ms())
    explain = _explained(llm, result, known, time.monotonic() - began)
    if not result.judged and (result.strong or result.known.expansions is None) and result.ranked:
        gone = fallen(request, result.failure)
        return Fallen(gone.note, {**explain, **gone.explain})
    note = (
        f"the language model did not do all: {result.failure}" if result.failure and demanded(request) else ""
    )
    hits, more = candidates.page(request, result)
    by_hit: dict[str, HitExplanation] = {
        one.id: {"deep_rank": one.fused_rank, "judgement": one.judgement} for one in result.ranked
    }
    return Deepened(candidates.plain, hits, more, note, explain, by_hit)


class _Candidates:
    """What the fast searches found, by id. A hit is the one that the query itself found, if it did."""

    def __init__(self, fast: Fast, count: int) -> None:
        self._fast = fast
        self._count = count
        self._hits: dict[str, Hit] = {}
        self._plain: SearchResult | None = None

    @property
    def plain(self) -> SearchResult:
        assert self._plain is not None, "the query itself is searched first"
        return self._plain

    def search(self, text: str, half: Half) -> list[DeepCandidate]:
        """See the engine's ``Search``."""
        found = self._fast.search(text, self._count, half is Half.WORDS)
        hits: Sequence[Hit] = found.hits
        if half is Half.MEANING and found.mode is Mode.HYBRID:
            hits = [hit for _, hit in sorted(_by_vector(hits), key=lambda pair: pair[0])]
        if self._plain is None:
            self._plain = found
        for hit in hits:
            self._hits.setdefault(hit.id, hit)
        return [DeepCandidate(hit.id, _read(hit), hit.explanation.keyword_score) for hit in hits]

    def page(self, request: SearchRequest, result: DeepResult) -> tuple[tuple[Hit, ...], bool]:
        """The hits of the request's page, and whether there are more: the candidates, then what the fast search has behind."""
        end = request.offset + request.limit
        found = [replace(self._hits[one.id], score=one.score) for one in result.ranked]
        if len(found) <= end:
            behind = self._fast.search(request.query, min(end + 1, LIMIT_MAX), False).hits
            least, ranked = (found[-1].score if found else 1.0), {one.id for one in result.ranked}
            found += [replace(hit, score=min(hit.score, least)) for hit in behind if hit.id not in ranked]
        found = _each_once(found)
        return tuple(found[request.offset : end]), len(found) > end


def _read(hit: Hit) -> str:
    """What a model is given to judge: an answer is understood with its question."""
    if hit.turn is None or hit.turn.question_id in ("", hit.id):
        return hit.text
    return f"{hit.turn.question[:QUESTION_CHARS]}\n\n{hit.text}"


def _each_once(hits: Sequence[Hit]) -> list[Hit]:
    """Without texts that are almost the same as one before them, whichever search saw that they are."""
    kept: list[Hit] = []
    places: dict[str, int] = {}
    for hit in hits:
        place = next((places[one] for one in (hit.id, *hit.alike) if one in places), None)
        if place is None:
            place = len(kept)
            kept.append(hit)
        else:
            alike = dict.fromkeys((*kept[place].alike, hit.id, *hit.alike))
            kept[place] = replace(kept[place], alike=tuple(one for one in alike if one != kept[place].id))
        places |= dict.fromkeys((hit.id, *hit.alike), place)
    return kept


def _by_vector(hits: Sequence[Hit]) -> list[tuple[int, Hit]]:
    return [(hit.explanation.vector_rank, hit) for hit in hits if hit.explanation.vector_rank is not None]


def _explained(llm: Llm, result: DeepResult, known: Known, seconds: float) -> Explanation:
    """What was done and what it cost. Tokens are of this search; what came from the cache cost nothing."""
    identity = llm.identity
    words = result.known.expansions
    asked_before = sum(one.id in known.judgements for one in result.ranked)
    told: Explanation = {
        "provider": str(identity),
        "host": identity.host,
        "expansions": [] if words is None or result.strong else list(words.texts),
        "expansion_skipped": "the words alone are clear" if result.strong else "",
        "candidates": len(result.ranked),
        "judged": result.judged,
        "from_cache": asked_before,
        "requests": result.calls,
        "tokens_in": result.tokens_in,
        "tokens_out": result.tokens_out,
        "seconds": round(seconds, 3),
        "failure": result.failure,
    }
    price = price_of(identity.provider, identity.model, local=identity.local)
    if price is not None:
        told["dollars_estimated"] = round(price.dollars(result.tokens_in, result.tokens_out), 6)
    return told
