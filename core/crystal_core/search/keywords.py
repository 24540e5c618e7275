"""Keyword search: turns a query into FTS5 expressions and ranks matches by BM25.

Rules:

- Any text is a valid query. Every word reaches FTS5 as a quoted string, so FTS5's syntax has no effect.
- Words are joined by OR, so a query whose words do not all occur still finds something; BM25 ranks better matches first.
  English function words are left out while other words remain. Text between double quotes is a phrase; a word with
  punctuation inside (`os.path`) is searched as a phrase and by its parts.
- Ranking takes up to 1 µs per matching chunk, so at most `RANKED_MAX` are ranked. A process that has NumPy ranks with it
  (`postings.py`), another one by FTS5, with the same result. In a larger memory, words are taken from
  the rarest on, as many as fit:

      the chunks that hold them are few    all of them, by all words of the query, in an index of their own
      they are more                        by these words; and what holds all words of a short query, by all
      that is not enough                   what holds all the other words, then the newest that hold the rarest of these

- A filter that admits few chunks has them ranked in full, by all words, and a word is as rare as it is among them. One that
  admits more applies before anything is cut off.

See docs/decisions/0010-search-index.md, 0038-vectors-at-a-million.md and 0115-words-ranked-in-memory.md.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from msgspec import Struct

from crystal_core.database import Database, Row
from crystal_core.search import bm25, postings
from crystal_core.search.postings import Postings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RANKED_MAX = 8192
"""Chunks ranked for one query."""
RARE_MAX = 2048
"""A word in at most this many chunks is rare. Other words are counted completely only if there are few rare ones."""
FEW_MAX = 256
"""Most chunks that get a temporary index for one query: about 15 µs each."""
LISTED_FOR_ONE_INDEXED = 100
"""Indexing one text (15 µs) takes as long as listing this many chunks that hold a word (0.15 µs each)."""
COUNTED_MAX = 4
"""A word estimated to be in this many times `RANKED_MAX` chunks is not counted up to that bound, nor is a phrase."""
UPWARDS_MAX = 4
"""What holds all of several words is read to its end only if the rarest is in at most this many times what is ranked."""
LARGE = 250_000
"""Chunks from which on FTS5's own ranking of phrases costs more than `crystal_rank`, and words are not counted completely."""
COUNTS_KEPT = 4096
"""Terms whose counts are cached between searches while nothing is written."""
CONJUNCTION_MAX = bm25.COUNTED_EACH_MAX
"""Most words of a query whose conjunction is also searched. A chunk hardly ever has all words of a long query."""
TERMS_MAX = 16
"""Most words and phrases of a query that are searched; the longest are taken, since they tend to be the rarest."""

_QUOTED = re.compile(r'"([^"]*)"')
_PARTS = re.compile("(?:[^\\W_]|[\u0300-\u036f])+")  # FTS5, too, takes combining accents for parts of words
_UNSEARCHABLE = re.compile("[\x00\ud800-\udfff]")

_ENGLISH = """
    a about after all also an and any are as at be because been before but by can could did do does for from had has
    have he her him his how i if in into is it its just me more my no not of on or our out over she should so some
    than that the their them then there these they this to up us was we were what when where which who why will with
    would you your
"""
_FUNCTION_WORDS = frozenset(_ENGLISH.split())


class Match(Struct, frozen=True):
    """A chunk (by rowid) and its BM25 with the sign reversed: higher is better."""

    chunk: int
    bm25: float

    @property
    def normalised(self) -> float:
        """The score between 0 and 1."""
        return self.bm25 / (1 + self.bm25)


class Restriction(Struct, frozen=True):
    """A condition on `rowid` that every match must meet, as SQL with its bindings, and whether few rows meet it.

    Each `rowid` in it has a plus sign, which keeps SQLite from querying FTS5 separately for each admitted row.
    """

    sql: str = ""
    bindings: tuple[object, ...] = ()
    narrow: bool = False
    admits: "Callable[[NDArray[np.int64]], NDArray[np.bool_]] | None" = None
    """Whether each of these chunks meets it, if that is known in memory."""


EVERYTHING = Restriction()


def terms(text: str) -> list[str]:
    """Return the words and phrases of a query as FTS5 strings; none if it contains nothing that is indexed."""
    text = unicodedata.normalize("NFC", _UNSEARCHABLE.sub(" ", text))
    found: dict[str, str] = {}

    def take(words: Sequence[str]) -> None:
        if words:
            term = " ".join(words)
            found.setdefault(term.casefold(), f'"{term}"')

    for phrase in _QUOTED.findall(text):
        take(_PARTS.findall(phrase))
    quoted = set(found)
    plain: list[list[str]] = [_PARTS.findall(word) for word in _QUOTED.sub(" ", text).split()]
    for words in plain:
        take(words)
    for words in plain:
        for word in words:
            take([word])
    content = [
        term
        for key, term in found.items()
        if key in quoted - _FUNCTION_WORDS or not _FUNCTION_WORDS.issuperset(key.split())
    ]
    chosen = content or list(found.values())
    return chosen if len(chosen) <= TERMS_MAX else sorted(chosen, key=len, reverse=True)[:TERMS_MAX]


def best_matches(
    database: Database, text: str, limit: int, restriction: Restriction = EVERYTHING
) -> list[Match]:
    """Return the best matches, best first. Belongs in a snapshot."""
    searched = terms(text)
    if not searched:
        return []
    newest = int(database.value("SELECT max(rowid) FROM chunks") or 0)
    if newest <= RANKED_MAX and not restriction.narrow:
        return _ranked(database, _Search(" OR ".join(searched)), RANKED_MAX, limit, restriction)
    bm25.prepare(database)
    if restriction.narrow:
        return _among_admitted(database, searched, limit, restriction)
    phrases: dict[str, Postings] = {}
    fitting, common = _by_rarity(database, searched, newest, phrases)
    holding = {term.text: term.holding for term in (*fitting, *common)}
    weights = {text: bm25.weight(holders, newest) for text, holders in holding.items()}
    matches: list[list[Match]] = []

    def add(search: _Search, ranked_max: int) -> None:
        matches.append(_ranked(database, search, ranked_max, limit, restriction))

    def add_all(search: _Search) -> None:
        matches.append(_all_ranked(database, search, limit, restriction))

    def add_newest(words: Sequence[str], held: Mapping[str, Postings], ranked_max: int) -> None:
        if postings.at_hand():
            # As if words stood independently of each other: right within a factor of two where it matters. Some always stand
            # together (in a footer), and only the rarest is a bound then.
            bounded = min(holding[word] for word in words) <= UPWARDS_MAX * ranked_max
            shares = (min(holding[word] / newest, 1) for word in words)
            expected = newest * math.prod(shares) if bounded else math.inf
            most = ranked_max, limit
            matches.append(_newest(database, words, weights, held, most, expected, restriction))
        else:
            add(_weighted(" AND ", words, weights), ranked_max)

    held: dict[str, Postings] = {}
    fitting = [term for term in fitting if term.holding]
    holders = _holders(database, fitting, phrases) if fitting else None
    if holders:
        few = _meeting(database, holders, restriction)
        matches.append(_among(database, few, _weighted(" OR ", searched, weights), limit))
    elif fitting:
        texts = [term.text for term in fitting]
        # FTS5's own ranking is faster, except for phrases of common words in a large memory.
        dear = newest > LARGE and any(" " in text for text in texts)
        if postings.at_hand():
            held = {text: phrases.get(text) or postings.holders(database, text) for text in texts}
            matches.append(_all_held(database, held, weights if dear else {}, limit, restriction))
        else:
            add_all(_weighted(" OR ", texts, weights) if dear else _Search(" OR ".join(texts)))
        if common and len(searched) <= CONJUNCTION_MAX:
            add_newest(_whole(searched), held, RANKED_MAX // 2)
    rest = _whole([term.text for term in common])
    if len(rest) > 1 and _found(matches) < limit:
        add_newest(rest[:CONJUNCTION_MAX], held, RANKED_MAX // 2)
    if rest and _found(matches) < limit:
        add_newest(rest[:1], held, RANKED_MAX)
    return _merged(matches, limit)


class _Term(Struct, frozen=True):
    """A term and the number of chunks with it, an estimate if not `complete`."""

    text: str
    holding: float
    complete: bool


class _Counts:
    """Cache of term counts of one database until it changes: counting takes up to a third of a search."""

    def __init__(self) -> None:
        self._version: tuple[int, int] | None = None
        self._found: dict[tuple[str, int], _Term] = {}

    def look(
        self,
        database: Database,
        term: str,
        most: int,
        newest: int,
        phrases: dict[str, Postings] | None = None,
    ) -> _Term:
        """As `_look`. Belongs in a snapshot."""
        version = database.version()
        if version != self._version or len(self._found) >= COUNTS_KEPT:
            self._version, self._found = version, {}
        if (term, most) not in self._found:
            self._found[term, most] = _look(database, term, most, newest, phrases)
        return self._found[term, most]


_counts: "WeakKeyDictionary[Database, _Counts]" = WeakKeyDictionary()


class _Search(Struct, frozen=True):
    """An FTS5 expression, and the weight of each of its phrases; without weights FTS5 computes them."""

    expression: str
    weights: tuple[float, ...] = ()

    def rank(self, table: str) -> str:
        return bm25.rank_expression(table, self.weights) if self.weights else f"bm25({table})"


def _weighted(joined: str, searched: Sequence[str], weights: Mapping[str, float]) -> _Search:
    return _Search(joined.join(searched), tuple(weights[term] for term in searched))


def _whole(searched: Sequence[str]) -> list[str]:
    """Remove terms that are part of another term."""
    padded = [" " + term.strip('"') + " " for term in searched]
    return [
        term
        for place, term in enumerate(searched)
        if not any(padded[place] in other for number, other in enumerate(padded) if number != place)
    ]


def _by_rarity(
    database: Database, searched: Iterable[str], newest: int, phrases: dict[str, Postings]
) -> tuple[list[_Term], list[_Term]]:
    """Return the terms that can be ranked in full together, and the others; both from the rarest on. Notes in `phrases` what
    holds a rare phrase, where it was listed for that."""
    counts = _counts.setdefault(database, _Counts())
    found = [counts.look(database, term, RARE_MAX, newest, phrases) for term in searched]
    room = RANKED_MAX - sum(term.holding for term in found if term.complete and term.holding <= RARE_MAX)
    if room >= RARE_MAX:
        found = [
            term
            if term.complete or " " in term.text or term.holding > COUNTED_MAX * RANKED_MAX
            else counts.look(database, term.text, RANKED_MAX, newest)
            for term in found
        ]
    found.sort(key=lambda term: (not term.complete, term.holding, term.text))
    fitting: list[_Term] = []
    common: list[_Term] = []
    total = 0.0
    for term in found:
        total += term.holding
        (fitting if term.complete and total <= RANKED_MAX else common).append(term)
    return fitting, common


def _look(
    database: Database, term: str, most: int, newest: int, phrases: dict[str, Postings] | None
) -> _Term:
    holding = bm25.holding(database, term.strip('"')) if newest <= LARGE and " " not in term else None
    if holding is not None:
        return _Term(term, holding, complete=True)
    if phrases is not None and " " in term and postings.at_hand():
        listed = postings.matching(database, "chunks_fts", term, newest=most + 1)
        counted, oldest = len(listed.chunks), int(listed.chunks[0]) if len(listed.chunks) else 0
        if counted <= most:
            phrases[term] = listed
    else:
        counted, oldest = database.rows(
            "SELECT count(*), min(rowid) FROM"
            " (SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ? ORDER BY rowid DESC LIMIT ?)",
            (term, most + 1),
        )[0]
    if counted <= most:
        return _Term(term, counted, complete=True)
    # An estimate: the newest chunks contain the term as often as all do.
    return _Term(term, counted * newest / (newest - oldest + 1), complete=False)


def _holders(
    database: Database, searched: Sequence[_Term], phrases: Mapping[str, Postings]
) -> list[int] | None:
    """Return the chunks with one of the terms; None if there are too many."""
    if sum(term.holding for term in searched) > FEW_MAX:
        return None
    found = {int(chunk) for term in searched if term.text in phrases for chunk in phrases[term.text].chunks}
    others = [term.text for term in searched if term.text not in phrases]
    query = "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ?"
    found.update(int(row[0]) for row in (database.rows(query, (" OR ".join(others),)) if others else ()))
    return sorted(found)


def _among_admitted(
    database: Database, searched: Sequence[str], limit: int, restriction: Restriction
) -> list[Match]:
    """Rank by all words among the few chunks that the restriction admits."""
    direct = restriction.sql.replace("+rowid IN", "rowid IN", 1)
    admitted = [
        int(row[0])
        for row in database.rows(f"SELECT rowid FROM chunks WHERE {direct}", restriction.bindings)  # noqa: S608
    ]
    if not admitted:
        return []
    if len(admitted) <= FEW_MAX:
        return _among(database, admitted, _Search(" OR ".join(searched)), limit)
    if postings.at_hand():
        return _among_listed(database, searched, limit, admitted)
    among = Restriction("+rowid IN (SELECT value FROM json_each(?))", (json.dumps(admitted),))
    between = min(admitted), max(admitted)
    weights = {
        term: bm25.weight(_holding_among(database, term, among, between), len(admitted)) for term in searched
    }
    return _ranked(database, _weighted(" OR ", searched, weights), RANKED_MAX, limit, among, between)


def _holding_among(database: Database, term: str, among: Restriction, between: tuple[int, int]) -> int:
    """Return how many of the admitted chunks hold a term: a project's own word is rare elsewhere only."""
    query = (
        f"SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH ? AND rowid BETWEEN {between[0]} AND {between[1]}"  # noqa: S608
        f" AND {among.sql}"
    )
    return int(database.value(query, (term, *among.bindings)))


def _meeting(database: Database, rowids: Iterable[int], restriction: Restriction) -> list[int]:
    """Return the chunks that meet the restriction."""
    if not restriction.sql:
        return list(rowids)
    query = f"SELECT rowid FROM chunks WHERE rowid IN (SELECT value FROM json_each(?)) AND {restriction.sql}"  # noqa: S608
    return [int(row[0]) for row in database.rows(query, (json.dumps(list(rowids)), *restriction.bindings))]


def _among(database: Database, rowids: Sequence[int], search: _Search, limit: int) -> list[Match]:
    """Return the `limit` best of a few chunks."""
    with bm25.index_of(database, rowids) as table:
        query = (
            f"SELECT rowid, {search.rank(table)} AS score FROM {table} WHERE {table} MATCH ?"  # noqa: S608
            " ORDER BY score, rowid DESC LIMIT ?"
        )
        return _matches(database.rows(query, (search.expression, limit)))


def _ranked(
    database: Database,
    search: _Search,
    ranked_max: int,
    limit: int,
    restriction: Restriction,
    between: tuple[int, int] | None = None,
) -> list[Match]:
    """Return the `limit` best of the newest `ranked_max` matches."""
    condition = f" AND {restriction.sql}" if restriction.sql else ""
    if between is not None:
        condition += f" AND rowid BETWEEN {between[0]} AND {between[1]}"
    # The condition consists of constants and numbers; its values are bound.
    newest = (
        f"SELECT rowid, {search.rank('chunks_fts')} AS score FROM chunks_fts"  # noqa: S608
        f" WHERE chunks_fts MATCH ?{condition} ORDER BY rowid DESC LIMIT ?"
    )
    query = f"SELECT rowid, score FROM ({newest}) ORDER BY score, rowid DESC LIMIT ?"  # noqa: S608
    bindings = (search.expression, *restriction.bindings, ranked_max, limit)
    return _matches(database.rows(query, bindings))


def _all_ranked(database: Database, search: _Search, limit: int, restriction: Restriction) -> list[Match]:
    """Return the `limit` best of all matches. The restriction, costlier than a rank, is checked from the best one on."""
    ranked = (
        f"SELECT rowid, {search.rank('chunks_fts')} AS score FROM chunks_fts WHERE chunks_fts MATCH ?"  # noqa: S608
        " ORDER BY score, rowid DESC"
    )
    if not restriction.sql:
        return _matches(database.rows(f"{ranked} LIMIT ?", (search.expression, limit)))
    # The inner LIMIT keeps SQLite from moving the restriction into it.
    query = f"SELECT rowid, score FROM ({ranked} LIMIT -1) WHERE {restriction.sql} LIMIT ?"  # noqa: S608
    return _matches(database.rows(query, (search.expression, *restriction.bindings, limit)))


def _all_held(
    database: Database,
    held: Mapping[str, Postings],
    weights: Mapping[str, float],
    limit: int,
    restriction: Restriction,
) -> list[Match]:
    """As `_all_ranked`, of terms that chunks hold; without `weights` by how many hold them."""
    total, average = postings.lengths(database).totals(database, next(iter(held)))
    terms = [
        (weights.get(text) or bm25.weight(len(found.chunks), total), found) for text, found in held.items()
    ]
    chunks, scores = postings.ranked(database, terms, average)
    if restriction.admits is not None:
        admitted = restriction.admits(chunks)
        return _matches(postings.best(database, (chunks[admitted], scores[admitted]), limit))
    return _matches(postings.best(database, (chunks, scores), limit, restriction.sql, restriction.bindings))


def _newest(
    database: Database,
    words: Sequence[str],
    weights: Mapping[str, float],
    held: Mapping[str, Postings],
    most: tuple[int, int],
    expected: float,
    restriction: Restriction,
) -> list[Match]:
    """As `_ranked`, of what holds all these words. `held` has the chunks of some of them; `most`: how many are ranked, and
    returned; `expected`: about how many there are."""
    ranked_max, limit = most

    unknown = [word for word in words if word not in held]
    if unknown or restriction.sql:
        together = postings.matching(
            database,
            "chunks_fts",
            " AND ".join(words),
            restriction.sql,
            restriction.bindings,
            newest=ranked_max,
            expected=expected,
            each=len(unknown) > 1,
        )
    else:
        together = postings.in_all([held[word] for word in words], ranked_max)
    if not len(together.chunks):
        return []
    if len(unknown) > 1:
        times = dict(zip(words, postings.of_each(together, len(words)), strict=True))
    else:
        times = {word: held[word].among(together.chunks) for word in words if word in held}
        for word in unknown:
            times[word] = together.times - sum(times.values())
    _, average = postings.lengths(database).totals(database, words[0])
    terms = [(weights[word], Postings(together.chunks, times[word])) for word in words]
    return _matches(postings.best(database, postings.ranked(database, terms, average), limit))


def _among_listed(
    database: Database, searched: Sequence[str], limit: int, admitted: Sequence[int]
) -> list[Match]:
    """As `_among_admitted`, of these chunks."""
    newest = int(database.value("SELECT max(rowid) FROM chunks"))
    counts = _counts.setdefault(database, _Counts())
    holding = sum(counts.look(database, term, RARE_MAX, newest).holding for term in searched)
    if holding > LISTED_FOR_ONE_INDEXED * len(admitted):
        with bm25.index_of(database, admitted) as table:
            held = {term: postings.matching(database, table, term) for term in searched}
    else:
        bm25.admit(database, admitted, newest)
        condition = f"rowid BETWEEN ? AND ? AND {bm25.ADMITTED}"
        between = min(admitted), max(admitted)
        held = {
            term: postings.matching(database, "chunks_fts", term, condition, between) for term in searched
        }
    held = {term: found for term, found in held.items() if len(found.chunks)}
    if not held:
        return []
    _, average = postings.lengths(database).totals(database, next(iter(held)))
    terms = [(bm25.weight(len(found.chunks), len(admitted)), found) for found in held.values()]
    return _matches(postings.best(database, postings.ranked(database, terms, average), limit))


def _matches(rows: Iterable[Row]) -> list[Match]:
    return [Match(int(chunk), abs(float(score))) for chunk, score in rows]


def _found(lists: Sequence[Sequence[Match]]) -> int:
    return len({match.chunk for matches in lists for match in matches})


def _merged(lists: Sequence[Sequence[Match]], limit: int) -> list[Match]:
    """Merge lists; a chunk in several keeps its best score (fewer terms searched give a lower one)."""
    best: dict[int, Match] = {}
    for matches in lists:
        for match in matches:
            if match.chunk not in best or best[match.chunk].bm25 < match.bm25:
                best[match.chunk] = match
    return sorted(best.values(), key=lambda match: (-match.bm25, -match.chunk))[:limit]
