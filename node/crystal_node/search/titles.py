"""The title of a conversation: the first sentence of what a person first asked.

A tool writes more into a person's message than the person did: reminders, what a hook recalled, the output of commands. None of
that is a title, nor is markup, a pasted block of code, or a greeting before something else. The words may come from anybody:
control characters and direction overrides are left out.
"""

import json
import re
from collections.abc import Iterable

from crystal_core.database import Database
from crystal_core.schema import HIDDEN
from crystal_node.base.wording import one_line, printable

TITLE_CHARS_MAX = 80
READ_CHARS_MAX = 8_000
"""Of a message: a title is near its beginning."""
_SENTENCE_CHARS_MIN = 16
"""A shorter sentence, such as a greeting, is joined with the next one."""
_WORD_CHARS = 12
"""How far before a full stop an abbreviation is searched for."""

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_WRAPPED = re.compile(r"<([a-z][a-z0-9]*(?:[-_][a-z0-9]+)+)(?:\s[^<>]{0,200})?>.*?(?:</\1>|\Z)", re.DOTALL)
"""What a tool inserts: elements whose names have a dash or an underscore, which HTML's do not."""
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>|<!--.*?(?:-->|\Z)", re.DOTALL)
_RECALLED = re.compile(
    r"^Recorded earlier on this person's machines\..*?(?:\n\s*\n|\Z)", re.DOTALL | re.MULTILINE
)
"""What our hook put before the prompt (``search.recall.text``)."""
_LINK = re.compile(r"!?\[([^\[\]\n]{0,500})\]\([^()\n]{0,2000}\)")
_LINE_MARK = re.compile(r"^\s*(?:>\s?|#{1,6}\s+|[-*+]\s+(?:\[[ xX]\]\s+)?|\d{1,4}[.)]\s+)+")
_RULE = re.compile(r"^[\s\-=_*~|:.#>+]*$")
_EMPHASIS = re.compile(r"(\*\*|__|~~|`+)")
_STAR = re.compile(r"(?<!\w)([*_])(\S(?:[^*_\n]*\S)?)\1(?!\w)")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*(?=\s)|[。！？]")
_ABBREVIATED = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|Mr|Mrs|Dr|St|No|z\.B|bzw|ca|usw)|\b[A-Z])\.$")


MESSAGES_MAX = 6
"""First messages of a person that are looked at; those before the first real one are a tool's."""

_FIRST_MESSAGES = f"""
WITH wanted AS MATERIALIZED (SELECT value ->> 0 AS agent, value ->> 1 AS session FROM json_each(?1)),
placed AS (
    SELECT w.agent, w.session, o.chunk, o.created_at, 0 AS pending, o.rowid AS row
    FROM wanted w JOIN occurrences o ON o.rowid IN (
        SELECT s.rowid FROM occurrences s INDEXED BY occurrences_by_person
        WHERE s.session = w.session AND s.agent = w.agent AND s.role = 'user'
        ORDER BY s.created_at, s.rowid LIMIT {MESSAGES_MAX})
    UNION ALL
    SELECT w.agent, w.session, p.chunk, p.created_at, 1, p.rowid
    FROM wanted w JOIN provisional_places p ON p.rowid IN (
        SELECT s.rowid FROM provisional_places s INDEXED BY provisional_places_by_session
        WHERE s.session = w.session AND s.agent = w.agent AND s.role = 'user' AND s.category IS NULL AND s.path IS NULL
        ORDER BY s.created_at, s.rowid LIMIT {MESSAGES_MAX}))
SELECT f.agent, f.session, substr(c.text, 1, {READ_CHARS_MAX}) FROM placed f JOIN chunks c ON c.rowid = f.chunk
WHERE c.forget_hash NOT IN ({HIDDEN})
ORDER BY f.created_at, f.pending, f.row
"""  # noqa: S608 - constants of ours


def conversation_title(text: str) -> str:
    """The title for a conversation that a person began with this text, at most ``TITLE_CHARS_MAX`` characters on one line; ""
    if nothing in it is the person's own."""
    text = text[:READ_CHARS_MAX]
    for pattern in (_FENCE, _WRAPPED, _RECALLED):
        text = pattern.sub("\n", text)
    text = _LINK.sub(r"\1", _TAG.sub(" ", text))
    title = ""
    for line in text.splitlines():
        words = _plain(line)
        if not words:
            continue
        title = f"{title} {_first_sentence(words, _SENTENCE_CHARS_MIN - len(title))}".strip()
        if len(title) >= _SENTENCE_CHARS_MIN:
            break
    return _cut(title)


def first_title(texts: Iterable[str]) -> str:
    """The title by the first of these texts that gives one; "" if none does."""
    return next((title for title in map(conversation_title, texts) if title), "")


def titles_of(database: Database, conversations: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The titles of conversations, each an agent and a session; "" for one in which no person said anything."""
    wanted = list(dict.fromkeys(conversations))
    first: dict[tuple[str, str], list[str]] = {key: [] for key in wanted}
    if wanted:
        for agent, session, text in database.rows(_FIRST_MESSAGES, (json.dumps(wanted),)):
            first[agent, session].append(text)
    return {key: first_title(texts[:MESSAGES_MAX]) for key, texts in first.items()}


def _plain(line: str) -> str:
    """A line without markup; "" for a line of markup alone."""
    if _RULE.match(line):
        return ""
    line = _EMPHASIS.sub("", _LINE_MARK.sub("", line))
    return " ".join(printable(_STAR.sub(r"\2", line)).split())


def _first_sentence(line: str, chars_min: int) -> str:
    for end in _SENTENCE_END.finditer(line):
        if end.end() >= chars_min and not _ABBREVIATED.search(
            line, max(end.end() - _WORD_CHARS, 0), end.end()
        ):
            return line[: end.end()]
        if end.end() > TITLE_CHARS_MAX:
            break
    return line


def _cut(title: str) -> str:
    """At most so many characters, ending with a whole word where one ends in the second half; without a closing full stop."""
    title = title.strip()
    if title.endswith(".") and not title.endswith(".."):
        title = title[:-1]
    if len(title) <= TITLE_CHARS_MAX:
        return title
    kept = one_line(title, TITLE_CHARS_MAX)[:-1]
    if not title[len(kept)].isspace():
        begin, space, _ = kept.rpartition(" ")
        kept = begin if space and len(begin) >= TITLE_CHARS_MAX // 2 else kept
    return kept.rstrip(" ,;:–—-") + "…"
