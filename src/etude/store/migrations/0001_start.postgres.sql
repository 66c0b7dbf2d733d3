-- Ids sort and match by prefix as bytes: COLLATE "C", whatever the database's own collation is.

CREATE TABLE schema_version (
    version integer PRIMARY KEY,
    applied_at timestamptz NOT NULL
);

-- The log: the only truth. Rows are never changed. `json`, not `jsonb`, keeps each body exactly as written.
CREATE TABLE events (
    run_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    at timestamptz NOT NULL,
    type text NOT NULL,
    body json NOT NULL,
    PRIMARY KEY (run_id, seq)
);

-- What lists and filters need of each run; made from the log, in the transaction that appends to it.
-- The fill factor leaves room for the updates that every append makes.
CREATE TABLE runs (
    id text COLLATE "C" PRIMARY KEY,
    kind text NOT NULL,
    text text NOT NULL,
    search text NOT NULL,
    source text,
    thread_id text COLLATE "C",
    parent text COLLATE "C",
    worker text COLLATE "C",
    status text NOT NULL,
    seq bigint NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    ended_at timestamptz,
    row_count bigint,
    truncated boolean NOT NULL,
    error_code text,
    elapsed_ms double precision,
    usage json NOT NULL
) WITH (fillfactor = 70);

CREATE INDEX runs_by_time ON runs (created_at, id);

CREATE INDEX runs_by_status ON runs (status, created_at, id);

CREATE INDEX runs_by_source ON runs (source, created_at, id) WHERE source IS NOT NULL;

CREATE INDEX runs_by_thread ON runs (thread_id, created_at, id) WHERE thread_id IS NOT NULL;

CREATE TABLE threads (
    id text COLLATE "C" PRIMARY KEY,
    title text NOT NULL,
    source text,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);

CREATE INDEX threads_by_time ON threads (updated_at, id);

CREATE TABLE messages (
    thread_id text COLLATE "C" NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    seq bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    role text NOT NULL,
    text text NOT NULL,
    run_id text COLLATE "C",
    created_at timestamptz NOT NULL,
    PRIMARY KEY (thread_id, seq)
);

CREATE TABLE sources (
    name text COLLATE "C" PRIMARY KEY,
    spec json NOT NULL
);
