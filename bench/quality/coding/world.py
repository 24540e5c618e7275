"""What the conversations are about: projects, stories that have answers, and phrases. Read from the TOML files in `data/`.

A story is something that a project may have an answer to, with several values. Each project that has it draws its own, so that
an answer of the wrong project can be told. A set (``dev``, ``held``) has stories of its own; projects and chatter are shared.

    class      decision, how-to, error, where, who, when
    topic      a few words for it
    open       what the person says the first time;  answer: what is finally answered
    values     lists of v, why, how, con (as many as the templates want), or "people", "dates"
    ask        later questions in the answer's own words;  apart: in other words
    recurring  happens several times with another value each time: questions name a date
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, cast

from bench.quality.coding.phrases import Phrases

DATA = Path(__file__).resolve().parent / "data"
COLUMNS = ("v", "why", "how", "con")
PEOPLE, DATES = "people", "dates"


class Part(StrEnum):
    """The sets: one to tune with, and one to which nobody tunes."""

    DEV = "dev"
    HELD = "held"


class Class(StrEnum):
    """What a question asks for."""

    DECISION = "decision"
    HOW_TO = "how-to"
    ERROR = "error"
    WHERE = "where"
    WHEN = "when"
    WHO = "who"
    NOW = "now"
    """What holds now, after it was something else."""
    NEVER = "never"
    """What was never said."""


@dataclass(frozen=True, slots=True)
class Project:
    """A project. ``words``: choices for its slots, such as ``noun`` and ``service``."""

    name: str
    path: str
    repository: str
    client: bool
    """Whether it is a client's, and confidential."""
    language: str
    code: str
    """Name of the programming language."""
    words: Mapping[str, Sequence[str]]
    people: Sequence[str]


@dataclass(frozen=True, slots=True)
class Story:
    id: str
    cls: Class
    topic: str
    open: Sequence[str]
    answer: Sequence[str]
    values: Sequence[Sequence[str]]
    drawn: str
    """``PEOPLE`` or ``DATES`` for values that a project draws, else empty."""
    ask: Sequence[str]
    apart: Sequence[str]
    language: str
    recurring: bool
    code: Sequence[str]
    """Programming languages of the projects that can have it; empty for all."""
    output: str
    """What a tool printed, quoted in the conversation."""


@dataclass(frozen=True, slots=True)
class Task:
    """Ordinary work: ways to ask for it, and answers that fit: each to each, of talk the first to the first and so on."""

    language: str
    open: Sequence[str]
    done: Sequence[str]


@dataclass(frozen=True, slots=True)
class World:
    part: Part
    projects: Sequence[Project]
    stories: Sequence[Story]
    absent: Sequence[tuple[str, str]]
    """Questions about what no conversation answers, with a few words for each."""
    tasks: Sequence[Task]
    talks: Sequence[Task]
    """Talk about things in general, which answers nothing about a project."""
    phrases: Mapping[str, Phrases]
    """By language."""


@cache
def read_world(part: Part) -> World:
    """Raises ValueError or KeyError for a damaged file."""
    projects = [_project(table) for table in _tables(DATA / "projects.toml", "project")]
    stories: list[Story] = []
    absent: list[tuple[str, str]] = []
    for path in sorted((DATA / part).glob("*.toml")):
        stories += [_story(table) for table in _tables(path, "story")]
        absent += [(table["topic"], ask) for table in _tables(path, "absent") for ask in table["ask"]]
    if len({story.id for story in stories}) != len(stories):
        raise ValueError("two stories have the same id")
    return World(part, projects, stories, absent, _tasks("task"), _tasks("talk"), _phrases(part))


def _tasks(name: str) -> list[Task]:
    return [
        Task(table.get("language", "en"), table["open"], table["done"])
        for table in _tables(DATA / "tasks.toml", name)
    ]


def _phrases(part: Part) -> dict[str, Phrases]:
    """Those that all sets have, and the set's own. A file's name begins with its language."""
    found: dict[str, dict[str, list[str]]] = {}
    for path in [
        *sorted((DATA / "phrases").glob("*.toml")),
        *sorted((DATA / part / "phrases").glob("*.toml")),
    ]:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        rules = found.setdefault(path.stem.partition("-")[0], {})
        if double := rules.keys() & document.keys():
            raise ValueError(f"{path.name}: defined twice: {sorted(double)}")
        rules |= cast("dict[str, list[str]]", document)
    return {language: Phrases(rules) for language, rules in found.items()}


def _tables(path: Path, name: str) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", tomllib.loads(path.read_text(encoding="utf-8")).get(name, []))


def _project(table: Mapping[str, Any]) -> Project:
    return Project(
        table["name"],
        table["path"],
        table["repository"],
        table.get("client", False),
        table.get("language", "en"),
        table["code"],
        table["words"],
        table["people"],
    )


def _story(table: Mapping[str, Any]) -> Story:
    values: Any = table["values"]
    drawn = values if isinstance(values, str) else ""
    if drawn not in ("", PEOPLE, DATES):
        raise ValueError(f"{table['id']}: values are a list, people or dates")
    return Story(
        table["id"],
        Class(table["class"]),
        table["topic"],
        table["open"],
        table.get("answer", ()),
        () if drawn else values,
        drawn,
        table["ask"],
        table.get("apart", ()),
        table.get("language", "en"),
        table.get("recurring", False),
        table.get("code", ()),
        table.get("output", ""),
    )
