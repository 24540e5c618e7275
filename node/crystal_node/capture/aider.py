"""The adapter for Aider's conversations, in the file ``.aider.chat.history.md`` of each project.

Aider has no list of its projects. The file is looked for in the folders that the memory has a conversation from: one with
another tool, or this file's, once ``crystal capture FOLDER`` has read it.

The file is Markdown for people, to which Aider appends::

    # aider chat started at 2026-11-28 15:23:00

    > Model: gpt-7 with diff edit format··          what Aider says: each line begins so, and ends with two spaces
    #### Which port does the gull counter use?··    what the person typed: the same
                                                    what the model said: as it was said, its thoughts in an element
    > Tokens: 92 sent, 81 received.··

So a line of the model's that begins with ``#### `` or ``> `` *and* ends with two spaces is taken for another's: nothing in
the file tells them apart. Commands (``/add``, ``!ls``) are not taken. Messages have no times: they get that of the chat's
beginning.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from crystal_node.capture.adapter import FoundTranscript
from crystal_node.capture.documents import DocumentContent, DocumentReader, WholeFileAdapter
from crystal_node.capture.folders import is_plain_file
from crystal_node.capture.messages import (
    SkippedRecord,
    TranscriptMessage,
    derived_id,
    joined,
    moment_of,
    plain,
)

HISTORY = ".aider.chat.history.md"
_STARTED = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_BREAK = "  "
_PERSON, _TOOL = "#### ", "> "
_VERSION = re.compile(r"> Aider v\d")
"""The first line behind the command line by which Aider was started, which is written as it is."""
_MODEL = re.compile(r"> (?:Main m|M)odel: (.+?)(?: with .*)? {2}")
_THOUGHTS = re.compile(r"<(thinking-content-[0-9a-f]{32})>(.*?)</\1>", re.DOTALL)
_COMMANDS = ("/", "!")
_BLANK = "<blank>"
"""In place of a prompt without words."""


class Aider(WholeFileAdapter):
    """Aider's conversations. ``root`` is its folder (``~/.aider``), ``home`` the person's home folder."""

    name = "aider"
    title = "Aider"
    repeats = False
    projects: Callable[[], Iterable[Path]] = staticmethod(tuple[Path])

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(home)
        self.root = root

    @property
    def folders(self) -> list[Path]:
        return []  # a project is too large to be watched: its file is looked at when all are

    def discover(self) -> Iterator[FoundTranscript]:
        for folder in sorted(set(self.projects())):
            path = folder / HISTORY
            if is_plain_file(path):
                yield FoundTranscript(path)

    def concerns(self, path: str) -> bool:
        return Path(path).name == HISTORY

    def recognises(self, record: dict[str, object]) -> bool:
        beginning = record.get("beginning")
        return isinstance(beginning, str) and _STARTED.match(beginning.lstrip()) is not None

    def content(self, path: Path, reader: DocumentReader) -> DocumentContent:
        text = reader.data.decode("utf-8", "replace").replace("\r\n", "\n")
        outcomes = [one for chat in _chats(text) for one in chat.outcomes(str(path.parent))]
        # An answer is appended at once, with two line ends behind it.
        whole = text.endswith(("\n\n", f"{_BREAK}\n"))
        return DocumentContent(outcomes, whole=whole, written=reader.moment)


@dataclass
class _Chat:
    """What was said since Aider was started once. ``turns``: role ("" of Aider itself), lines and model."""

    started: str
    turns: list[tuple[str, list[str], str]] = field(default_factory=list[tuple[str, list[str], str]])

    def add(self, role: str, line: str, model: str) -> None:
        """Adds a line to the last turn or to a new one. An empty line ends what a person typed, and begins no turn."""
        last = self.turns[-1][0] if self.turns else ""
        if role == "assistant" and last != role and not line.strip():
            role = ""
        if role and role == last:
            self.turns[-1][1].append(line)
        elif role or last:
            self.turns.append((role, [line], model))

    def outcomes(self, cwd: str) -> Iterator[TranscriptMessage | SkippedRecord]:
        spoken = [(role, plain("\n".join(lines)), model) for role, lines, model in self.turns if role]
        asked = next((text for role, text, _ in spoken if role == "user" and text), "")
        session = derived_id("aider", self.started, asked)
        begun = moment_of(_local(self.started))
        for number, (role, text, model) in enumerate(spoken):
            if role == "user" and (text == _BLANK or text.startswith(_COMMANDS)):
                yield SkippedRecord("command")
                continue
            thoughts = [("thinking", plain(each[2])) for each in _THOUGHTS.finditer(text)]
            texts = joined([*thoughts, (role, plain(_THOUGHTS.sub("", text)))])
            if texts:
                yield TranscriptMessage(
                    message=derived_id(session, str(number)),
                    session=session,
                    texts=texts,
                    moment=begun + number if begun else 0,
                    dated=False,
                    begun=begun,
                    cwd=cwd,
                    model=model,
                )


def _chats(text: str) -> list[_Chat]:
    chats: list[_Chat] = []
    model, before, begins = "", "", False
    for line in text.split("\n"):
        started = _STARTED.fullmatch(line) if not before else None
        before = line
        if started is not None:
            chats.append(_Chat(started[1]))
            begins = True
        elif not chats:
            continue
        elif begins or (line.startswith(_TOOL) and line.endswith(_BREAK)):
            begins = begins and _VERSION.match(line) is None
            if (named := _MODEL.fullmatch(line)) is not None:
                model = named[1]
            chats[-1].add("", "", "")
        elif line.startswith(_PERSON) and line.endswith(_BREAK):
            chats[-1].add("user", line[len(_PERSON) : -len(_BREAK)], "")
        else:
            chats[-1].add("assistant", line, model)
    return chats


def _local(started: str) -> str:
    try:
        return datetime.fromisoformat(started).astimezone().isoformat()
    except (ValueError, OverflowError, OSError):
        return ""
