-- Times are ISO 8601 text in UTC with microseconds, so that text order is time order.

CREATE TABLE schema_version (
    version INTEGER PRIMARY KEY,
    applied_at TEXT NOT NULL
);

-- The log: the only truth. Rows are never changed.
CREATE TABLE events (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at TEXT NOT NULL,
    type TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;

-- What lists and filters need of each run; made from the log, in the transaction that appends to it.
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    search TEXT NOT NULL,
    source TEXT,
    thread_id TEXT,
    parent TEXT,
    worker TEXT,
    status TEXT NOT NULL,
    seq INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    ended_at TEXT,
    row_count INTEGER,
    truncated INTEGER NOT NULL,
    error_code TEXT,
    elapsed_ms REAL,
    usage TEXT NOT NULL
);

CREATE INDEX runs_by_time ON runs (created_at, id);

CREATE INDEX runs_by_status ON runs (status, created_at, id);

CREATE INDEX runs_by_source ON runs (source, created_at, id) WHERE source IS NOT NULL;

CREATE INDEX runs_by_thread ON runs (thread_id, created_at, id) WHERE thread_id IS NOT NULL;

CREATE TABLE threads (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    source TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX threads_by_time ON threads (updated_at, id);

CREATE TABLE messages (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    run_id TEXT,
    created_at TEXT NOT NULL,
    PRIMARY KEY (thread_id, seq)
);

CREATE TABLE sources (
    name TEXT PRIMARY KEY,
    spec TEXT NOT NULL
) WITHOUT ROWID;
