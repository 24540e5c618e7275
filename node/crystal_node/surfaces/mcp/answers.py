"""Structured answers of the tools that give no recorded text. Answers only ever gain fields.

Tools that give recorded text have none: clients differ in whether a model is handed the text, the structure, or both, and
only a text without a structured copy is read once, with its fences, by all of them.
"""

from typing import Annotated

from msgspec import Meta, Struct


class ProblemAnswer(Struct, frozen=True, kw_only=True):
    """What is stuck, and what the person can do about it."""

    text: str
    remedy: str


class StatusAnswer(Struct, frozen=True, kw_only=True):
    """Of ``crystal_status``."""

    device: str
    role: Annotated[str, Meta(description="core or node.")]
    texts: int
    memories: int
    forgotten: int
    waiting: Annotated[int, Meta(description="Operations that other devices do not have yet.")]
    synced_at: Annotated[str | None, Meta(description="When this device last took over what others did.")]
    recording: bool
    private: bool
    background: Annotated[bool, Meta(description="Whether the background service runs.")]
    model: Annotated[str | None, Meta(description="What made the vectors; null: search goes by words alone.")]
    problems: list[ProblemAnswer]


class SourceAddAnswer(Struct, frozen=True, kw_only=True):
    """Of ``crystal_sources_add``. ``confirm``: the word that the second call sends, "" where none is needed any more."""

    added: bool
    name: str
    path: Annotated[str, Meta(description="What is read: links on the way to it are resolved.")]
    include: list[str]
    exclude: list[str]
    changed: Annotated[bool, Meta(description="It was a source already, and has other patterns now.")]
    confirm: str
