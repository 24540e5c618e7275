"""The views of memories since they have a scope: what each will be when this device's pending operations are applied.

`memory_states` has one row per memory, `memory_places` only those that are active and not superseded (see `schema`).
"""


def _after_pending(column: str, otherwise: str) -> str:
    """Return an expression for a memory's property as it will be when pending operations are applied."""
    return (
        f"coalesce((SELECT {column} FROM provisional_memories WHERE forget_hash = c.forget_hash AND {column} IS NOT NULL"  # noqa: S608
        f" ORDER BY number DESC LIMIT 1), {otherwise})"
    )


MEMORY_VIEWS = f"""
DROP VIEW memory_states;
CREATE VIEW memory_states (chunk, forget_hash, pending, agent, created_at, category, confidence, status, superseded_by,
                           changed_at, device, scope) AS
SELECT m.chunk, c.forget_hash, 0, m.agent, m.created_at, {_after_pending("category", "m.category")},
    {_after_pending("confidence", "m.confidence")}, {_after_pending("status", "m.status")},
    {_after_pending("superseded_by", "m.superseded_by")}, {_after_pending("at", "m.changed_at")},
    m.device, {_after_pending("scope", "m.scope")}
FROM memories m CROSS JOIN chunks c ON c.rowid = m.chunk
UNION ALL
SELECT p.chunk, c.forget_hash, 1, p.agent, p.created_at, {_after_pending("category", "p.category")},
    {_after_pending("confidence", "p.confidence")}, {_after_pending("status", "'active'")},
    {_after_pending("superseded_by", "x''")}, {_after_pending("at", "p.created_at")},
    o.device, {_after_pending("scope", "p.scope")}
FROM provisional_places p CROSS JOIN chunks c ON c.rowid = p.chunk JOIN provisional o ON o.number = p.number
WHERE p.category IS NOT NULL AND NOT EXISTS (SELECT 1 FROM memories WHERE chunk = p.chunk)
    AND NOT EXISTS (SELECT 1 FROM provisional_places q WHERE q.chunk = p.chunk AND q.category IS NOT NULL
                    AND q.number < p.number);

DROP VIEW memory_places;
CREATE VIEW memory_places (chunk, agent, created_at, category, confidence, scope) AS
SELECT chunk, agent, created_at, category, confidence, scope FROM memory_states WHERE status = 'active' AND superseded_by = x'';
"""  # noqa: S608 - constants of ours
