"""A conversation's summary as Markdown: ``memory/sessions/<date>-<session>.md``.

Without a language model it is an extract and says so: when, where, by whom, how much, the first request, the last answer, and
the files and commands mentioned, all copied or counted. A model's summary comes before that, under a heading of its own. Text
of the conversation is never taken for markup (``markdown``).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import TypeVar

from crystal_core.weaver.prose import paragraphs
from crystal_mirror.types import ACTION
from crystal_node.base.wording import counted, one_line
from crystal_node.derive.artefacts.conversation import ConversationPiece
from crystal_node.derive.artefacts.dates import span
from crystal_node.derive.artefacts.markdown import block, plain

NAMES_MAX = 40
LINE_CHARS_MAX = 200

_ENDINGS = (
    "c cc cfg conf cpp css csv go h hpp html ini ipynb java js json jsonl jsx kt lock log md mjs php pl plist proto"
    " ps1 py pyi rb rs rst sh sql svg swift toml ts tsx txt vue xml yaml yml zig"
)
_FILE = re.compile(
    r"(?<![\w/\\.@:~+-])(?:~/|\.{1,2}/|/)?(?:[\w.+@-]{1,80}/){0,12}[\w.+@-]{1,80}\.(?:"
    + "|".join(_ENDINGS.split())
    + r")(?![\w/-])"
)
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)[ \t]*([A-Za-z0-9_+-]{0,20})[^\n]{0,200}$")
_SHELLS = frozenset({"bash", "fish", "powershell", "sh", "shell", "zsh"})
"""Code blocks of these hold commands only. In others, and outside, a command follows ``$``."""


class Mentions:
    """Files and commands mentioned in texts, in order of first mention, with counts; the first ``NAMES_MAX`` of each."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.commands: dict[str, int] = {}

    def take(self, text: str) -> None:
        for found in _FILE.finditer(text):
            _count(self.files, found[0])
        inside: str | None = None
        for line in text.splitlines():
            fence = _FENCE.match(line)
            if fence is not None:
                inside = fence[1].lower() if inside is None else None
                continue
            stripped = line.strip()
            if stripped.startswith("$ "):
                _count(self.commands, stripped[2:].strip())
            elif inside in _SHELLS and stripped and not stripped.startswith("#"):
                _count(self.commands, stripped)


def _count(names: dict[str, int], name: str) -> None:
    if not name or len(name) > LINE_CHARS_MAX:
        return
    if name in names or len(names) < NAMES_MAX:
        names[name] = names.get(name, 0) + 1


TITLE_CHARS = 80
REQUEST_CHARS = 1000
ANSWER_CHARS = 2000
DIGEST_BYTES = 6000
PLACES_MAX = 10
DEVICES_MAX = 20

_Kept = TypeVar("_Kept")
_ROLES = (("user", "request"), ("assistant", "answer"), ("thinking", "thought"), (ACTION, "tool call"))


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """A language model's summary of a conversation; ``failure`` says why there is none."""

    text: str = ""
    model: str = ""
    failure: str = ""


class Extract:
    """What the summary shows of a conversation, collected piece by piece, of bounded size."""

    def __init__(self) -> None:
        self.pieces = 0
        self.characters = 0
        self.first_at = 0
        self.last_at = 0
        self.roles: dict[str, int] = {}
        self.places: dict[tuple[str, str], None] = {}
        self.sources: dict[str, None] = {}
        self.devices: dict[bytes, None] = {}
        self.named = Mentions()
        self.request = ""
        self.answer = ""
        self._answered: str | None = None

    def take(self, piece: ConversationPiece) -> None:
        self.pieces += 1
        self.characters += len(piece.text)
        if piece.created_at > 0:
            self.first_at = min(self.first_at or piece.created_at, piece.created_at)
            self.last_at = max(self.last_at, piece.created_at)
        role = piece.role if piece.role in dict(_ROLES) else "other"
        if piece.part == 0 or role == "other":
            self.roles[role] = self.roles.get(role, 0) + 1
        _note(self.places, (piece.project, piece.repository), PLACES_MAX)
        _note(self.sources, piece.source, PLACES_MAX)
        _note(self.devices, piece.device, DEVICES_MAX)
        self.named.take(piece.text)
        if piece.role == "user" and not self.request:
            self.request = piece.text[:REQUEST_CHARS]
        if piece.role == "assistant" and (not piece.message or piece.message != self._answered):
            self._answered, self.answer = piece.message, piece.text[:ANSWER_CHARS]


def extract(pieces: Iterable[ConversationPiece]) -> Extract:
    found = Extract()
    for piece in pieces:
        found.take(piece)
    return found


def summary(
    agent: str,
    session: str,
    found: Extract,
    *,
    zone: tzinfo,
    names: Mapping[bytes, str],
    digest: ModelSummary | None = None,
) -> bytes:
    """The file without its seal: a pure function of its arguments. ``names``: of devices."""
    lines = [f"# {plain(found.request, TITLE_CHARS) or 'A conversation without a request'}", ""]
    lines += _source_of(digest)
    lines += [f"- When: {span(found.first_at, found.last_at, zone)} ({zone})"]
    lines += [
        f"- Agent: {plain(agent, 100) or 'unnamed'}",
        f"- Session: {plain(session, 100) or 'unnamed'}",
    ]
    lines += [f"- Tool: {plain(', '.join(found.sources), 200) or 'unknown'}"]
    lines += [f"- Where: {_place(*place)}" for place in found.places if any(place)]
    lines += [f"- Device: {_device(device, names)}" for device in found.devices]
    lines += [f"- Said: {_said(found)}", ""]
    if digest is not None and digest.text:
        lines += [
            f"## What {plain(digest.model, 60)} made of it",
            "",
            *_quoted(digest.text),
            "",
        ]
    lines += ["## First request", "", *(block(found.request) or ["None was recorded."]), ""]
    lines += ["## Last answer", "", *(block(found.answer) or ["None was recorded."]), ""]
    if found.named.files:
        lines += ["## Files that were named", ""]
        lines += [f"    {one_line(name, 200)}" for name in found.named.files] + [""]
    if found.named.commands:
        lines += ["## Commands that were named", ""]
        lines += [f"    {one_line(name, 200)}" for name in found.named.commands] + [""]
    return ("\n".join(lines) + "\n").encode()


def _source_of(digest: ModelSummary | None) -> list[str]:
    if digest is not None and digest.text:
        return []
    if digest is not None and digest.failure:
        return [
            f"Extract: a language model was asked and gave nothing ({plain(digest.failure, 120)}).",
            "",
        ]
    return ["Extract: copied and counted, without a language model.", ""]


def _said(found: Extract) -> str:
    parts = [counted(found.roles[role], word) for role, word in _ROLES if role in found.roles]
    if "other" in found.roles:
        parts.append(f"{found.roles['other']:,} of other voices")
    return f"{', '.join(parts) or 'nothing'}; {counted(found.characters, 'character')}"


def _place(project: str, repository: str) -> str:
    where = plain(project, 200) or "a folder that nobody noted"
    return f"{where} ({plain(repository, 200)})" if repository else where


def _device(device: bytes, names: Mapping[bytes, str]) -> str:
    return f"{plain(names.get(device, ''), 60) or 'unknown'} ({device.hex()[:8]})"


def _quoted(text: str) -> list[str]:
    """A model's prose as a quotation in which nothing is loaded, run or hidden."""
    return [f"> {line}".rstrip() for line in paragraphs(text, DIGEST_BYTES).splitlines()]


def _note(kept: dict[_Kept, None], one: _Kept, most: int) -> None:
    if one in kept or len(kept) < most:
        kept[one] = None
