"""The words of a text, as what they are in dates: a month, a number, a date in digits, nothing."""

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from crystal_core.search.date_words import CONTEXT, WORDS, Kind

_OPENING = "([{\"'“”„«‹¿¡*"
_CLOSING = ")]}\"'“”»›?!,;:.…*"
_APOSTROPHES = str.maketrans("’‘ʼ", "'''")

# Compiled when the first word with a digit is met: most queries have none.
_YMD = r"(\d{4})([-/])(\d{1,2})\2(\d{1,2})(?:t[\d:.,+z-]{2,24})?"
_DMY = r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})"
_DM = r"(\d{1,2})\.(\d{1,2})"
_YM = r"(\d{4})-(\d{1,2})|(\d{1,2})/(\d{4})"
_NAMED = r"(\d{1,2})[-/]([^\W\d_]{3,10})[-/](\d{4})"
_NUMBER = r"(\d{1,4})(st|nd|rd|th|er|e|eme|º|ª)?"
_DAYS = r"(\d{1,2})(?:st|nd|rd|th)?[-–](\d{1,2})(?:st|nd|rd|th)?"
_QUARTER = r"q([1-4])[-/]?(\d{4})|(\d{4})[-/]?q([1-4])"

MONTHS = (Kind.MONTH, Kind.WEAK_MONTH, Kind.SHORT_MONTH)
WEEKDAYS = (Kind.WEEKDAY, Kind.ENGLISH_WEEKDAY, Kind.SHORT_WEEKDAY)
SEASONS = (Kind.SEASON, Kind.WEAK_SEASON)


class Token(NamedTuple):
    kind: Kind
    value: int
    word: str
    stop: str
    """Punctuation behind it."""
    capital: bool
    pair: tuple[int, ...] = ()
    """Further numbers of what is written in digits."""


BLANK = Token(Kind.NOTHING, 0, "", "", capital=False)


_BEGINNINGS = frozenset(
    kind for kind in Kind if kind.value <= Kind.OTHER.value or kind.value >= Kind.DATE.value
) - {
    Kind.PART,
    Kind.NEXT,
    Kind.EVERY,
    Kind.NOTHING,
}
"""What every expression contains one of."""
_LISTED = {word: (Token(*meaning, word, "", capital=False),) for word, meaning in WORDS.items()}
_LISTED.update(
    (word, (Token(Kind.NOTHING, 0, word, "", capital=False),)) for word in CONTEXT if word not in WORDS
)
_BLANKS = (BLANK,)


def tokens_of(text: str) -> list[Token]:
    """All words, in order. What is code, a path or the like is nothing."""
    return [token for piece in text.split() for token in _LISTED.get(piece) or _of_piece(piece)]


def _of_piece(piece: str) -> Sequence[Token]:
    """The tokens of what stands between two spaces and is not listed as it stands: nearly always one."""
    if piece.isascii() and piece.isalpha() and piece.islower():
        return _BLANKS
    begun = piece.lstrip(_OPENING)
    trimmed = begun.rstrip(_CLOSING)
    stop = begun[len(trimmed) :]
    word = trimmed.lower() if trimmed.isascii() else _folded(trimmed)
    meaning = WORDS.get(word)
    if meaning is not None:
        return (Token(*meaning, word, stop, trimmed[0].isupper()),)
    if word[:1].isdigit():
        return (_number(word, stop),)
    if "-" in word or "'" in word:
        return _parts(word, stop, trimmed)
    quarter = re.fullmatch(_QUARTER, word)
    if quarter:
        return (Token(Kind.QUARTER, int(quarter[1]), word, stop, capital=True, pair=(int(quarter[2]),)),)
    return (Token(Kind.NOTHING, 0, word, stop, capital=False),)


def _folded(word: str) -> str:
    """Lower case, without accents and other marks."""
    decomposed = unicodedata.normalize("NFKD", word.translate(_APOSTROPHES)).casefold()
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def _parts(word: str, stop: str, given: str) -> Sequence[Token]:
    """Of a word with an apostrophe or a hyphen: l'été, yesterday's, mid-June."""
    capital = given[0].isupper()
    first, mark, rest = word.partition("'") if "'" in word else word.partition("-")
    if rest == "s" and first in WORDS:
        return (Token(*WORDS[first], first, stop, capital),)
    meanings = WORDS.get(first), WORDS.get(rest)
    if mark == "'" and first in ("l", "d", "qu") and meanings[1] is not None:
        return (
            Token(Kind.OF if first == "d" else Kind.ARTICLE, 0, first, "", capital=False),
            Token(*meanings[1], rest, stop, capital),
        )
    if (
        meanings[0] is not None
        and meanings[1] is not None
        and (meanings[0][0] in (Kind.THIRD, Kind.LAST, Kind.THIS))
    ):
        last = given[len(first) + 1 :]
        return (
            Token(*meanings[0], first, "", capital),
            Token(*meanings[1], rest, stop, last[:1].isupper()),
        )
    return (Token(Kind.NOTHING, 0, word, stop, capital=False),)


def _number(word: str, stop: str) -> Token:
    """What begins with a digit: a number, or a date."""
    number = re.fullmatch(_NUMBER, word)
    if number:
        return Token(Kind.NUMBER, int(number[1]), word, stop, bool(number[2]), pair=(len(number[1]),))
    ymd = re.fullmatch(_YMD, word)
    if ymd:
        return Token(Kind.DATE, 0, word, stop, capital=True, pair=(int(ymd[1]), int(ymd[3]), int(ymd[4])))
    dmy = re.fullmatch(_DMY, word)
    if dmy:
        year = int(dmy[4]) if len(dmy[4]) == 4 else 2000 + int(dmy[4])
        sure = len(dmy[4]) == 4 or (dmy[2] == "/" and len(dmy[1]) == len(dmy[3]) == 2)
        kind = {".": 1, "-": 1, "/": 2}[dmy[2]]
        return Token(Kind.DATE, kind, word, stop, sure, pair=(year, int(dmy[3]), int(dmy[1])))
    days = re.fullmatch(_DAYS, word)
    if days:
        return Token(Kind.SPAN, int(days[1]), word, stop, capital=False, pair=(int(days[2]),))
    named = re.fullmatch(_NAMED, word)
    if named and WORDS.get(named[2], (Kind.NOTHING, 0))[0] in MONTHS:
        pair = (int(named[3]), WORDS[named[2]][1], int(named[1]))
        return Token(Kind.DATE, 0, word, stop, capital=True, pair=pair)
    month = re.fullmatch(_YM, word)
    if month:
        numbers = (int(month[1]), int(month[2])) if month[1] else (int(month[4]), int(month[3]))
        return Token(Kind.YEAR_MONTH, 0, word, stop, capital=False, pair=numbers)
    quarter = re.fullmatch(_QUARTER, word)
    if quarter:
        return Token(Kind.QUARTER, int(quarter[4]), word, stop, capital=True, pair=(int(quarter[3]),))
    day = re.fullmatch(_DM, word)
    if day and stop.startswith("."):  # 31.1.
        return Token(Kind.DATE, 3, word, stop, capital=False, pair=(0, int(day[2]), int(day[1])))
    return Token(Kind.NOTHING, 0, word, stop, capital=False)


def may_speak_of_dates(tokens: list[Token]) -> bool:
    """Whether there is a word without which no expression is one."""
    return any(token.kind in _BEGINNINGS for token in tokens)
