"""Explanations of a search and its scores, in words for people. Programs read the same in the documents' fields.

Ranks in documents count from 0, for people from 1.
"""

from crystal_node.search.finding.documents import ResultDocument

_Value = str | int | float | list[str]
_NAMES = {
    "fallen_back": "searched without a language model",
    "provider": "language model",
    "host": "asked at",
    "expansions": "also searched for",
    "expansion_skipped": "searched in no other words",
    "candidates": "texts to judge",
    "judged": "judged",
    "from_cache": "judged in an earlier search",
    "requests": "requests",
    "tokens_in": "tokens sent",
    "tokens_out": "tokens received",
    "seconds": "seconds it took",
    "dollars_estimated": "dollars, about",
    "failure": "what failed",
}


def why(result: ResultDocument) -> str:
    """Where a result's score comes from."""
    parts = result.explain or {}
    said = [f"score {result.score:.4f}", f"{result.relevance:.0%} likely to answer"]
    words, meaning = _number(parts, "keyword_rank"), _number(parts, "vector_rank")
    if words is None:
        said.append("not found by its words")
    else:
        strength, weight = _number(parts, "keyword_strength") or 0, _number(parts, "keyword_weight") or 0
        said.append(f"{_place(words)} by words ({strength:.0%} of the best match, weight {weight:.1f})")
    if meaning is None:
        said.append("not found by its meaning")
    else:
        said.append(f"{_place(meaning)} by meaning (likeness {_number(parts, 'similarity') or 0:.2f})")
    if (recency := _number(parts, "recency")) is not None:
        said.append(f"times {recency:.2f} for its age")
    if (opinion := _number(parts, "judge_score")) is not None:
        said.append(
            f"{_place(_number(parts, 'judge_rank') or 0)} before the judge gave it {opinion:.2f} of 1"
        )
    if (before := _number(parts, "deep_rank")) is not None:
        judged = _number(parts, "judgement")
        said.append(
            f"{_place(before - 1)} before the model"
            + (", which did not judge it" if judged is None else f" gave it {judged:.0f} of 10")
        )
    return ", ".join(said)


def how(explain: dict[str, _Value] | None) -> list[str]:
    """A language model's part in the search; empty where none was to be asked."""
    return [
        f"{_NAMES.get(name, name.replace('_', ' '))}: {'; '.join(value) if isinstance(value, list) else value}"
        for name, value in (explain or {}).items()
        if value not in ("", [])
    ]


def _number(parts: dict[str, float | int | str | None], name: str) -> float | None:
    value = parts.get(name)
    return value if isinstance(value, int | float) else None


def _place(rank: float) -> str:
    """ "1st" for 0."""
    number = int(rank) + 1
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
