"""Conversations that the prototype had received from other machines and never took in: `staging/<agent>/transcripts/*.jsonl`.

A line is one message (`text`, `role`, `timestamp`, `sessionId`), a whole drop (`messages`), or a line of Claude Code's own
transcript. The last alone names a working folder, so it alone is kept out with an excluded project. The files are not trusted,
and only read; lines of another form are counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crystal_node.base.agent_names import agent_id
from crystal_node.base.errors import LocalStorage
from crystal_node.base.project import ProjectFinder
from crystal_node.capture.claude_code import ClaudeCode
from crystal_node.capture.context import Context
from crystal_node.capture.exclusions import Exclusions
from crystal_node.capture.imported import IMPORTED_SOURCE
from crystal_node.capture.json_values import as_array, is_object, parse_json
from crystal_node.capture.line_adapter import LinePosition
from crystal_node.capture.messages import TranscriptMessage
from crystal_node.capture.private_words import without_private
from crystal_node.safekeeping.portable.export_format import PieceRecord
from crystal_prototype.messages import message_record, tools_session, understood

_LINE_BYTES_MAX = 64 * 1024 * 1024


@dataclass
class Staged:
    """The transcripts below one `staging` folder. ``person_home`` and ``exclusions``: what its person keeps out.

    After `records`: ``unread`` lines of a form that is not known, ``excluded`` messages of excluded projects.
    """

    folder: Path
    fallback_agent: str = ""
    person_home: Path = field(default_factory=Path.home)
    exclusions: Exclusions | None = None
    unread: int = 0
    excluded: int = 0
    _claude: ClaudeCode = field(init=False)
    _places: ProjectFinder = field(init=False)

    def __post_init__(self) -> None:
        self._claude = ClaudeCode(self.folder, self.folder)
        self._places = ProjectFinder(self.person_home)

    def transcripts(self) -> dict[str, list[Path]]:
        """By the name of the agent's folder; agents without any are left out."""
        found = {
            agent.name: sorted(path for path in (agent / "transcripts").rglob("*.jsonl") if path.is_file())
            for agent in sorted(self.folder.glob("*"))
        }
        return {agent: paths for agent, paths in found.items() if paths}

    def records(self) -> Iterator[PieceRecord]:
        """The messages. Raises LocalStorage if a file cannot be read."""
        for name, paths in self.transcripts().items():
            agent = agent_id(name, self.fallback_agent)
            for path in paths:
                try:
                    with path.open("rb") as file:
                        while line := file.readline(_LINE_BYTES_MAX):
                            yield from self._line(line, agent, path)
                except OSError as error:
                    raise LocalStorage(f"{path} cannot be read: {error.strerror or error}") from error

    def _line(self, line: bytes, agent: str, path: Path) -> Iterator[PieceRecord]:
        if not line.strip():
            return
        try:
            value = parse_json(line)
        except ValueError:
            self.unread += 1
            return
        if is_object(value) and self._claude.recognises(value):
            yield from self._claude_line(line, agent, path)
            return
        messages: list[object] = as_array(value.get("messages", [value])) if is_object(value) else []
        known = [each for each in messages if is_object(each) and understood(each)]
        if not known or len(known) < len(messages):
            self.unread += 1
        for each in known:
            record = message_record(each, agent, path.stem)
            if record is not None:
                yield record

    def _claude_line(self, line: bytes, agent: str, path: Path) -> Iterator[PieceRecord]:
        for said in self._claude.said(line, Context(), LinePosition(path, 0)):
            if not isinstance(said, TranscriptMessage):
                self.unread += said.damaged
                continue
            if self._is_excluded(said):
                self.excluded += 1
                continue
            for number, (role, text) in enumerate(said.texts.items()):
                spoken = without_private(text) if role == "user" else text
                if not spoken.strip():
                    continue
                yield PieceRecord(
                    text=spoken,
                    agent=agent,
                    session=tools_session(said.session or path.stem),
                    role=f"subagent-{role}" if said.subagent else role,
                    message=said.message,
                    part=number,
                    created_at=said.moment,
                    source=IMPORTED_SOURCE,
                )

    def _is_excluded(self, said: TranscriptMessage) -> bool:
        repository = self._places.of(said.cwd).repository
        return self.exclusions is not None and self.exclusions.hides(said.cwd, repository, said.moment)


def staging_of(path: Path) -> Path | None:
    """The staging folder that a path names, or that is in a home or a copy of one; None if there is none."""
    for folder in (path, path / "staging"):
        if folder.name == "staging" and folder.is_dir():
            return folder
    return None


def as_counts(folder: Path) -> dict[str, int]:
    """Transcripts by agent."""
    return {agent: len(paths) for agent, paths in Staged(folder).transcripts().items()}
