"""Extraction of a JSON object from a model's answer. Each reader validates the object within its own limits."""

import json
from typing import cast

_STARTS_MAX = 20


class Unreadable(Exception):
    """The answer does not have the requested form."""


def first_object(answer: str) -> dict[str, object]:
    """Return the first JSON object in an answer, ignoring the text around it. Raises Unreadable."""
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
