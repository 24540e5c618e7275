"""The keyword half of search: what a person typed, as FTS5 expressions, and their ranking by BM25.

Rules:

- Whatever is typed is a query. Every word reaches FTS5 as a quoted string, so its syntax has no meaning there.
- Words are joined by OR and BM25 puts together what matches well: a query whose words do not all occur still finds. English
  function words are left out as long as other words remain. Text between double quotes is a phrase; a word with
  punctuation inside (`os.path`) is searched as a phrase and by its parts.
- Ranking costs about 0.7 µs for each chunk that matches, so at most `RANKED_MAX` are ranked. In a memory of more chunks than
  that, words are taken from the rarest on, as many as fit; the chunks that hold all words are ranked apart; and of words
  that each exceed it alone, the newest chunks count. See docs/decisions/0010-search-index.md.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crystal_core.database import Database

RANKED_MAX = 8192
"""Chunks ranked for one query."""
RARE_MAX = 2048
"""A word in at most that many chunks is rare; only where rare words are few are others counted to their end."""
CONJUNCTION_MAX = 5
"""Words in a query whose conjunction is searched by itself. All words of a long query hardly ever stand in one chunk."""
TERMS_MAX = 16
"""Words and phrases of one query that are searched. Of more, the longest are taken: they tend to be the rarest."""

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


@dataclass(frozen=True, slots=True)
class Match:
    """A chunk (by rowid) and how well it matches: BM25 without its sign, higher is better."""

    chunk: int
    bm25: float

    @property
    def normalised(self) -> float:
        """Between 0 and 1."""
        return self.bm25 / (1 + self.bm25)


@dataclass(frozen=True, slots=True)
class Restriction:
    """A condition on `rowid` that every match must meet, as SQL with its bindings, and whether few rows meet it."""

    sql: str = ""
    bindings: tuple[object, ...] = ()
    narrow: bool = False


EVERYTHING = Restriction()


def terms(text: str) -> list[str]:
    """The words and phrases of a query, as FTS5 strings; none if the text holds nothing that is indexed."""
    text = unicodedata.normalize("NFC", _UNSEARCHABLE.sub(" ", text))
    found: dict[str, str] = {}

    def take(words: Sequence[str]) -> None:
        if words:
            term = " ".join(words)
            found.setdefault(term.casefold(), f'"{term}"')

    for phrase in _QUOTED.findall(text):
        take(_PARTS.findall(phrase))
    plain: list[list[str]] = [_PARTS.findall(word) for word in _QUOTED.sub(" ", text).split()]
    for words in plain:
        take(words)
    for words in plain:
        for word in words:
            take([word])
    content = [term for key, term in found.items() if key not in _FUNCTION_WORDS]
    chosen = content or list(found.values())
    return chosen if len(chosen) <= TERMS_MAX else sorted(chosen, key=len, reverse=True)[:TERMS_MAX]


def best_matches(
    database: Database, text: str, limit: int, restriction: Restriction = EVERYTHING
) -> list[Match]:
    """The chunks that match best, best first. Belongs in a snapshot."""
    searched = terms(text)
    if not searched:
        return []
    newest = database.value("SELECT max(rowid) FROM chunks") or 0
    if newest <= RANKED_MAX or restriction.narrow:
        return _ranked(database, _any_of(searched), RANKED_MAX, limit, restriction)
    fitting, common = _by_rarity(database, searched)
    matches: list[list[Match]] = []
    if fitting:
        matches.append(_ranked(database, _any_of(fitting), RANKED_MAX, limit, restriction))
    if common and 1 < len(searched) <= CONJUNCTION_MAX:
        matches.append(_ranked(database, " AND ".join(searched), RANKED_MAX // 2, limit, restriction))
    if not any(matches):
        matches.append(
            _ranked(database, common[0] if common else searched[0], RANKED_MAX, limit, restriction)
        )
    return _merged(matches, limit)


def _by_rarity(database: Database, searched: Iterable[str]) -> tuple[list[str], list[str]]:
    """The terms that can be ranked in full, together, and the ones that cannot; each from the rarest on."""
    counted = sorted((_count(database, term, RARE_MAX), term) for term in searched)
    rare = sum(count for count, _ in counted if count <= RARE_MAX)
    if rare <= RANKED_MAX - RARE_MAX:
        counted = sorted(
            (count if count <= RARE_MAX else _count(database, term, RANKED_MAX), term)
            for count, term in counted
        )
    fitting: list[str] = []
    common: list[str] = []
    total = 0
    for count, term in counted:
        total += count
        (
            fitting
            if total <= RANKED_MAX and (count <= RARE_MAX or rare <= RANKED_MAX - RARE_MAX)
            else common
        ).append(term)
    return fitting, common


def _count(database: Database, term: str, most: int) -> int:
    """In how many chunks the term stands; `most` + 1 if in more."""
    query = "SELECT count(*) FROM (SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?)"
    return int(database.value(query, (term, most + 1)))


def _ranked(
    database: Database, expression: str, ranked_max: int, limit: int, restriction: Restriction
) -> list[Match]:
    """The `limit` best of the newest `ranked_max` matches."""
    condition = f" AND {restriction.sql}" if restriction.sql else ""
    # The condition is made of constants, its values are bound.
    newest = (
        "SELECT rowid, bm25(chunks_fts) AS score FROM chunks_fts"  # noqa: S608
        f" WHERE chunks_fts MATCH ?{condition} ORDER BY rowid DESC LIMIT ?"
    )
    query = f"SELECT rowid, score FROM ({newest}) ORDER BY score, rowid DESC LIMIT ?"  # noqa: S608
    rows = database.rows(query, (expression, *restriction.bindings, ranked_max, limit))
    return [Match(int(chunk), abs(float(score))) for chunk, score in rows]


def _any_of(searched: Iterable[str]) -> str:
    return " OR ".join(searched)


def _merged(lists: Sequence[Sequence[Match]], limit: int) -> list[Match]:
    """One list; a chunk that stands in several keeps its best value (the fewer terms were asked for, the lower it is)."""
    best: dict[int, Match] = {}
    for matches in lists:
        for match in matches:
            if match.chunk not in best or best[match.chunk].bm25 < match.bm25:
                best[match.chunk] = match
    return sorted(best.values(), key=lambda match: (-match.bm25, -match.chunk))[:limit]
