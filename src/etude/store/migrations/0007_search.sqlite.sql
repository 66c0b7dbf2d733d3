-- Runs have a number of their own, which a VACUUM does not change: the index of their words refers to it.
-- `search` holds the words of the text from now on; those of runs that are there already are written by `etude` itself.
CREATE TABLE runs_by_number (
    no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
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
    usage TEXT NOT NULL,
    tenant TEXT NOT NULL DEFAULT 'main'
);

INSERT INTO runs_by_number (id, kind, text, search, source, thread_id, parent, worker, status, seq, created_at,
        updated_at, ended_at, row_count, truncated, error_code, elapsed_ms, usage, tenant)
    SELECT id, kind, text, search, source, thread_id, parent, worker, status, seq, created_at,
        updated_at, ended_at, row_count, truncated, error_code, elapsed_ms, usage, tenant
    FROM runs ORDER BY created_at, id;

DROP TABLE runs;

ALTER TABLE runs_by_number RENAME TO runs;

CREATE INDEX runs_by_time ON runs (tenant, created_at, id);

CREATE INDEX runs_by_thread ON runs (tenant, thread_id, created_at, id) WHERE thread_id IS NOT NULL;

CREATE INDEX runs_at_work ON runs (created_at, id) WHERE status = 'running';

CREATE INDEX runs_open ON runs (status) WHERE status IN ('queued', 'running', 'paused', 'waiting');

-- Every filter alone, and every two together: what is rare among many is found without a look at all of them.
CREATE INDEX runs_by_status ON runs (tenant, status, created_at, id);

CREATE INDEX runs_by_kind ON runs (tenant, kind, created_at, id);

CREATE INDEX runs_by_source ON runs (tenant, source, created_at, id) WHERE source IS NOT NULL;

CREATE INDEX runs_by_status_and_kind ON runs (tenant, status, kind, created_at, id);

CREATE INDEX runs_by_source_and_status ON runs (tenant, source, status, created_at, id) WHERE source IS NOT NULL;

CREATE INDEX runs_by_source_and_kind ON runs (tenant, source, kind, created_at, id) WHERE source IS NOT NULL;
