"""Queries that are something pasted: a traceback, a log, source. What is searched for are their telling words.

Taken as it stands, such a query would be searched by its longest words, which are numbers and paths that occur nowhere else,
and by the meaning of its first lines. Its telling words are, in this order: those of what a person wrote around it, those of
its errors (the last one first), and the names that it says most often. Prose stays as it is, however long. Time grows with
the length alone.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

CHARS_MIN = 800
"""A query of fewer characters is searched as it stands."""
PASTED_SHARE = 3
"""A text in which one line of so many has the signs of programs was pasted."""
WORDS_MAX = 16
"""Most telling words."""
_ERROR_WORDS_MAX = 8
_ASKED_CHARS_MAX = 400
"""Longest line that is a person's."""
_WORD_CHARS_MIN, _WORD_CHARS_MAX = 3, 40

_WORD = re.compile(r"[^\W\d_]+")
_HUMP = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_ERROR = re.compile(
    r"(?:error|exception|panic|fatal|failed|failure|fehler|refused|denied|timeout|timed out)", re.IGNORECASE
)
_STRANGE = re.compile(r"[{}()\[\]<>=_/\\|@#$%^*~`;+]|\d{3}|::|->|--")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]+")
_LISTED = """
    about after all and any are async await been before bool but call can catch class const could debug def default did does
    else error exc exception export false file final for from func function get had has have here how http https import info
    int into its job lambda last level lib line local log main message module more most name new none not null object only
    other our out packages pass path print private public raise recent request return run self set should site some static
    status str string struct such super than that the their then there these they this thread through throw time trace
    traceback true try type under unit use usr var void warn warning was were what when where which while who why will with
    worker would yield you your
    aber auch das dass dem den der des die ein eine einen ist mit nicht und von wie wir
    con del los las para por que una les est pour dans une avec
"""
_BOILERPLATE = frozenset(_LISTED.split())
"""Words of programs, logs and grammar, which tell nothing. A person's own line loses them too."""


def telling_words(query: str) -> str:
    """The query itself, or the telling words of one that was pasted; never nothing."""
    if len(query) < CHARS_MIN:
        return query
    lines = [line.strip() for line in query.splitlines() if line.strip()]
    if PASTED_SHARE * sum(1 for line in lines if _STRANGE.search(line)) < len(lines):
        return query
    chosen: dict[str, str] = {}
    for line in _asked(lines):
        _take(chosen, _words(line), WORDS_MAX)
    for line in reversed(lines):
        if len(chosen) >= WORDS_MAX or not _ERROR.search(line):
            continue
        _take(chosen, _names(line[:_ASKED_CHARS_MAX]), min(len(chosen) + _ERROR_WORDS_MAX, WORDS_MAX))
        break
    counted = Counter(name.lower() for line in lines for name in _names(line))
    _take(chosen, (name for name, _count in counted.most_common(4 * WORDS_MAX)), WORDS_MAX)
    return " ".join(chosen.values()) or query[:CHARS_MIN]


def _asked(lines: list[str]) -> Iterator[str]:
    """What a person may have written before and behind it: lines at either end that look like a sentence."""
    for line in (*lines[:1], *lines[-1:]):
        if len(line) <= _ASKED_CHARS_MAX and len(_WORD.findall(line)) >= 4 and not _STRANGE.search(line):
            yield line


def _take(chosen: dict[str, str], words: Iterable[str], most: int) -> None:
    for word in words:
        if len(chosen) >= most:
            return
        chosen.setdefault(word.lower(), word)


def _words(line: str) -> Iterator[str]:
    """The words of a sentence, without those of grammar."""
    return (word for word in _WORD.findall(line) if _fits(word) and word.lower() not in _BOILERPLATE)


def _names(line: str) -> Iterator[str]:
    """Words and names, and what a name is made of: CraneOverloadError, Crane, Overload."""
    for word in _WORD.findall(line):
        if not _fits(word) or _HEXADECIMAL.fullmatch(word):
            continue
        if word.lower() not in _BOILERPLATE:
            yield word
        if not (word.islower() or word.isupper() or word.istitle()):
            yield from (
                part for part in _HUMP.findall(word) if _fits(part) and part.lower() not in _BOILERPLATE
            )


def _fits(word: str) -> bool:
    return _WORD_CHARS_MIN <= len(word) <= _WORD_CHARS_MAX
