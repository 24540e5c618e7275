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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crystal_core.database import Database

RANKED_MAX = 16_384
"""Chunks ranked for one query."""
TERMS_MAX = 32
"""Words and phrases of one query that are searched; further ones are ignored."""

_QUOTED = re.compile(r'"([^"]*)"')
_PARTS = re.compile(r"[^\W_]+")
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
    text = _UNSEARCHABLE.sub(" ", text)
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
    return (content or list(found.values()))[:TERMS_MAX]


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
    few, many = _by_rarity(database, searched)
    matches: list[list[Match]] = []
    if many and len(searched) > 1:
        matches.append(_ranked(database, " AND ".join(searched), RANKED_MAX // 2, limit, restriction))
    if few:
        matches.append(_ranked(database, _any_of(few), RANKED_MAX, limit, restriction))
    elif not matches or len(matches[0]) < limit:
        matches.append(_ranked(database, many[0], RANKED_MAX // 2, limit, restriction))
    return _merged(matches, limit)


def _by_rarity(database: Database, searched: Iterable[str]) -> tuple[list[str], list[str]]:
    """The terms that can be ranked in full, together, and the ones that cannot; each from the rarest on."""
    counted = sorted(
        (
            int(
                database.value(
                    "SELECT count(*) FROM (SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?)",
                    (term, RANKED_MAX + 1),
                )
            ),
            term,
        )
        for term in searched
    )
    few: list[str] = []
    many: list[str] = []
    total = 0
    for count, term in counted:
        total += count
        (few if total <= RANKED_MAX else many).append(term)
    return few, many


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
