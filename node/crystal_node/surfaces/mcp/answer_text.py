"""Answers as text that a model reads, with recorded text fenced off as the data that it is.

A fence bears a random number, another one in each answer: a recorded text cannot know it, so it cannot end its fence and speak
in Crystal's name. Outside the fences are Crystal's own words; names in them (projects, paths, titles) come from anywhere, too,
and are quoted on one line.
"""

import secrets
from collections.abc import Iterable

from crystal_node.base.wording import counted, one_line
from crystal_node.surfaces.mcp.answers import (
    NOTICE,
    FoundText,
    MemoriesAnswer,
    SearchAnswer,
    ShowAnswer,
    StatusAnswer,
)

_NAME_CHARS = 200


class Fence:
    """The fence of one answer."""

    def __init__(self) -> None:
        self._number = secrets.token_hex(6)

    @property
    def explanation(self) -> str:
        """The sentence before the first fence."""
        return f"{NOTICE} Each text stands between two lines with the number {self._number}."

    def around(self, text: str) -> str:
        """A recorded text between its fences."""
        return f"<recorded-text {self._number}>\n{visible(text)}\n</recorded-text {self._number}>"


def visible(text: str) -> str:
    """Text without invisible characters: controls, escapes and direction overrides. Line breaks and tabs stay."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)


def name(text: str) -> str:
    """A name from anywhere, quoted, on one line."""
    return f'"{one_line(text, _NAME_CHARS)}"'


def search_text(answer: SearchAnswer) -> str:
    """The answer of a search."""
    if not answer.results:
        note = f" Note: {answer.note}." if answer.note else ""
        return f"Nothing was found.{note} Other words may help; a filter may be too narrow."
    fence = Fence()
    lines = [fence.explanation]
    if answer.note:
        lines.append(f"Note: {answer.note}.")
    for number, found in enumerate(answer.results, 1):
        lines += ["", f"{number}. {_about(found)}", fence.around(found.text)]
        if not found.whole:
            lines.append(f"(A part of it: crystal_show with id {found.id[:16]} gives the whole.)")
    if answer.next_offset is not None:
        lines += ["", f"There is more: call again with offset {answer.next_offset}."]
    return "\n".join(lines)


def show_text(answer: ShowAnswer) -> str:
    """A text with its surroundings."""
    fence = Fence()
    whence = [
        answer.kind.value if answer.memory is None else f"memory ({name(answer.memory)})",
        *_origin(answer),
    ]
    lines = [fence.explanation, "", " | ".join(whence)]
    for piece in answer.pieces:
        mark = "the one asked for, " if piece.asked and len(answer.pieces) > 1 else ""
        lines += ["", f"{mark}id {piece.id[:16]} | role {name(piece.role)} | {piece.created_at or 'undated'}"]
        lines.append(fence.around(piece.text))
        if not piece.whole:
            lines.append("(Cut: give a larger number of chars for more of it.)")
    return "\n".join(lines)


def status_text(answer: StatusAnswer) -> str:
    """The status of the memory."""
    lead = "the Core" if answer.role == "core" else "a Node"
    texts, memories = counted(answer.texts, "text"), counted(answer.memories, "memory", "memories")
    said = f"Conversations are {'' if answer.recording else 'not '}recorded."
    lines = [
        f"{name(answer.device)} is {lead} of its vault, with {texts} and {memories}.",
        f"Last synced: {answer.synced_at or 'never'}. Waiting to be shared: {answer.waiting}.",
        "Private mode is on: nothing is recorded." if answer.private else said,
    ]
    lines += [f"Problem: {one_line(each.text, 500)} {one_line(each.remedy, 500)}" for each in answer.problems]
    return "\n".join(lines)


def memories_text(answer: MemoriesAnswer) -> str:
    """A list of memories."""
    if not answer.memories:
        return "There are no memories of that kind."
    fence = Fence()
    lines = [f"{counted(answer.total, 'memory', 'memories')} in all. {fence.explanation}"]
    for each in answer.memories:
        category = name(each.category)
        about = [f"id {each.id[:16]}", category, each.status.value, f"confidence {each.confidence}"]
        lines += ["", " | ".join([*about, each.created_at or "undated"]), fence.around(each.text)]
    if answer.next_offset is not None:
        lines += ["", f"There is more: call again with offset {answer.next_offset}."]
    return "\n".join(lines)


def _about(found: FoundText) -> str:
    what = f"memory ({name(found.memory)})" if found.memory else found.kind.value
    parts = [f"id {found.id[:16]}", what, *_origin(found)]
    if found.created_at:
        parts.append(found.created_at)
    parts.append(found.freshness)
    if not found.shared:
        parts.append("not shared with other devices yet")
    return " | ".join(parts)


def _origin(found: FoundText | ShowAnswer) -> Iterable[str]:
    if isinstance(found, FoundText) and found.role:
        yield f"role {name(found.role)}"
    if found.agent:
        yield f"agent {name(found.agent)}"
    if found.project or found.repository:
        yield f"project {name(found.project or found.repository)}"
    if found.source:
        yield f"source {name(found.source)}"
    if found.path:
        yield f"path {name(found.path)}"
    if found.title:
        yield f"title {name(found.title)}"
