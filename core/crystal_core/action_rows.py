"""The table `actions` of the schema: which chunks are tool calls, by the roles of their places.

A text that was also said, remembered or read in is none of them. Triggers keep the table, since places come by operations,
snapshots and replacements alike.
"""

from crystal_mirror.types import ACTION_ROLES


def _said_besides(chunk: str) -> str:
    """Return the condition that a chunk is more than a tool call."""
    said = f" AND role NOT IN {ACTION_ROLES}"
    tables = {"occurrences": said, "provisional_places": said, "memories": "", "document_parts": ""}
    return " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} WHERE chunk = {chunk}{own})"  # noqa: S608 - constants of ours
        for table, own in tables.items()
    )


def _action_triggers(table: str, *, with_roles: bool) -> str:
    """Return the triggers that keep `actions` in step with a table of places."""
    happened = f"""
CREATE TRIGGER {{name}}_action AFTER {{event}} ON {table}
WHEN new.role IN {ACTION_ROLES} AND NOT ({_said_besides("new.chunk")}) BEGIN
    INSERT OR IGNORE INTO actions (chunk) VALUES (new.chunk);
END;
"""  # noqa: S608 - constants of ours
    is_said = f"new.role NOT IN {ACTION_ROLES} AND " if with_roles else ""
    said = f"""
CREATE TRIGGER {{name}}_no_action AFTER {{event}} ON {table}
WHEN {is_said}EXISTS (SELECT 1 FROM actions WHERE chunk = new.chunk) BEGIN
    DELETE FROM actions WHERE chunk = new.chunk;
    UPDATE index_state SET embedded = min(embedded, new.chunk - 1);
END;
"""  # noqa: S608 - constants of ours
    events = {f"{table}_inserted": "INSERT", f"{table}_moved": "UPDATE OF chunk"}
    statements = happened + said if with_roles else said
    return "".join(statements.format(name=name, event=event) for name, event in events.items())


ACTION_ROWS = f"""
CREATE TABLE actions (chunk INTEGER PRIMARY KEY REFERENCES chunks (rowid) ON DELETE CASCADE);
INSERT INTO actions (chunk) SELECT chunk FROM (
    SELECT chunk FROM occurrences WHERE role IN {ACTION_ROLES}
    UNION SELECT chunk FROM provisional_places WHERE role IN {ACTION_ROLES}
) happened WHERE NOT ({_said_besides("happened.chunk")});
{_action_triggers("occurrences", with_roles=True)}
{_action_triggers("provisional_places", with_roles=True)}
{_action_triggers("memories", with_roles=False)}
{_action_triggers("document_parts", with_roles=False)}
"""  # noqa: S608 - constants of ours


def _repeated(table: str) -> str:
    """Return the SQL that replaces a table's first triggers, which read all places of a text for each new place."""
    events = {f"{table}_inserted": "INSERT", f"{table}_moved": "UPDATE OF chunk"}
    return "".join(
        f"""
DROP TRIGGER {name}_action;
CREATE TRIGGER {name}_action AFTER {event} ON {table}
WHEN new.role IN {ACTION_ROLES} AND NOT EXISTS (SELECT 1 FROM actions WHERE chunk = new.chunk)
AND NOT ({_said_besides("new.chunk")}) BEGIN
    INSERT INTO actions (chunk) VALUES (new.chunk);
END;
"""  # noqa: S608 - constants of ours
        for name, event in events.items()
    )


REPEATED_TEXTS = f"""
{_repeated("occurrences")}
{_repeated("provisional_places")}
DROP INDEX provisional_places_by_chunk;
CREATE INDEX provisional_places_by_chunk ON provisional_places (chunk, session);
"""
"""A migration. Results of tools often repeat: such a text has thousands of places, of which few are in one session."""
