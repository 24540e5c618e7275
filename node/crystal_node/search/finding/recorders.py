"""Which device recorded a text that was found, by the ids of the device log.

It is looked up by the text's place, not by its id: ids have no index.
"""

from crystal_core.database import Database
from crystal_core.search.filters import DOCUMENT, OF_SESSIONS
from crystal_core.search.hits import Hit

_OF_CONVERSATION = """
SELECT device FROM occurrences INDEXED BY occurrences_by_session WHERE session = ?1 AND agent = ?2 AND created_at = ?3
UNION ALL
SELECT q.device FROM provisional_places p INDEXED BY provisional_places_by_session JOIN provisional q ON q.number = p.number
WHERE p.session = ?1 AND p.agent = ?2 AND p.created_at = ?3 AND p.category IS NULL AND p.path IS NULL
LIMIT 1
"""
_OF_MEMORY = """
SELECT device FROM memories WHERE agent = ?1 AND created_at = ?2
UNION ALL
SELECT q.device FROM provisional_places p JOIN provisional q ON q.number = p.number
WHERE p.agent = ?1 AND p.created_at = ?2 AND p.category IS NOT NULL
LIMIT 1
"""
_OF_DOCUMENT = """
SELECT device FROM sources WHERE name = ?1
UNION ALL
SELECT q.device FROM provisional_sources s JOIN provisional q ON q.number = s.number WHERE s.name = ?1
LIMIT 1
"""


def recorder(database: Database, hit: Hit) -> str:
    """The id of the device that recorded it, or whose source it is of; "" if that is not known. Texts of one conversation and
    moment are of one device."""
    if hit.kind in OF_SESSIONS:
        found = database.value(_OF_CONVERSATION, (hit.session, hit.agent, hit.created_at))
    elif hit.kind == DOCUMENT:
        found = source_recorder(database, hit.source)
    else:
        found = database.value(_OF_MEMORY, (hit.agent, hit.created_at))
    return found.hex() if isinstance(found, bytes) else ""


def source_recorder(database: Database, source: str) -> bytes | None:
    """The device whose source that is."""
    found = database.value(_OF_DOCUMENT, (source,))
    return found if isinstance(found, bytes) else None
