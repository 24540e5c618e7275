"""Parsing of a model's answers in deep search: three short texts to search for, and an integer for each text shown.

An answer that scores a text which was not shown, or that has another form, is rejected as a whole.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import cast

from crystal_core.deep.fusion import JUDGEMENT_MAX
from crystal_core.llm.answers import Unreadable, first_object

LEXICAL_CHARS_MAX = 200
REPHRASED_CHARS_MAX = 400
HYPOTHETICAL_CHARS_MAX = 800
_NUMBER = re.compile(r"[1-9][0-9]{0,3}")


@dataclass(frozen=True, slots=True)
class Expansions:
    """The query in other words; "" where the model gave none."""

    lexical: str = ""
    rephrased: str = ""
    hypothetical: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(text for text in (self.lexical, self.rephrased, self.hypothetical) if text)


def read_expansions(answer: str) -> Expansions:
    """Raises Unreadable."""
    document = first_object(answer)
    found = Expansions(
        _line(document.get("lexical"), LEXICAL_CHARS_MAX),
        _line(document.get("rephrased"), REPHRASED_CHARS_MAX),
        _line(document.get("hypothetical"), HYPOTHETICAL_CHARS_MAX),
    )
    if not found.texts:
        raise Unreadable("the answer says the query in no other words")
    return found


def read_judgements(answer: str, shown: int) -> list[int]:
    """Return a score for each of the ``shown`` texts, in their order. Raises Unreadable."""
    scores = first_object(answer).get("scores")
    if not isinstance(scores, dict):
        raise Unreadable("there are no scores in the answer")
    found: dict[int, int] = {}
    for number, score in cast("dict[str, object]", scores).items():
        if not _NUMBER.fullmatch(number) or type(score) is not int or not 0 <= score <= JUDGEMENT_MAX:
            raise Unreadable("a score is not of the form that was asked for")
        found[int(number)] = score
    if sorted(found) != list(range(1, shown + 1)):
        raise Unreadable("the scores are not those of the texts that were shown")
    return [found[number] for number in range(1, shown + 1)]


def _line(value: object, chars_max: int) -> str:
    """Return one line without control characters, because explanations print it to a terminal."""
    if isinstance(value, list):
        value = " ".join(word for word in cast("list[object]", value) if isinstance(word, str))
    if not isinstance(value, str):
        return ""
    plain = "".join(
        " " if unicodedata.category(char).startswith("C") else char for char in value[: chars_max * 4]
    )
    return " ".join(plain.split())[:chars_max].strip()
