"""The words around an expression of a date: what stands before it, where a clause ends, which word is a verb."""

from crystal_core.search.date_tokens import BLANK, Token
from crystal_core.search.date_words import VERB_NEXT, Kind
from crystal_core.search.periods import Unit

_RELATIONS = frozenset(
    (Kind.IN, Kind.ON, Kind.SINCE, Kind.BEFORE, Kind.AFTER, Kind.UNTIL, Kind.BETWEEN, Kind.FROM)
)
_SKIPPED = frozenset((Kind.ARTICLE, Kind.OF, Kind.AT))
LEADING = _RELATIONS | _SKIPPED | {Kind.AGO_BEFORE}
"""What may stand before an expression and belong to it."""


class Sentence:
    """The words around a word. `alone`: the text is nothing but one expression, so that weak words count as well."""

    def __init__(self, tokens: list[Token], *, alone: bool) -> None:
        self._tokens = tokens
        self._alone = alone

    def _at(self, index: int) -> Token:
        return self._tokens[index] if 0 <= index < len(self._tokens) else BLANK

    def _relation(self, at: int) -> Kind:
        """The word before the expression that says how it is meant, behind articles and the like."""
        index = at - 1
        for _ in range(3):
            token = self._at(index)
            if token.stop:
                return Kind.NOTHING
            if token.kind in _RELATIONS:
                if token.kind is Kind.ON and self._at(index - 1).kind in _RELATIONS - {Kind.ON, Kind.IN}:
                    index -= 1  # desde el martes
                    continue
                return token.kind
            if token.kind is Kind.AGO_BEFORE:
                return Kind.AGO_BEFORE if token.value else Kind.NOTHING
            if token.kind not in _SKIPPED and not (
                token.kind is Kind.UNIT and token.value in (Unit.MONTH, Unit.YEAR)
            ):
                return Kind.NOTHING
            index -= 1
        return Kind.NOTHING

    def _introduced(self, at: int) -> bool:
        return self._alone or self._relation(at) is not Kind.NOTHING

    def _weakly_introduced(self, at: int) -> bool:
        """Also by words that say little: at, over, around."""
        return self._introduced(at) or Kind.AT in (self._at(at - 1).kind, self._at(at - 2).kind)

    def _ends(self, end: int) -> bool:
        """Whether a clause ends before that token."""
        return end >= len(self._tokens) or bool(self._at(end - 1).stop)

    def _is_modal(self, at: int) -> bool:
        """Whether that is a verb."""
        token = self._at(at)
        return token.word in ("may", "march") and not token.stop and self._at(at + 1).word in VERB_NEXT

    def _is_week(self, at: int) -> bool:
        token = self._at(at)
        return token.kind is Kind.UNIT and token.value == Unit.WEEK


def is_year(token: Token) -> bool:
    """The word for it."""
    return (token.kind is Kind.UNIT and token.value == Unit.YEAR) or token.word == "an"


def is_day(token: Token) -> bool:
    """A number that may be a day's."""
    return bool(token.pair) and token.kind is Kind.NUMBER and 1 <= token.value <= 31
