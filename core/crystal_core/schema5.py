"""Version 5 of the tables: what search and `crystal show` need to be quick in a memory of a million chunks.

occurrences_by_session, occurrences_by_project   for the filters, and for a conversation around a text; added rows are of
             few sessions at a time, so these cost little
id_blocks    see `ids`
"""

BLOCK = 4096
"""Rowids in a block."""

ID_TRIGGERS = f"""
CREATE TRIGGER id_block_full AFTER INSERT ON chunks WHEN new.rowid % {BLOCK} = 0 BEGIN
    INSERT OR REPLACE INTO id_blocks (block, prefixes)
    SELECT new.rowid / {BLOCK} - 1, group_concat('|' || hex(substr(id, 1, 4)), '') FROM chunks
    WHERE rowid > new.rowid - {BLOCK} AND rowid <= new.rowid;
END;
CREATE TRIGGER id_block_loses AFTER DELETE ON chunks BEGIN
    UPDATE id_blocks SET prefixes = replace(prefixes, '|' || hex(substr(old.id, 1, 4)), '')
    WHERE block = (old.rowid - 1) / {BLOCK};
END;
"""  # noqa: S608 - a number of ours

LOOKUPS = f"""
CREATE INDEX occurrences_by_session ON occurrences (session, chunk);
CREATE INDEX occurrences_by_project ON occurrences (project, repository, chunk);
CREATE TABLE id_blocks (block INTEGER PRIMARY KEY, prefixes TEXT NOT NULL);
INSERT INTO id_blocks (block, prefixes)
SELECT (rowid - 1) / {BLOCK}, group_concat('|' || hex(substr(id, 1, 4)), '') FROM chunks
WHERE rowid <= (SELECT coalesce(max(rowid), 0) / {BLOCK} FROM chunks) * {BLOCK} GROUP BY (rowid - 1) / {BLOCK};
{ID_TRIGGERS}
"""  # noqa: S608 - a number of ours
