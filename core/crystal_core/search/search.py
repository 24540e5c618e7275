"""Hybrid search by keyword and meaning, offline, on one database.

    keywords   BM25 over FTS5 (`keywords.py`)
    meaning    the nearest vectors, then their rows in a second query (`vector_index.py`)
    ranking    fusion by rank and strength, and recency (`ranking.py`)
    alike      the best of several near duplicates stands for all (`near_duplicates.py`)
    snippets   the passage that answers, with the query's words marked (`snippets.py`)

Filters (`filters.py`) apply inside both halves, before anything is cut off. Without vectors of this device's model, the keyword
half answers alone and the result says why. Provisional rows are found by keyword and marked. Forgotten texts, also by a pending
operation, are not found.

Pages: the best `LAYERS[0]` of both halves are fused and ordered. If a page reaches beyond them, the best `LAYERS[1]` are read
and the new ones among them follow in their own order, and so on. The position of a hit therefore does not depend on the page
requested, and each hit is on one page.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from crystal_core.database import Database
from crystal_core.embed.port import Embedder, EmbeddingError
from crystal_core.errors import EmptyQuery
from crystal_core.search import bm25
from crystal_core.search.by import By
from crystal_core.search.coverage import percent_embedded
from crystal_core.search.dates import DateRange, date_ranges
from crystal_core.search.filters import CONVERSATION, EVERYWHERE, Filters, Scope
from crystal_core.search.hits import Hit, Mode, Ranked, SearchResult, freshness
from crystal_core.search.judge import JUDGED_MAX, Judge, judged, judgement
from crystal_core.search.keywords import Match, best_matches
from crystal_core.search.near_duplicates import Alike
from crystal_core.search.phrases import asks_for_now, asks_what_holds, tells_change, tells_news
from crystal_core.search.query_vector import QueryVectors
from crystal_core.search.ranking import (
    DAY_MILLISECONDS,
    DEFAULT,
    LOOKED_AT_FOR_SILENCE,
    WEAK_BELOW,
    Found,
    Nearness,
    Ranking,
    explained,
    nearness,
    relevance,
)
from crystal_core.search.snippets import SNIPPET_CHARS, Snippets
from crystal_core.search.turns import PERSON, THOUGHTS, UNSAID, Turn
from crystal_core.search.units import TOLD_DAYS, Candidate, Text, Unit, Units, read_texts
from crystal_core.state import mirror_log
from crystal_core.state.vectors import float16_vectors
from crystal_mirror.types import ACTION_ROLES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from crystal_core.search.vector_index import Neighbour, VectorIndex

    _Halves = tuple[Sequence[Match], Sequence[Neighbour]]

LIMIT_MAX = 1000
"""Most hits of one search."""
OFFSET_MAX = 10_000
"""Highest offset of a page."""

WHOLE_PERCENT = 98
"""Below this percentage of chunks with vectors, a result notes that search by meaning is incomplete."""
NOT_EMBEDDED = "the query could not be embedded: {}"
BEING_MADE = "the vectors are being made: {} % of the texts have theirs, the others are found by their words"

LOOKED_AT = 5
"""Best keyword matches examined for how many of the query's words they have."""


class _Later(Struct, frozen=True):
    """When a later unit stands before the best one, of which it tells a newer state.

    It is among the first `depth`, has at least that `share` of its cosine, and the two have at least that `cosine` with each
    other, to which `change` is added if one of its texts tells of a change, and once more if its person says that something is
    new. If it `must_tell`, its person does say so, and it has at least the share `covered` of the query's words that the best
    one has.
    """

    depth: int
    share: float
    cosine: float
    change: float = 0.0
    must_tell: bool = False
    covered: float = 0.0


_ASKED_FOR_NOW = _Later(depth=10, share=0.3, cosine=0.4, change=0.15)
_ASKED_FOR_A_VALUE = _Later(depth=5, share=0.7, cosine=0.3, must_tell=True, covered=0.6)

SAID_AGAIN_COVERED = 0.3
"""Share of the query's words that a text must have to count as of when it was said last."""
COVERED_QUESTION_CHARS = 500
"""Of a question, in which the query's words count: what follows may be a log or a file."""
JUDGED_QUESTION_CHARS = 120
"""Of a question before the passage that a judge reads."""

LAYERS = (40, 160, 640, 2560, 11_000)
"""Candidates of each half, layer by layer. The first is enough for the first page or two."""


class _Question(Struct, frozen=True):
    """A query, prepared for both halves."""

    words: str
    vector: "NDArray[np.float32] | None"
    near: Nearness | None
    now_ms: int
    by: By
    unwanted: tuple[str, ...]
    dates: tuple[DateRange, ...]
    ranking: Ranking
    matches: Sequence[Match] | None
    """Of the first layer, where they were looked up while the vector was made."""


class Searcher:
    """Searches one database; keeps the vector index in memory between searches."""

    def __init__(
        self,
        database: Database,
        embedder: Embedder | None = None,
        *,
        ranking: Ranking = DEFAULT,
        judge: Judge | None = None,
    ) -> None:
        self._database = database
        self._embedder = embedder
        self._vectors = None if embedder is None else QueryVectors(embedder)
        self._judge = judge
        self._ranking = ranking
        self._index: VectorIndex | None = None
        self._percent_embedded: tuple[tuple[int, int], int] | None = None

    def search(
        self,
        query: str,
        *,
        now_ms: int,
        limit: int = 10,
        offset: int = 0,
        scope: Scope = EVERYWHERE,
        words_only: bool = False,
        by: By = By.TURN,
        thinking: bool = False,
        zone: tzinfo = UTC,
        judge_seconds: float = 0.0,
    ) -> SearchResult:
        """Return the `limit` best turns or messages that the scope admits, after skipping `offset`: `ranked`, then `judged`.

        With `judge_seconds`, a judge that is ready may take so long to order the first hits. Raises what `ranked` raises.
        """
        ranked = self.ranked(
            query,
            now_ms=now_ms,
            limit=limit,
            offset=offset,
            scope=scope,
            words_only=words_only,
            by=by,
            thinking=thinking,
            zone=zone,
            to_be_judged=judge_seconds > 0,
        )
        return self.judged(ranked, judge_seconds)

    def judged(self, ranked: Ranked, seconds: float) -> SearchResult:
        """Return the page of what was found, ordered by a judge if it is to be judged. Reads nothing of the database."""
        hits, judge_note, weak = list(ranked.hits), "", ranked.weak
        if self._judge is not None and ranked.passages:
            said = judgement(self._judge, ranked.query, ranked.passages, seconds=seconds)
            for rank, score in enumerate(said.scores):
                parts = replace(hits[rank].explanation, judge_rank=rank, judge_score=score)
                hits[rank] = replace(hits[rank], explanation=parts)
            hits, judge_note = judged(hits, said.scores), said.note
            weak = all(hit.weak for hit in hits[:LOOKED_AT_FOR_SILENCE])
        shown = tuple(hits[ranked.page.start - ranked.first : ranked.page.stop - ranked.first])
        more = ranked.count > ranked.page.stop
        return SearchResult(shown, ranked.mode, ranked.note, more, weak, judge_note)

    def ranked(
        self,
        query: str,
        *,
        now_ms: int,
        limit: int = 10,
        offset: int = 0,
        scope: Scope = EVERYWHERE,
        words_only: bool = False,
        by: By = By.TURN,
        thinking: bool = False,
        zone: tzinfo = UTC,
        to_be_judged: bool = False,
    ) -> Ranked:
        """Return what the ranking finds, for `judged`.

        `words_only` uses no vectors. Thinking is found if asked for, also by its role; tool calls are by kind or role. Dates in
        the query are those of `zone`.

        Raises EmptyQuery for a query without a visible character, ValueError for a limit or an offset out of range, and what
        reading the database raises. Never raises because of the query's content.
        """
        if not query.strip():
            raise EmptyQuery("the query is empty")
        if not 1 <= limit <= LIMIT_MAX:
            raise ValueError(f"a search gives 1 to {LIMIT_MAX} hits")
        if not 0 <= offset <= OFFSET_MAX:
            raise ValueError(f"a search leaves out 0 to {OFFSET_MAX} hits")
        if self._database.in_transaction():
            raise RuntimeError("search does not look into an open transaction")
        vector_of, near, note = (None, None, "") if words_only else self._embedding(query)
        thoughts = () if thinking or scope.role in THOUGHTS else THOUGHTS
        unwanted = (*thoughts, *(() if scope.finds_actions else ACTION_ROLES))
        # What one role said is no whole turn, and a tool call is none.
        by = By.MESSAGE if scope.role is not None or scope.finds_actions else By(by)
        dates = () if asks_for_now(query) else date_ranges(query, now_ms, zone)
        vector = None
        if dates and vector_of is not None:
            # Dates have filters of their own, which come first: nothing to look up meanwhile, so no snapshot to hold either.
            vector, note = _waited(vector_of, note)
        end = offset + limit
        bm25.prepare(self._database)
        with self._database.snapshot():
            snippets = Snippets(self._database, query)
            filters = Filters(self._database, scope)
            matches = None if dates else best_matches(self._database, query, LAYERS[0], filters.restriction())
            if not dates and vector_of is not None:
                vector, note = _waited(vector_of, note)
            ranking = self._ranking if vector is not None else self._ranking.alone()
            question = _Question(
                query,
                vector,
                near if vector is not None else None,
                now_ms,
                by,
                unwanted,
                dates,
                ranking,
                matches,
            )
            units = Units(
                self._database, ranking, by=by, unwanted=unwanted, now_ms=now_ms, dates=question.dates
            )
            is_judged = to_be_judged and self._judge is not None and offset < JUDGED_MAX
            # Whatever is put first is the same on every page.
            wanted = max(end + 1, JUDGED_MAX if is_judged else _ASKED_FOR_NOW.depth)
            found = self._ordered(question, scope, filters, units, snippets, wanted)
            begin = 0 if is_judged else offset
            last = max(end, JUDGED_MAX) if is_judged else end
            hits = tuple(self._hit(one, question, units, snippets) for one in found[begin:last])
            first = hits[:LOOKED_AT_FOR_SILENCE]
            if begin:
                first = tuple(
                    self._hit(one, question, units, snippets) for one in found[:LOOKED_AT_FOR_SILENCE]
                )
        mode = Mode.KEYWORD if vector is None else Mode.HYBRID
        weak = all(hit.weak for hit in first)
        passages = tuple(map(_passage, hits[:JUDGED_MAX])) if is_judged else ()
        return Ranked(query, hits, begin, weak, mode, note, len(found), slice(offset, end), passages)

    def _ordered(
        self,
        question: _Question,
        scope: Scope,
        filters: Filters,
        units: Units,
        snippets: Snippets,
        wanted: int,
    ) -> list[Unit]:
        """Return the best units in order, at least `wanted` if there are so many."""
        dated = self._of_dates(question, scope)
        # Behind the dates' filters, which may take the place of what it refers to.
        restriction = filters.restriction()
        alike = Alike()
        seen: set[int] = set()
        ordered: list[Unit] = []
        said: set[int] = set()
        telling = 0
        for count in LAYERS:
            matches = question.matches if count == LAYERS[0] else None
            if matches is None:
                matches = best_matches(self._database, question.words, count, restriction)
            neighbours = self._nearest(question.vector, count, filters)
            candidates = self._candidates(
                question, (matches, neighbours), dated, filters, snippets, units, seen
            )
            for fresh in units.units(candidates):
                units.prepare(fresh[: wanted - telling])
                for unit in fresh:
                    if telling >= wanted:
                        break
                    shown, found = units.show(unit, snippets), unit.members[0]
                    if shown.chunk in said and found.chunk not in said:
                        shown = unit.shown = found  # another question with the same answer, as "Done."
                    if shown.chunk in said:
                        continue  # said in several places: the best of them stands for all
                    said.update((shown.chunk, found.chunk))
                    text = (
                        shown.text.text
                        if found.chunk == shown.chunk
                        else f"{found.text.text}\n{shown.text.text}"
                    )
                    like = alike.first_like(len(ordered), unit.kind, text)
                    if like is None:
                        ordered.append(unit)
                        telling += not unit.idle
                    else:
                        ordered[like].alike.append(shown.text.id)
                if telling >= wanted:
                    break
            if telling >= wanted or max(len(matches), len(neighbours)) < count:
                break
        ordered.sort(key=lambda unit: unit.idle)  # of all layers, a question without its answer stands last
        if asks_for_now(question.words) or asks_what_holds(question.words):
            self._note_said_again(ordered[:wanted], filters, units, snippets)
        if question.vector is None:
            return ordered
        if asks_for_now(question.words):
            self._put_newest_first(ordered, _ASKED_FOR_NOW, units, snippets)
        elif not question.dates and asks_what_holds(question.words):
            self._put_newest_first(ordered, _ASKED_FOR_A_VALUE, units, snippets)
        return ordered

    def _note_said_again(
        self, ordered: Sequence[Unit], filters: Filters, units: Units, snippets: Snippets
    ) -> None:
        """Note when the shown words were said last: a value that came back holds since then, though an older turn fits better.

        Only words that have some of the query's: "I run the tests." is said every day.
        """
        said = [
            (unit, shown.chunk)
            for unit, shown in ((unit, units.show(unit, snippets)) for unit in ordered)
            if unit.kind == CONVERSATION and snippets.coverage(shown.text.text) >= SAID_AGAIN_COVERED
        ]
        places = filters.places([chunk for _, chunk in said]) if said else {}
        for unit, chunk in said:
            again = [place.created_at for place in places.get(chunk, ()) if place.role not in UNSAID]
            unit.again_at = max(again, default=0)

    def _put_newest_first(self, ordered: list[Unit], rule: _Later, units: Units, snippets: Snippets) -> None:
        """Before the best unit, put a later one that tells a newer state: of values that are asked for, the latest holds."""
        best = ordered[0] if ordered else None
        if best is None or best.idle or self._index is None:
            return
        later = [
            unit
            for unit in ordered[1 : rule.depth]
            if unit.holds_at > best.holds_at
            and not unit.idle
            and unit.similarity >= rule.share * best.similarity
        ]
        if rule.must_tell:
            least = rule.covered * snippets.coverage(*best.texts)
            later = [
                unit
                for unit in later
                if tells_news(units.asked(unit)) and snippets.coverage(*unit.texts) >= least
            ]
        if not later:
            return
        chunks = [unit.members[0].chunk for unit in (best, *later)]
        cosines = self._index.likeness(self._database, chunks[0], chunks[1:])
        likeness = [
            cosines.get(unit.members[0].chunk, 0.0)
            + rule.change * (any(map(tells_change, unit.texts)) + tells_news(units.asked(unit)))
            for unit in later
        ]
        near = [number for number, cosine in enumerate(likeness) if cosine >= rule.cosine]
        if near:
            # They are in order: of those that tell it themselves the first is the best.
            first = later[near[0] if rule.must_tell else max(near, key=likeness.__getitem__)]
            ordered.remove(first)
            ordered.insert(0, first)

    def _of_dates(self, question: _Question, scope: Scope) -> "_Halves":
        """Return what both halves find of the dates that the query speaks of."""
        matches: list[Match] = []
        neighbours: list[Neighbour] = []
        for date in question.dates:
            if not date.start_ms:
                continue  # "before March": all that is older, which the halves find by themselves
            since = max(date.start_ms, scope.since_ms or date.start_ms)
            until = date.end_ms + TOLD_DAYS * DAY_MILLISECONDS
            until = min(until, until if scope.until_ms is None else scope.until_ms)
            if since > until:
                continue
            filters = Filters(self._database, replace(scope, since_ms=since, until_ms=until))
            matches += best_matches(self._database, question.words, LAYERS[0], filters.restriction())
            neighbours += self._nearest(question.vector, LAYERS[0], filters)
        return matches, neighbours

    def _candidates(
        self,
        question: _Question,
        halves: "_Halves",
        dated: "_Halves",
        filters: Filters,
        snippets: Snippets,
        units: Units,
        seen: set[int],
    ) -> list[Candidate]:
        """Return what both halves found and was not seen before, scored."""
        by_words: dict[int, Match] = {}
        for match in (*halves[0], *dated[0]):
            if match.chunk not in by_words or by_words[match.chunk].bm25 < match.bm25:
                by_words[match.chunk] = match
        by_meaning = {found.chunk: found for found in (*dated[1], *halves[1])}
        matches = sorted(by_words.values(), key=lambda match: (-match.bm25, -match.chunk))
        neighbours = sorted(by_meaning.values(), key=lambda found: (-found.similarity, found.chunk))
        unknown = [chunk for chunk in by_words if chunk not in by_meaning]
        similarities: dict[int, float] = {}
        if question.vector is not None and self._index is not None:
            similarities = self._index.similarities(self._database, question.vector, unknown)
        chunks = [chunk for chunk in dict.fromkeys([*by_words, *by_meaning]) if chunk not in seen]
        places = filters.places(chunks)
        texts = read_texts(self._database, places, filters.memories)
        short = {
            chunk: question.ranking.brevity(texts[chunk].text)
            for chunk, found in places.items()
            if chunk in texts and found[0].kind == CONVERSATION
        }
        coverage = self._coverage(matches, texts, snippets)
        found = Found(matches, neighbours, similarities, coverage, question.near)
        scored = explained(found, short, question.ranking)
        seen.update(scored)
        return units.candidates(
            scored,
            {chunk: where for chunk, where in places.items() if chunk in scored and chunk in texts},
            texts,
        )

    def _embedding(
        self, query: str
    ) -> "tuple[Callable[[], NDArray[np.float32]] | None, Nearness | None, str]":
        """Begin the query's vector: return what waits for it and its model's thresholds, or None, and a note."""
        if self._embedder is None or self._vectors is None:
            return None, None, "no embedding model is at hand"
        model = mirror_log.meta_get(self._database, mirror_log.MODEL)
        dimensions = int(self._database.value("SELECT dimensions FROM index_state"))
        if model is None or not dimensions:
            return None, None, "the memory holds no vectors yet"
        done, identity = self._percent(), self._embedder.identity
        if model.decode() != identity or dimensions != self._embedder.dimensions:
            what = f"the vectors were made by {model.decode()}, this device has {identity}"
            return None, None, what
        try:
            note = "" if done >= WHOLE_PERCENT else BEING_MADE.format(done)
            return self._vectors.begin(query), nearness(identity), note
        except EmbeddingError as error:
            return None, None, NOT_EMBEDDED.format(error)

    def _percent(self) -> int:
        """Return the percentage of chunks with vectors; computed once per state of the memory."""
        version = self._database.version()
        if self._percent_embedded is None or self._percent_embedded[0] != version:
            self._percent_embedded = version, percent_embedded(self._database)
        return self._percent_embedded[1]

    def _nearest(
        self, vector: "NDArray[np.float32] | None", count: int, filters: Filters
    ) -> "Sequence[Neighbour]":
        if vector is None:
            return []
        from crystal_core.search.vector_index import VectorIndex

        if self._index is None:
            self._index = VectorIndex()
        self._index.refresh(self._database)
        if self._index.dimensions != len(vector):
            return []  # re-embedded by another process since the query was embedded
        if filters.broad:
            nearest = self._index.nearest(
                self._database,
                vector,
                count,
                without=filters.hidden(),
                admits=filters.admits,
                listed=filters.listed,
            )
            if len(nearest) == count:
                return nearest
        return self._index.nearest(
            self._database, vector, count, only=filters.admitted(), without=filters.hidden()
        )

    def _coverage(self, matches: Sequence[Match], texts: Mapping[int, Text], snippets: Snippets) -> float:
        """Return the greatest share of the query's words that one of the best matches has."""
        best = [match.chunk for match in matches[:LOOKED_AT]]
        read = dict(texts)
        if not all(chunk in read for chunk in best):  # of an earlier layer
            read |= read_texts(self._database, best, None)
        return max((snippets.coverage(read[chunk].text) for chunk in best if chunk in read), default=1.0)

    def _hit(self, unit: Unit, question: _Question, units: Units, snippets: Snippets) -> Hit:
        shown, parts = units.show(unit, snippets), unit.explanation
        place, text = shown.place, shown.text.text
        depth = 0.0
        if question.vector is not None and len(text) > SNIPPET_CHARS and not snippets.coverage(text):
            depth = self._depth(shown.chunk, question.vector)
        snippet = snippets.snippet(text, depth)
        turn = units.turn(unit)
        relevant = 0.0 if unit.idle else self._relevance(unit, turn, text, question, snippets)
        return Hit(
            id=shown.text.id,
            text=text,
            score=parts.score,
            agent=place.agent,
            session=place.session,
            role=place.role,
            created_at=place.created_at,
            project=place.project,
            repository=place.repository,
            source=place.source,
            path=place.path,
            title=place.title,
            kind=place.kind,
            freshness=freshness(max(place.created_at, unit.again_at), question.now_ms),
            again_at=unit.again_at if unit.again_at > place.created_at else 0,
            category=shown.text.category,
            provisional=shown.text.provisional,
            snippet=snippet.text,
            marks=snippet.marks,
            alike=tuple(unit.alike),
            weak=relevant < WEAK_BELOW,
            relevance=relevant,
            turn=turn,
            explanation=parts,
            chunk=shown.chunk,
        )

    def _relevance(
        self, unit: Unit, turn: Turn | None, text: str, question: _Question, snippets: Snippets
    ) -> float:
        asking = "" if turn is None or turn.question == text else turn.question[:COVERED_QUESTION_CHARS]
        words = (asking, text) if asking else (text,)
        by_meaning = [(one.place.role, one.explanation.similarity) for one in unit.members]
        similarity = max(cosine for _, cosine in by_meaning)
        asked = max((cosine for role, cosine in by_meaning if role == PERSON), default=0.0)
        if turn is None or not turn.question_id:
            asked = similarity
        found = relevance(snippets.coverage(*words), similarity, asked, question.near)
        if question.vector is not None and question.near is None and unit.explanation.vector_rank is not None:
            return max(found, 0.5)  # a model whose cosines say nothing by themselves
        return found

    def _depth(self, chunk: int, vector: "NDArray[np.float32]") -> float:
        """Return where the text's window nearest to the query begins, as a share of the text."""
        import numpy as np

        windows = float16_vectors(self._database, chunk)
        if len(windows) < 2:
            return 0.0
        vectors = np.frombuffer(b"".join(windows), "<f2").reshape(len(windows), -1)
        return int(np.argmax(vectors @ vector)) / len(windows)


def _waited(
    vector_of: "Callable[[], NDArray[np.float32]]", note: str
) -> "tuple[NDArray[np.float32] | None, str]":
    """Return the query's vector and the note, or None and why there is none."""
    try:
        return vector_of(), note
    except EmbeddingError as error:
        return None, NOT_EMBEDDED.format(error)


def _passage(hit: Hit) -> str:
    """What a judge reads of a hit: an answer is understood with its question."""
    if hit.turn is None or hit.turn.question_id in ("", hit.id):
        return hit.text
    return f"{hit.turn.question[:JUDGED_QUESTION_CHARS]}\n{hit.text}"


def search(
    database: Database,
    query: str,
    *,
    now_ms: int,
    embedder: Embedder | None,
    limit: int = 10,
    offset: int = 0,
    scope: Scope = EVERYWHERE,
) -> SearchResult:
    """Search once; see `Searcher.search`."""
    return Searcher(database, embedder).search(query, now_ms=now_ms, limit=limit, offset=offset, scope=scope)
