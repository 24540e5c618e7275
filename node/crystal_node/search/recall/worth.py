"""What recall was worth: which answers used what was recalled, as far as words tell, and a report of some days.

An answer can be looked at once it was captured. So the log is judged later, by whoever reads it or by the background job: for
each entry the messages of its session from then on up to the person's next one. Nothing of these texts is kept, only the
verdict; a prompt's own words go as soon as the captured prompt can show them. What was forgotten leaves the log.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from crystal_core.database import Database
from crystal_core.messages import chunk_of
from crystal_core.schema import HIDDEN
from crystal_core.search.turns import ANSWERING_NOBODY, PERSON
from crystal_node.base.wording import one_line
from crystal_node.search.finding.deep_outcome import forget_mark
from crystal_node.search.recall.database import Logged, LoggedRecord, RecallDatabase
from crystal_node.search.recall.hook import HookEvent
from crystal_node.search.recall.words import uses

BEFORE_MS, AFTER_MS = 120_000, 600_000
"""A prompt is captured with a time that is so much before or after its hook's at most: queued prompts wait."""
QUIET_MS = 3_600_000
"""An answer behind which nothing came for so long is whole."""
GIVEN_UP_MS = 7 * 86_400_000
"""A session of which nothing was captured for so long will not be."""
PIECES_MAX = 400
ANSWER_CHARS_MAX = 400_000
LOOKUPS_MAX = 40
"""Texts that are looked up one by one; of more, all ids of the memory are read once: 0.1 s for 100,000."""
SAME_CHARS = 40
"""Of a prompt's first words, by which it is known again; credentials in it may be blanked out otherwise."""


@dataclass(frozen=True, slots=True)
class _Said:
    id: str
    text: str
    role: str
    created_at: int


def judge(log: RecallDatabase, memory: Database, now_ms: int) -> int:
    """Look at the answers that were captured since. Returns how many entries are judged for good by that."""
    follow(log, memory)
    judged = 0
    for entry in log.entries(unjudged=True):
        said = _said_since(memory, entry)
        prompt, answers = _prompt_and_answers(entry, said)
        texts = texts_of(memory, [record.id for record in entry.records])
        newest = said[-1].created_at if said else entry.at
        over = _next_prompt(entry, said, prompt) or now_ms - newest > (QUIET_MS if answers else GIVEN_UP_MS)
        asked = prompt.text if prompt is not None else entry.prompt
        answer = "\n".join(piece.text for piece in answers)[:ANSWER_CHARS_MAX]
        used = {record.place: _used(record, texts, answer, asked) for record in entry.records}
        log.judge(entry, used, "" if prompt is None else prompt.id, over=over)
        judged += over
    return judged


def follow(log: RecallDatabase, memory: Database) -> None:
    """Remove what was forgotten since the log was compared last."""
    mark = forget_mark(memory)
    if log.mark() == mark:
        return
    ids = log.ids()
    known = texts_of(memory, ids)
    log.drop([name for name in ids if name not in known], mark)


def texts_of(memory: Database, ids: Sequence[str]) -> dict[str, str]:
    """The texts that are there and not forgotten, by id."""
    with memory.snapshot():
        if len(ids) > LOOKUPS_MAX:
            return {name.hex(): text for name, text in memory.rows(_TEXTS, (json.dumps(list(ids)),))}
        found: dict[str, str] = {}
        for name in ids:
            chunk = chunk_of(memory, bytes.fromhex(name))
            text = None if chunk is None else memory.value(_TEXT, (chunk,))
            if text is not None:
                found[name] = text
        return found


def _used(record: LoggedRecord, texts: dict[str, str], answer: str, asked: str) -> bool | None:
    return uses(answer, texts[record.id], asked) if answer and record.id in texts else None


def _said_since(memory: Database, entry: Logged) -> list[_Said]:
    bindings = (entry.session, entry.at - BEFORE_MS) * 2
    rows = memory.rows(_SINCE, (*bindings, PIECES_MAX))
    return [_Said(name.hex(), text, role, int(created_at)) for name, text, role, created_at in rows]


def _prompt_and_answers(entry: Logged, said: Sequence[_Said]) -> tuple[_Said | None, list[_Said]]:
    """The captured prompt, None if it cannot be told, and what was answered to it. At a start: to the session's first one."""
    if entry.event in (HookEvent.FAILURE, HookEvent.SUBAGENT):
        behind = [piece for piece in said if piece.created_at >= entry.at]
        until = next((number for number, piece in enumerate(behind) if piece.role == PERSON), len(behind))
        return None, [piece for piece in behind[:until] if piece.role not in ANSWERING_NOBODY]
    first = next((number for number, piece in enumerate(said) if _is_prompt(entry, piece)), None)
    if first is None:
        return None, []
    answers: list[_Said] = []
    for piece in said[first + 1 :]:
        if piece.role == PERSON:
            if answers:
                break
        elif piece.role not in ANSWERING_NOBODY:
            answers.append(piece)
    is_prompt = entry.event == HookEvent.PROMPT
    return (said[first] if is_prompt else None), answers


def _is_prompt(entry: Logged, piece: _Said) -> bool:
    if piece.role != PERSON:
        return False
    if entry.event != HookEvent.PROMPT:
        return piece.created_at >= entry.at
    if not entry.at - BEFORE_MS <= piece.created_at <= entry.at + AFTER_MS:
        return False
    if entry.prompt_id:
        return piece.id == entry.prompt_id
    begin = one_line(entry.prompt, len(entry.prompt)).removesuffix("…")[:SAME_CHARS]
    return bool(begin) and one_line(piece.text, len(piece.text)).startswith(begin)


def _next_prompt(entry: Logged, said: Sequence[_Said], prompt: _Said | None) -> bool:
    """Whether the person went on behind an answer."""
    since = prompt.created_at if prompt is not None else entry.at
    seen_answer = False
    for piece in said:
        if piece.created_at < since or (prompt is not None and piece.id == prompt.id):
            continue
        if piece.role == PERSON and seen_answer:
            return True
        seen_answer = seen_answer or piece.role not in ANSWERING_NOBODY
    return False


_TEXTS = f"""
SELECT id, text FROM chunks WHERE id IN (SELECT unhex(value) FROM json_each(?)) AND forget_hash NOT IN ({HIDDEN})
"""  # noqa: S608 - a constant of ours
_TEXT = f"SELECT text FROM chunks WHERE rowid = ? AND forget_hash NOT IN ({HIDDEN})"  # noqa: S608 - a constant of ours
_SINCE = f"""
SELECT c.id, c.text, said.role, said.created_at FROM (
    SELECT chunk, role, created_at, 0 AS pending, rowid AS number FROM occurrences WHERE session = ? AND created_at >= ?
    UNION ALL
    SELECT chunk, role, created_at, 1, rowid FROM provisional_places
        WHERE category IS NULL AND path IS NULL AND session = ? AND created_at >= ?
    ) AS said JOIN chunks c ON c.rowid = said.chunk
WHERE c.forget_hash NOT IN ({HIDDEN})
ORDER BY said.created_at, said.pending, said.number LIMIT ?
"""  # noqa: S608 - a constant of ours
