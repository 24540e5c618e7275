"""What the public sets have in common: texts at their places, and questions with the texts that answer them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "CRYSTAL_PUBLIC_SETS"
"""Names the folder that holds the sets, one folder each."""

Place = tuple[str, int]
"""A session (or a document's path), and a moment in it: of every text another one."""


@dataclass(frozen=True, slots=True)
class Text:
    """A message, or a document of one piece if ``path`` is given. ``created_at`` is in milliseconds since 1970."""

    text: str
    repository: str
    session: str
    message: str
    role: str
    created_at: int
    path: str = ""

    @property
    def place(self) -> Place:
        return self.path or self.session, self.created_at


@dataclass(frozen=True, slots=True)
class Question:
    """``evidence``: places of the texts that answer it; none for a question that nothing answers.

    ``sides``: two groups of places, if the question is about both: an older and a newer state, or two statements that
    contradict each other. ``repository`` is the project that it is asked in, "" for everywhere.
    """

    kind: str
    text: str
    repository: str
    asked_at: int
    evidence: frozenset[Place]
    sides: tuple[frozenset[Place], frozenset[Place]] | None = None


@dataclass(frozen=True, slots=True)
class Corpus:
    """``parts``: the questions to tune by ("dev") and those held out ("test")."""

    name: str
    texts: list[Text]
    parts: Mapping[str, list[Question]] = field(default_factory=dict[str, list[Question]])


def public_folder(option: str = "") -> Path | None:
    """The folder with the public sets, by the option or the environment; None if there is none."""
    name = option or os.environ.get(VARIABLE, "")
    return Path(name) if name and Path(name).is_dir() else None
