"""The titles of the conversations that were found: one query for all of an answer."""

import json
from collections.abc import Iterable

from crystal_core.database import Database
from crystal_core.schema import HIDDEN
from crystal_node.search.titles import READ_CHARS_MAX, first_title

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


def titles_of(database: Database, conversations: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The titles of conversations, each an agent and a session; "" for one in which no person said anything."""
    wanted = list(dict.fromkeys(conversations))
    first: dict[tuple[str, str], list[str]] = {key: [] for key in wanted}
    if wanted:
        for agent, session, text in database.rows(_FIRST_MESSAGES, (json.dumps(wanted),)):
            first[agent, session].append(text)
    return {key: first_title(texts[:MESSAGES_MAX]) for key, texts in first.items()}
