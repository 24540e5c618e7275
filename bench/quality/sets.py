"""The sets: passages, and queries with what is right for them. Read from `sets/`, or made by the rules of `world.toml`.

A line of a `.jsonl` file is a passage (`id`, `text`; `age` in days, else one follows from the id), which may bring its
`queries`, `cross` (asked in another language than its own) and `typos`; or a query by itself (`query`) with `relevant`, ids
with or without a grade, or `holds`, words that the right passages hold. `since`, `until`: ages in days. `about` names a part.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, cast

SETS = Path(__file__).resolve().parent / "sets"
DAY = 86_400_000
NOW = 1_800_000_000_000
AGE_DAYS_MAX = 730
HAND_WRITTEN = ("paraphrases", "languages", "identifiers", "near_duplicates", "time")
MANY = ("documents/", "world/")
"""Sets of which most passages are wanted by no query."""
SMALL_SHARE = 5
_TRIES_MAX = 200


@dataclass(frozen=True, slots=True)
class Passage:
    id: str
    text: str
    age: float
    """Days."""

    @property
    def created_at(self) -> int:
        return NOW - round(self.age * DAY)


@dataclass(frozen=True, slots=True)
class Query:
    """``relevant``: grades by passage id. ``since_ms`` and ``until_ms`` as of ``Scope``."""

    set: str
    text: str
    relevant: Mapping[str, float]
    since_ms: int | None = None
    until_ms: int | None = None

    def admits(self, created_at: int) -> bool:
        return (self.since_ms is None or created_at >= self.since_ms) and (
            self.until_ms is None or created_at <= self.until_ms
        )


@dataclass(frozen=True, slots=True)
class Sets:
    """Everything that is searched, and everything that is asked."""

    passages: list[Passage] = field(default_factory=list[Passage])
    queries: list[Query] = field(default_factory=list[Query])

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(query.set for query in self.queries))


def read_sets(*, small: bool = False) -> Sets:
    """All sets. ``small``: with fewer passages that no query wants, for tests.

    Raises ValueError for a query whose passages are not there.
    """
    passages: list[Passage] = []
    queries: list[Query] = []
    for name in HAND_WRITTEN:
        _read(name, [SETS / f"{name}.jsonl"], passages, queries)
    _read("documents", [SETS / "documents.passages.jsonl", SETS / "documents.jsonl"], passages, queries)
    _made(passages, queries)
    if small:
        wanted = {one for query in queries for one in query.relevant}
        passages = [
            one
            for number, one in enumerate(passages)
            if one.id in wanted or not one.id.startswith(MANY) or number % SMALL_SHARE == 0
        ]
    ids = {passage.id for passage in passages}
    if len(ids) != len(passages) or len({passage.text for passage in passages}) != len(passages):
        raise ValueError("two passages have the same id or the same text")
    for query in queries:
        if not query.relevant or not set(query.relevant) <= ids:
            raise ValueError(f"nothing is right for {query.text!r}")
    return Sets(passages, queries)


def _read(name: str, paths: list[Path], passages: list[Passage], queries: list[Query]) -> None:
    own: list[Passage] = []
    lines: list[dict[str, Any]] = [
        json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").strip().split("\n")
    ]
    for line in lines:
        if "id" not in line:
            continue
        passage = Passage(f"{name}/{line['id']}", line["text"], float(line.get("age", _age(line["id"]))))
        own.append(passage)
        wants = {passage.id: 1.0}
        queries += [Query(_part(name, line), text, wants) for text in line.get("queries", [])]
        queries += [Query("cross-language", text, wants) for text in line.get("cross", [])]
        queries += [Query("typos", text, wants) for text in line.get("typos", [])]
    for line in lines:
        if "query" in line:
            queries.append(_asked(name, line, own))
    passages += own


def _asked(name: str, line: dict[str, Any], own: list[Passage]) -> Query:
    grades = cast(
        "Mapping[str, float]",
        line["relevant"]
        if isinstance(line.get("relevant"), dict)
        else dict.fromkeys(line.get("relevant", []), 1.0),
    )
    wanted = {f"{name}/{one}": grade for one, grade in grades.items()}
    for words in line.get("holds", []):
        wanted |= {passage.id: 1.0 for passage in own if words in " ".join(passage.text.split())}
    since, until = (None if line.get(edge) is None else NOW - line[edge] * DAY for edge in ("since", "until"))
    return Query(_part(name, line), line["query"], wanted, since, until)


def _part(name: str, line: Mapping[str, Any]) -> str:
    return f"{name}: {line['about']}" if "about" in line else name.replace("_", " ")


def _age(name: str) -> float:
    """Most of a memory is old; some of it is of these days."""
    share = int.from_bytes(sha256(name.encode()).digest()[:4], "big") / 2**32
    return float(AGE_DAYS_MAX * share**1.5)


def _made(passages: list[Passage], queries: list[Query]) -> None:
    world = tomllib.loads((SETS / "world.toml").read_text(encoding="utf-8"))
    random = Random(7)
    templates = cast("list[dict[str, str]]", world["templates"])
    asking = [template for template in templates if "question" in template]
    drawn = _drawn(random, world["words"])
    texts: dict[str, str] = {}
    asked: dict[str, str] = {}
    for number in range(world["notes"]):
        wanted = number < world["questions"]
        template = asking[number % len(asking)] if wanted else random.choice(templates)
        for _ in range(_TRIES_MAX):
            words = next(drawn)
            question = template.get("question", "").format_map(words)
            text = template["text"].format_map(words)
            if question not in asked.values() and text not in texts.values():
                break
        else:
            raise ValueError("the world has too few words for so many notes")
        note = f"world/{number}"
        texts[note] = text
        if wanted:
            asked[note] = question
    passages += [Passage(note, text, _age(note)) for note, text in texts.items()]
    queries += [Query("names and numbers", question, {note: 1.0}) for note, question in asked.items()]


def _drawn(random: Random, lists: Mapping[str, list[str]]) -> Iterator[dict[str, str]]:
    while True:
        words = {name: random.choice(choices) for name, choices in lists.items()}
        words["person2"] = random.choice([one for one in lists["person"] if one != words["person"]])
        words |= {
            "amount": str(random.randint(12, 980)),
            "port": str(random.randint(1024, 60999)),
            "port2": str(random.randint(1024, 60999)),
            "small": str(random.randint(2, 9)),
            "small2": str(random.randint(0, 9)),
            "code": f"{random.randint(0, 9999):04d}#",
            "flight": f"{random.choice(['KL', 'LX', 'AZ', 'SK'])}{random.randint(100, 1999)}",
        }
        yield words
