"""The schema of `crystal.db`: tables, views, triggers and migrations.

Replicated rows, equal on every device and covered by the state digest:

    chunks           each text once; `id` is SHA-256 of its UTF-8, `forget_hash` the keyed hash under which it can be forgotten
    windows          one row per vector of a chunk (a long text has several), with the vector's signs, one bit per dimension
    vectors          those vectors, float16, little-endian; same rowid as `windows`
    occurrences      each place in a conversation that a chunk came from; `model` said it, "" if unknown
    memories         a chunk's memory; `superseded_by` is its successor's keyed hash, `changed_at` the time of the last change,
                     `scope` the project that it is for, "" for everywhere
    memory_changes   a memory before each change, and who changed it when, numbered from 0 for each memory
    sources          collections of documents, each with the device that owns it
    documents        one row per document; `came`: how many of its `total` pieces have arrived, from the first on
    document_parts   the chunk at each place of a document
    project_links    pairs of projects that are linked, the lesser of the two first
    suppressed       keyed hashes of forgotten texts
    acks, acks_sparse   operations done, by stream
    files            the tree of files, one row per path, tombstones included; `parts` is packed (`state.files`), `folded` the
                     path's case-folded form. No two living rows share it, and none is a folder of another
    condemned        names of blobs that are never used again

Local rows:

    provisional*      this device's own operations that the Core has not ordered yet. NULL in `provisional_memories` leaves a
                      column as it is; `superseded_by` is empty where the memory is current again. `provisional_documents`
                      covers the places from `first` up to `beyond`, in all documents of the source where `path` is empty
    digests, position, mirror_log, meta
    index_state       dimensions of vectors; number of windows removed or changed; `deferred`, see `CHUNK_TRIGGERS`; `embedded`:
                      no replicated chunk up to that rowid is without vectors, but for tool calls; `lost`: number of chunks
                      removed or changed
    removed_windows   rowid of the n-th removed window, for the latest n
    id_blocks         first four bytes of the ids of each `BLOCK` rowids, as `|0A1B2C3D|…`
    actions           chunks that are tool calls and nothing else: they have no vectors, and are found only if asked for

A chunk with `provisional = 1` exists for provisional rows only; the replicated state does not contain it.

Views count pending operations. `memory_states` has one row per memory, as it will be when they are applied. `memory_places`
leaves out retired and superseded memories, `document_places` what a pending operation replaces or removes; `stale_chunks` are
the chunks found only where these two leave them out. CROSS JOIN keeps the small table outer: SQLite cannot tell which it is.

Indexes: chunks are looked up by `forget_hash`, which is one to one with `id`. An index over random values costs a page for
almost every row added, so there is only one (docs/decisions/0010). Lookups by id search `id_blocks` (9 bytes a chunk), then the
rows of the matching block and of the last one, which is still growing; on a miss, all rows, so a wrong or lost block costs only
time. `occurrences_by_session` and `occurrences_by_project` serve filters and conversations, `occurrences_by_person` the bounds
of turns; new rows belong to few sessions at a time, so these cost little.

`chunks_fts` (FTS5, Porter) and `windows` follow `chunks` by triggers, `vectors` follows `windows`. Secure deletion is on in
FTS5 and SQLite, so that a forgotten text leaves no bytes behind.

sqlite-vec measures vectors in SQL after `crystal_float32` has widened them, a function of our connections:
`vec_distance_cosine(crystal_float32(embedding), ?)`. Its own table is three times as slow to read (docs/decisions/0109).

Times are milliseconds since 1970, 0 if unknown. Identifiers of devices, incarnations and hashes are blobs.
"""

from collections.abc import Callable

import apsw

from crystal_core.action_rows import ACTION_ROWS, REPEATED_TEXTS
from crystal_core.memory_views import MEMORY_VIEWS

APPLICATION_ID = 0x4352_5953
"""`PRAGMA application_id` of `crystal.db`: "CRYS"."""

DIMENSIONS_MAX = 8192
"""Maximum dimensions of a vector; sqlite-vec's limit."""

BLOCK = 4096
"""Rowids in a block of `id_blocks`."""

REMOVALS_NAMED = 8192
"""Latest removals of windows kept by rowid, so that an index in memory can follow them."""

TOKENIZER = "porter unicode61"
"""FTS5's tokenizer."""

WHOLE = 2**53
"""More pieces than any document has: as an end, the whole document."""

HIDDEN = (
    "SELECT forget_hash FROM (SELECT forget_hash, hides, max(number) FROM provisional_marks GROUP BY forget_hash)"
    " WHERE hides = 1"
)
"""Query for the keyed hashes of texts whose latest pending mark is a forget (see `state.pending`). SQLite takes `hides` from
the row with the maximum."""

_TABLES = """
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE chunks (
    rowid INTEGER PRIMARY KEY,
    id BLOB NOT NULL CHECK (length(id) = 32),
    forget_hash BLOB NOT NULL CHECK (length(forget_hash) = 32),
    provisional INTEGER NOT NULL DEFAULT 0 CHECK (provisional IN (0, 1)),
    text TEXT NOT NULL
);
CREATE UNIQUE INDEX chunks_by_forget_hash ON chunks (forget_hash);
CREATE INDEX chunks_provisional ON chunks (provisional) WHERE provisional = 1;

CREATE TABLE windows (
    rowid INTEGER PRIMARY KEY,
    chunk INTEGER NOT NULL REFERENCES chunks (rowid) ON DELETE CASCADE,
    part INTEGER NOT NULL,
    bits BLOB NOT NULL,
    UNIQUE (chunk, part)
);

CREATE TABLE index_state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    dimensions INTEGER NOT NULL,
    removals INTEGER NOT NULL,
    deferred INTEGER NOT NULL
);
INSERT INTO index_state VALUES (1, 0, 0, 0);

CREATE TABLE occurrences (
    rowid INTEGER PRIMARY KEY,
    chunk INTEGER NOT NULL REFERENCES chunks (rowid) ON DELETE CASCADE,
    agent TEXT NOT NULL,
    session TEXT NOT NULL,
    message TEXT NOT NULL,
    part INTEGER NOT NULL,
    role TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    project TEXT NOT NULL,
    repository TEXT NOT NULL,
    source TEXT NOT NULL,
    device BLOB NOT NULL,
    UNIQUE (chunk, session, message, part, agent)
);
CREATE INDEX occurrences_by_agent ON occurrences (agent, created_at, chunk);

CREATE TABLE memories (
    chunk INTEGER PRIMARY KEY REFERENCES chunks (rowid) ON DELETE CASCADE,
    category TEXT NOT NULL,
    agent TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    device BLOB NOT NULL
);

CREATE TABLE suppressed (
    forget_hash BLOB PRIMARY KEY CHECK (length(forget_hash) = 32)
) WITHOUT ROWID;

CREATE TABLE acks (
    device BLOB NOT NULL,
    incarnation BLOB NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (device, incarnation)
) WITHOUT ROWID;

CREATE TABLE acks_sparse (
    device BLOB NOT NULL,
    incarnation BLOB NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (device, incarnation, sequence)
) WITHOUT ROWID;

CREATE TABLE digests (
    name TEXT PRIMARY KEY,
    sum BLOB NOT NULL CHECK (length(sum) = 32),
    count INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE position (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    previous BLOB NOT NULL CHECK (length(previous) = 32)
);

CREATE TABLE mirror_log (
    rowid INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    state INTEGER NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (epoch, sequence)
);
CREATE INDEX mirror_log_by_state ON mirror_log (state, epoch, sequence);

CREATE TABLE provisional (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    device BLOB NOT NULL,
    incarnation BLOB NOT NULL,
    sequence INTEGER NOT NULL,
    UNIQUE (device, incarnation, sequence)
);

CREATE TABLE provisional_places (
    rowid INTEGER PRIMARY KEY,
    number INTEGER NOT NULL REFERENCES provisional (number) ON DELETE CASCADE,
    chunk INTEGER NOT NULL REFERENCES chunks (rowid) ON DELETE CASCADE,
    agent TEXT NOT NULL,
    session TEXT NOT NULL,
    message TEXT NOT NULL,
    part INTEGER NOT NULL,
    role TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    project TEXT NOT NULL,
    repository TEXT NOT NULL,
    source TEXT NOT NULL,
    category TEXT
);
CREATE INDEX provisional_places_by_chunk ON provisional_places (chunk);
CREATE INDEX provisional_places_by_number ON provisional_places (number);

CREATE TABLE provisional_marks (
    number INTEGER NOT NULL REFERENCES provisional (number) ON DELETE CASCADE,
    forget_hash BLOB NOT NULL,
    hides INTEGER NOT NULL CHECK (hides IN (0, 1)),
    PRIMARY KEY (forget_hash, number)
) WITHOUT ROWID;
CREATE INDEX provisional_marks_by_number ON provisional_marks (number);
"""

_FULL_TEXT = f"""
CREATE VIRTUAL TABLE chunks_fts USING fts5 (
    text, content = 'chunks', content_rowid = 'rowid', tokenize = '{TOKENIZER}'
);
INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('secure-delete', 1);
INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('hashsize', 8388608);
INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('automerge', 8);
"""  # noqa: S608 - a constant of ours

CHUNK_TRIGGERS = """
CREATE TRIGGER chunks_inserted AFTER INSERT ON chunks WHEN (SELECT deferred FROM index_state) = 0 BEGIN
    INSERT INTO chunks_fts (rowid, text) VALUES (new.rowid, new.text);
END;
CREATE TRIGGER chunks_deleted AFTER DELETE ON chunks BEGIN
    INSERT INTO chunks_fts (chunks_fts, rowid, text) VALUES ('delete', old.rowid, old.text);
    DELETE FROM windows WHERE chunk = old.rowid;
END;
CREATE TRIGGER chunks_text_changed AFTER UPDATE OF rowid, text ON chunks BEGIN
    INSERT INTO chunks_fts (chunks_fts, rowid, text) VALUES ('delete', old.rowid, old.text);
    INSERT INTO chunks_fts (rowid, text) VALUES (new.rowid, new.text);
    DELETE FROM windows WHERE chunk IN (old.rowid, new.rowid);
END;
"""
"""Triggers that keep the indexes in step with `chunks`. When a text changes, its vectors are deleted.

FTS5 flushes whenever a statement with triggers begins, which makes one small index segment per chunk. A transaction that adds
many chunks therefore sets `index_state.deferred`, indexes their texts in one statement, and clears it before the commit
(`state.chunks`)."""

DROP_CHUNK_TRIGGERS = """
DROP TRIGGER chunks_inserted;
DROP TRIGGER chunks_deleted;
DROP TRIGGER chunks_text_changed;
"""

_FILES = """
CREATE TABLE files (
    rowid INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    folded TEXT NOT NULL,
    device BLOB NOT NULL,
    incarnation BLOB NOT NULL,
    sequence INTEGER NOT NULL,
    executable INTEGER NOT NULL CHECK (executable IN (0, 1)),
    modified_at INTEGER NOT NULL,
    gone INTEGER NOT NULL CHECK (gone IN (0, 1)),
    parts BLOB NOT NULL
);
CREATE UNIQUE INDEX files_by_folded ON files (folded) WHERE gone = 0;

CREATE TABLE condemned (
    name BLOB PRIMARY KEY CHECK (length(name) = 32)
) WITHOUT ROWID;

ALTER TABLE index_state ADD COLUMN embedded INTEGER NOT NULL DEFAULT 0;
"""

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

_WINDOW_TRIGGERS = f"""
CREATE TRIGGER windows_deleted AFTER DELETE ON windows BEGIN
    DELETE FROM vectors WHERE rowid = old.rowid;
    UPDATE index_state SET removals = removals + 1;
    INSERT OR REPLACE INTO removed_windows (slot, number, window)
    SELECT removals % {REMOVALS_NAMED}, removals, old.rowid FROM index_state;
END;
CREATE TRIGGER windows_changed AFTER UPDATE ON windows BEGIN
    SELECT RAISE(ABORT, 'a window keeps its rowid') WHERE old.rowid <> new.rowid;
    UPDATE index_state SET removals = removals + 1;
END;
"""  # noqa: S608 - a constant of ours

DROP_VECTORS = f"""
DROP TRIGGER windows_deleted;
DROP TRIGGER windows_changed;
DELETE FROM vectors;
DELETE FROM windows;
UPDATE index_state SET dimensions = 0, removals = removals + 1, embedded = 0;
{_WINDOW_TRIGGERS}
"""  # noqa: S608 - the same
"""Remove all windows and vectors; the next ones may have another size. Without triggers SQLite empties a table at once."""


Migration = Callable[[apsw.Connection], None]


def _running(statements: str) -> Migration:
    """Return the migration that executes these statements."""

    def migrate(connection: apsw.Connection) -> None:
        for _ in connection.execute(statements):
            pass

    return migrate


def _version_1(connection: apsw.Connection) -> None:
    for statements in (_TABLES, _FULL_TEXT, CHUNK_TRIGGERS):
        for _ in connection.execute(statements):
            pass


_REMOVED_WINDOWS = "CREATE TABLE removed_windows (slot INTEGER PRIMARY KEY, number INTEGER NOT NULL, window INTEGER NOT NULL)"
"""The rowids of removed windows."""

TURNS = """
DROP INDEX occurrences_by_session;
CREATE INDEX occurrences_by_session ON occurrences (session, agent, created_at);
CREATE INDEX occurrences_by_person ON occurrences (session, agent, created_at) WHERE role = 'user';
CREATE INDEX provisional_places_by_session ON provisional_places (session, agent, created_at)
    WHERE category IS NULL AND path IS NULL;
"""


_SCOPES = f"""
ALTER TABLE memories ADD COLUMN scope TEXT NOT NULL DEFAULT '';
ALTER TABLE memory_changes ADD COLUMN scope TEXT NOT NULL DEFAULT '';
ALTER TABLE provisional_memories ADD COLUMN scope TEXT;
ALTER TABLE provisional_places ADD COLUMN scope TEXT NOT NULL DEFAULT '';

CREATE TABLE project_links (
    folder TEXT NOT NULL,
    repository TEXT NOT NULL,
    other_folder TEXT NOT NULL,
    other_repository TEXT NOT NULL,
    device BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (folder, repository, other_folder, other_repository)
) WITHOUT ROWID;

CREATE TABLE provisional_links (
    number INTEGER PRIMARY KEY REFERENCES provisional (number) ON DELETE CASCADE,
    linked INTEGER NOT NULL CHECK (linked IN (0, 1)),
    folder TEXT NOT NULL,
    repository TEXT NOT NULL,
    other_folder TEXT NOT NULL,
    other_repository TEXT NOT NULL,
    at INTEGER NOT NULL
);

{MEMORY_VIEWS}
"""


def _version_8(connection: apsw.Connection) -> None:
    connection.execute("ALTER TABLE provisional ADD COLUMN operation BLOB")  # see `state.pending`


_VECTORS = f"""
CREATE TABLE vectors (rowid INTEGER PRIMARY KEY, embedding BLOB NOT NULL);
DROP TRIGGER IF EXISTS windows_deleted;
DROP TRIGGER IF EXISTS windows_changed;
{_WINDOW_TRIGGERS}
"""


def _version_10(connection: apsw.Connection) -> None:
    """Move the vectors from sqlite-vec's table, where they were float32, to an ordinary one (docs/decisions/0109)."""
    for _ in connection.execute(_VECTORS):
        pass
    if not connection.execute("SELECT dimensions FROM index_state").get:
        return  # the table came with the first vector
    for _ in connection.execute(
        "INSERT INTO vectors (rowid, embedding) SELECT rowid, crystal_float16(embedding) FROM chunks_vec;"
        " DROP TABLE chunks_vec"
    ):
        pass


_MODELS = """
ALTER TABLE occurrences ADD COLUMN model TEXT NOT NULL DEFAULT '';
ALTER TABLE provisional_places ADD COLUMN model TEXT NOT NULL DEFAULT '';
"""

_LOST_CHUNKS = """
ALTER TABLE index_state ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;
CREATE TRIGGER chunk_lost AFTER DELETE ON chunks BEGIN UPDATE index_state SET lost = lost + 1; END;
CREATE TRIGGER chunk_differs AFTER UPDATE OF rowid, text ON chunks BEGIN UPDATE index_state SET lost = lost + 1; END;
"""
"""A process that keeps facts about chunks in memory sees by `lost` that a rowid may now mean another chunk."""

MIGRATIONS: tuple[Migration, ...] = (
    _version_1,
    _running(_FILES),
    _running(MEMORIES_AND_DOCUMENTS),
    _running(_REMOVED_WINDOWS),
    _running(LOOKUPS),
    _running(TURNS),
    _running(_SCOPES),
    _version_8,
    _running(ACTION_ROWS),
    _version_10,
    _running(_MODELS),
    _running(_LOST_CHUNKS),
    _running(REPEATED_TEXTS),
)
"""Migration n (from 1) takes a database from version n - 1 to n, inside a transaction. Never changed once released."""
