"""Room for texts in an answer that keeps to a number of tokens: the most useful ones come first and get most."""

from collections.abc import Sequence
from dataclasses import dataclass

TOKENS_MAX = 20_000
"""Of one answer, at most."""


@dataclass(frozen=True, slots=True)
class Need:
    """Tokens of one text with all that belongs to it: below ``least`` it is better left out, beyond ``most`` it has no use."""

    least: int
    most: int


def allotted(needs: Sequence[Need], room: int) -> list[int]:
    """The tokens of as many of the first texts as there is room for, in order.

    Each gets its least; of what is left the first gets up to half, the next up to half of the rest, and so on; what nobody
    takes goes to the first that can use it.
    """
    given: list[int] = []
    for need in needs:
        if need.least > room:
            break
        given.append(need.least)
        room -= need.least
    for share in (2, 1):
        for number, need in enumerate(needs[: len(given)]):
            more = min(need.most - given[number], room // share)
            given[number] += more
            room -= more
    return given
