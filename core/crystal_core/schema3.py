"""Version 3 of the tables: what is known of a memory, its changes, and sources of documents.

Replicated rows:

    memories         gain confidence, status, the keyed hash of what took the memory's place, and the moment of the last change
    memory_changes   what a memory was before each change, and who changed it when, numbered from 0 for each memory
    sources          collections of documents, each with the device to which it belongs
    documents        one row a document; `came`: how many of its `total` pieces have come, from the first on
    document_parts   which chunk stands in which place of a document

Local rows: `provisional_memories`, `provisional_sources` and `provisional_documents`, what pending operations change of these.
A column of `provisional_memories` that is NULL is left as it is; `superseded_by` is empty where the memory is current again.
A row of `provisional_documents` covers the places from `first` up to `beyond`: those of all the source's documents where `path`
is empty.

`memory_states` is every memory as it will be once all that pends is applied, one row each. Two views say what belongs to normal
results, pending operations counted: `memory_places` leaves out what is retired or superseded, `document_places` what a pending
operation replaces or removes. `stale_chunks` are the chunks that only stand where these leave them out.

The views say CROSS JOIN where the small table has to be the outer one: SQLite does not know which is small, and would go
through all chunks.
"""

WHOLE = 2**53
"""A number of pieces that no document has: up to its end."""

HIDDEN = (
    "SELECT forget_hash FROM (SELECT forget_hash, hides, max(number) FROM provisional_marks GROUP BY forget_hash)"
    " WHERE hides = 1"
)
"""The keyed hashes of texts on which the latest pending word is a forget (see `provisional`). SQLite takes `hides` from the row
that has the maximum."""

MEMORIES_AND_DOCUMENTS = """
ALTER TABLE memories ADD COLUMN confidence INTEGER NOT NULL DEFAULT 100;
ALTER TABLE memories ADD COLUMN status TEXT NOT NULL DEFAULT 'active';
ALTER TABLE memories ADD COLUMN superseded_by BLOB NOT NULL DEFAULT x'';
ALTER TABLE memories ADD COLUMN changed_at INTEGER NOT NULL DEFAULT 0;
UPDATE memories SET changed_at = created_at;
CREATE INDEX memories_by_successor ON memories (superseded_by) WHERE superseded_by <> x'';
CREATE INDEX memories_not_current ON memories (chunk) WHERE status <> 'active' OR superseded_by <> x'';

CREATE TABLE memory_changes (
    chunk INTEGER NOT NULL REFERENCES chunks (rowid) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    category TEXT NOT NULL,
    confidence INTEGER NOT NULL,
    status TEXT NOT NULL,
    superseded_by BLOB NOT NULL,
    agent TEXT NOT NULL,
    at INTEGER NOT NULL,
    device BLOB NOT NULL,
    PRIMARY KEY (chunk, number)
) WITHOUT ROWID;

CREATE TABLE sources (
    name TEXT PRIMARY KEY,
    device BLOB NOT NULL,
    root TEXT NOT NULL,
    include TEXT NOT NULL,
    exclude TEXT NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE documents (
    rowid INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    path TEXT NOT NULL,
    version BLOB NOT NULL CHECK (length(version) = 32),
    kind TEXT NOT NULL,
    modified_at INTEGER NOT NULL,
    total INTEGER NOT NULL,
    came INTEGER NOT NULL,
    UNIQUE (source, path)
);

CREATE TABLE document_parts (
    document INTEGER NOT NULL REFERENCES documents (rowid) ON DELETE CASCADE,
    part INTEGER NOT NULL,
    chunk INTEGER NOT NULL REFERENCES chunks (rowid) ON DELETE CASCADE,
    title TEXT NOT NULL,
    PRIMARY KEY (document, part)
) WITHOUT ROWID;
CREATE INDEX document_parts_by_chunk ON document_parts (chunk);

ALTER TABLE provisional_places ADD COLUMN confidence INTEGER;
UPDATE provisional_places SET confidence = 100 WHERE category IS NOT NULL;
ALTER TABLE provisional_places ADD COLUMN path TEXT;
ALTER TABLE provisional_places ADD COLUMN title TEXT NOT NULL DEFAULT '';
CREATE INDEX provisional_places_by_path ON provisional_places (source, path) WHERE path IS NOT NULL;

CREATE TABLE provisional_memories (
    number INTEGER NOT NULL REFERENCES provisional (number) ON DELETE CASCADE,
    forget_hash BLOB NOT NULL,
    kind TEXT NOT NULL,
    category TEXT,
    confidence INTEGER,
    status TEXT,
    superseded_by BLOB,
    agent TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (forget_hash, number)
) WITHOUT ROWID;
CREATE INDEX provisional_memories_by_number ON provisional_memories (number);

CREATE TABLE provisional_sources (
    number INTEGER PRIMARY KEY REFERENCES provisional (number) ON DELETE CASCADE,
    name TEXT NOT NULL,
    gone INTEGER NOT NULL CHECK (gone IN (0, 1)),
    root TEXT NOT NULL,
    include TEXT NOT NULL,
    exclude TEXT NOT NULL,
    at INTEGER NOT NULL
);

CREATE TABLE provisional_documents (
    number INTEGER PRIMARY KEY REFERENCES provisional (number) ON DELETE CASCADE,
    source TEXT NOT NULL,
    path TEXT NOT NULL,
    gone INTEGER NOT NULL CHECK (gone IN (0, 1)),
    version BLOB NOT NULL,
    kind TEXT NOT NULL,
    modified_at INTEGER NOT NULL,
    total INTEGER NOT NULL,
    first INTEGER NOT NULL,
    beyond INTEGER NOT NULL
);
CREATE INDEX provisional_documents_by_path ON provisional_documents (source, path, number);

CREATE VIEW memory_states (chunk, forget_hash, pending, agent, created_at, category, confidence, status, superseded_by,
                           changed_at, device) AS
SELECT m.chunk, c.forget_hash, 0, m.agent, m.created_at,
    coalesce((SELECT category FROM provisional_memories WHERE forget_hash = c.forget_hash AND category IS NOT NULL
              ORDER BY number DESC LIMIT 1), m.category),
    coalesce((SELECT confidence FROM provisional_memories WHERE forget_hash = c.forget_hash AND confidence IS NOT NULL
              ORDER BY number DESC LIMIT 1), m.confidence),
    coalesce((SELECT status FROM provisional_memories WHERE forget_hash = c.forget_hash AND status IS NOT NULL
              ORDER BY number DESC LIMIT 1), m.status),
    coalesce((SELECT superseded_by FROM provisional_memories WHERE forget_hash = c.forget_hash AND superseded_by IS NOT NULL
              ORDER BY number DESC LIMIT 1), m.superseded_by),
    coalesce((SELECT at FROM provisional_memories WHERE forget_hash = c.forget_hash
              ORDER BY number DESC LIMIT 1), m.changed_at),
    m.device
FROM memories m CROSS JOIN chunks c ON c.rowid = m.chunk
UNION ALL
SELECT p.chunk, c.forget_hash, 1, p.agent, p.created_at,
    coalesce((SELECT category FROM provisional_memories WHERE forget_hash = c.forget_hash AND category IS NOT NULL
              ORDER BY number DESC LIMIT 1), p.category),
    coalesce((SELECT confidence FROM provisional_memories WHERE forget_hash = c.forget_hash AND confidence IS NOT NULL
              ORDER BY number DESC LIMIT 1), p.confidence),
    coalesce((SELECT status FROM provisional_memories WHERE forget_hash = c.forget_hash AND status IS NOT NULL
              ORDER BY number DESC LIMIT 1), 'active'),
    coalesce((SELECT superseded_by FROM provisional_memories WHERE forget_hash = c.forget_hash AND superseded_by IS NOT NULL
              ORDER BY number DESC LIMIT 1), x''),
    coalesce((SELECT at FROM provisional_memories WHERE forget_hash = c.forget_hash
              ORDER BY number DESC LIMIT 1), p.created_at),
    o.device
FROM provisional_places p CROSS JOIN chunks c ON c.rowid = p.chunk JOIN provisional o ON o.number = p.number
WHERE p.category IS NOT NULL AND NOT EXISTS (SELECT 1 FROM memories WHERE chunk = p.chunk)
    AND NOT EXISTS (SELECT 1 FROM provisional_places q WHERE q.chunk = p.chunk AND q.category IS NOT NULL
                    AND q.number < p.number);

CREATE VIEW memory_places (chunk, agent, created_at, category, confidence) AS
SELECT chunk, agent, created_at, category, confidence FROM memory_states WHERE status = 'active' AND superseded_by = x'';

CREATE VIEW document_places (chunk, created_at, source, path, part, title, kind) AS
SELECT p.chunk, d.modified_at, d.source, d.path, p.part, p.title, d.kind
FROM document_parts p JOIN documents d ON d.rowid = p.document
WHERE NOT EXISTS (SELECT 1 FROM provisional_documents q WHERE q.source = d.source AND q.path IN (d.path, '')
                  AND p.part >= q.first AND p.part < q.beyond)
UNION ALL
SELECT p.chunk, p.created_at, p.source, p.path, p.part, p.title, o.kind
FROM provisional_places p JOIN provisional_documents o ON o.number = p.number
WHERE p.path IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM provisional_documents q WHERE q.source = p.source AND q.path IN (p.path, '')
                    AND q.number > p.number AND p.part >= q.first AND p.part < q.beyond);

CREATE VIEW stale_chunks (chunk) AS
SELECT chunk FROM (
    SELECT chunk FROM memories WHERE status <> 'active' OR superseded_by <> x''
    UNION SELECT c.rowid FROM provisional_memories p CROSS JOIN chunks c ON c.forget_hash = p.forget_hash
    UNION SELECT p.chunk FROM provisional_documents q
        CROSS JOIN documents d ON d.source = q.source AND q.path IN (d.path, '')
        CROSS JOIN document_parts p ON p.document = d.rowid AND p.part >= q.first AND p.part < q.beyond
    UNION SELECT p.chunk FROM provisional_documents q
        JOIN provisional_places p ON p.source = q.source AND q.path IN (p.path, '') AND p.number < q.number
            AND p.part >= q.first AND p.part < q.beyond
        WHERE p.path IS NOT NULL
) candidate
WHERE NOT EXISTS (SELECT 1 FROM occurrences WHERE chunk = candidate.chunk)
    AND NOT EXISTS (SELECT 1 FROM provisional_places WHERE chunk = candidate.chunk AND category IS NULL AND path IS NULL)
    AND NOT EXISTS (SELECT 1 FROM memory_places WHERE chunk = candidate.chunk)
    AND NOT EXISTS (SELECT 1 FROM document_places WHERE chunk = candidate.chunk);
"""
