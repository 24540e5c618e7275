"""Finding a JSON object in what a model answered. What may be taken of it each reader says, within limits of its own."""

import json
from typing import cast

_STARTS_MAX = 20


class Unreadable(Exception):
    """The answer is not what was asked for."""


def first_object(answer: str) -> dict[str, object]:
    """The first JSON object in a text; models like to talk around it. Raises Unreadable."""
    decoder = json.JSONDecoder(strict=False)
    at = answer.find("{")
    for _ in range(_STARTS_MAX):
        if at < 0:
            break
        try:
            found, _end = decoder.raw_decode(answer, at)
        except (ValueError, RecursionError):
            at = answer.find("{", at + 1)
            continue
        if isinstance(found, dict):
            return cast("dict[str, object]", found)
        break
    raise Unreadable("there is no JSON object in the answer")
