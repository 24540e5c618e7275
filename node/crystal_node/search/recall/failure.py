"""What is recalled when a tool call fails: what went well after the same failure before.

The same failure is one of the same tool, in this project, of another session, whose error has most of the words of this one.
What went well after it is the next call of the same command that succeeded, with the files that were changed in between and
what the agent then said. Where nothing of the kind is known, nothing is said: an agent reads the error itself.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crystal_core.database import Database
from crystal_core.schema import HIDDEN
from crystal_core.search.filters import CONVERSATION
from crystal_core.search.turns import ASSISTANT
from crystal_mirror.types import ACTION_ROLES
from crystal_node.base.wording import one_line
from crystal_node.search.finding.documents import Depth, ResultDocument, ResultKind, SearchRequest
from crystal_node.search.places import place_to_name
from crystal_node.search.recall.text import Record, about, day_of, plain
from crystal_node.search.recall.words import telling_words

LOOKED_AT = 10
"""Earlier calls that are compared."""
BEHIND_MAX = 60
"""Pieces of a conversation behind a failure among which its solution is looked for."""
CHARS_MAX = 600
"""Of an error, from its beginning and from its end."""
WORDS_MIN = 3
SAME_MIN = 0.6
"""Share of the words of the shorter of two errors that the other has, from which on they are the same."""
FILES_MAX = 3
_EXIT_CODE = re.compile(r"\A(?:Error: )?Exit code \d+\n?")
_FAILED = " failed"
_BEHIND = f"""
SELECT c.id, c.text, c.rowid, s.role FROM (
    SELECT * FROM (SELECT chunk, role, created_at, 0 AS pending, rowid AS number
        FROM occurrences INDEXED BY occurrences_by_session
        WHERE session = ?1 AND agent = ?2 AND created_at > ?3 ORDER BY created_at, rowid LIMIT {BEHIND_MAX})
    UNION ALL
    SELECT * FROM (SELECT chunk, role, created_at, 1, rowid FROM provisional_places INDEXED BY provisional_places_by_session
        WHERE session = ?1 AND agent = ?2 AND created_at > ?3 AND category IS NULL AND path IS NULL
        ORDER BY created_at, rowid LIMIT {BEHIND_MAX})
) s JOIN chunks c ON c.rowid = s.chunk WHERE c.forget_hash NOT IN ({HIDDEN})
ORDER BY s.created_at, s.pending, s.number LIMIT {BEHIND_MAX}
"""  # noqa: S608 - constants of ours


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that failed, as its hook tells of it."""

    tool: str
    command: str
    error: str

    @property
    def words(self) -> frozenset[str]:
        """The words of its error that say something."""
        return telling_words(self._error)

    @property
    def _error(self) -> str:
        text = _EXIT_CODE.sub("", self.error)
        return text if len(text) <= 2 * CHARS_MAX else f"{text[:CHARS_MAX]}\n{text[-CHARS_MAX:]}"

    def request(self, projects: Sequence[tuple[str, str]]) -> SearchRequest:
        """The search for earlier calls like it, in these projects."""
        return SearchRequest(
            query=f"{self.command[:CHARS_MAX]}\n{self._error}".strip(),
            limit=LOOKED_AT,
            kind=ResultKind.ACTION,
            depth=Depth.FAST,
            words_only=True,
            projects=list(projects),
        )

    def is_same(self, result: ResultDocument) -> bool:
        """Whether an earlier call failed in the same way."""
        first, _, rest = result.text.partition("\n")
        tool, _, status = first.partition(" ")
        if tool != self.tool or not status.startswith(_FAILED.strip()):
            return False
        before, own = telling_words(rest.partition("\nerror: ")[2]), self.words
        shorter = min(len(before), len(own))
        return shorter >= WORDS_MIN and len(before & own) >= SAME_MIN * shorter


def solution(database: Database, failed: ResultDocument, at: int) -> Record | None:
    """What went well after that failure, which was at that moment (milliseconds); None if it is not known. Belongs in a
    snapshot."""
    tool, command = failed.text.partition(" ")[0], _named(failed.text, "command")
    files: list[str] = []
    solved: tuple[str, int, str] | None = None
    said = ""
    for content, text, chunk, role in database.rows(_BEHIND, (failed.session, failed.agent, at)):
        if solved is not None and role == ASSISTANT:
            said = text
            break
        if role not in ACTION_ROLES or solved is not None or _FAILED in text.partition("\n")[0]:
            continue
        files += [name.rpartition(" +")[0] for name in _all_named(text, "file")]
        if text.startswith(f"{tool} done") and _is_alike(command, _named(text, "command")):
            solved = content.hex(), chunk, _named(text, "command")
    if solved is None or (solved[2] == command and not files and not said):
        return None
    changed = f" after changing {', '.join(dict.fromkeys(files[:FILES_MAX]))}" if files else ""
    told = f"`{one_line(solved[2], 300)}` went well then{changed}. {plain(said)}".strip()
    error = one_line(plain(failed.text.partition("\nerror: ")[2]), 120)
    place = place_to_name(database, solved[1], CONVERSATION, failed.agent, failed.session)
    when = about(day_of(failed.created_at), failed.agent)
    return Record(solved[0], when, told, f"the same failure: {error}", place=place)


def _named(text: str, name: str) -> str:
    return next(iter(_all_named(text, name)), "")


def _all_named(text: str, name: str) -> list[str]:
    return [line.removeprefix(f"{name}: ") for line in text.splitlines() if line.startswith(f"{name}: ")]


def _is_alike(one: str, other: str) -> bool:
    """Whether two commands run the same program."""
    return bool(one and other) and one.split()[:1] == other.split()[:1]
